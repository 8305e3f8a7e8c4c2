"""How long to wait for an answer: a round-trip estimate a contact, and one of the whole network for strangers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dht.config import NodeConfig
    from dht.record import Address


@dataclass(slots=True)
class RoundTrip:
    """RFC 6298's smoothed mean and deviation."""

    mean: float
    deviation: float

    def learn(self, sample: float, *, gain: float) -> None:
        self.deviation += 2 * gain * (abs(sample - self.mean) - self.deviation)
        self.mean += gain * (sample - self.mean)

    @property
    def patience(self) -> float:
        return self.mean + 4 * self.deviation


class Timeouts:
    """First wait = mean + 4 deviations, within bounds. The retry waits twice that."""

    _MAX_CONTACTS = 1024

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._network: RoundTrip | None = None
        self._contacts: OrderedDict[Address, RoundTrip] = OrderedDict()

    def learn(self, address: Address, sample: float) -> None:
        """A sample counts from the first send, retried or not: too long is safer than too short."""
        if self._network is None:
            self._network = RoundTrip(sample, sample / 2)
        else:
            self._network.learn(sample, gain=1 / 32)
        known = self._contacts.pop(address, None)
        if known is None:
            known = RoundTrip(sample, sample / 2)
        else:
            known.learn(sample, gain=1 / 8)
        self._contacts[address] = known
        if len(self._contacts) > self._MAX_CONTACTS:
            self._contacts.popitem(last=False)

    def first_wait(self, address: Address) -> float:
        estimate = self._contacts.get(address) or self._network
        wait = self._config.initial_timeout if estimate is None else estimate.patience
        return min(max(wait, self._config.min_timeout), self._config.max_timeout)
