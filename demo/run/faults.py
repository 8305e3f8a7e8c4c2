"""A real UDP socket whose paths can be made worse while it runs: loss, delay, rate and cuts, for each sender's address.

What comes in is treated, not what goes out: with both ends doing so, each direction of a link has the conditions.
"""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

import trio

from dcp.links.link import Address
from dcp.testing.conditions import Conditions, Path
from dcp.udp import UdpSocket
from peer.mesh.hostport import HostPort

MAX_DELAY = 5.0
MAX_HELD = 50_000
"""Datagrams on their way at once; beyond it they are lost, as in any full queue."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What a path does: the part of `Conditions` that the demo lets one change."""

    loss: float = 0.0
    delay: float = 0.0
    rate: float | None = None
    """Bytes per second."""

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be in 0..1, got {self.loss!r}")
        if not 0 <= self.delay <= MAX_DELAY:
            raise ValueError(f"delay must be 0 to {MAX_DELAY:g} seconds, got {self.delay!r}")
        if self.rate is not None and not 100 <= self.rate <= 1e9:
            raise ValueError(f"rate must be 100 to 1e9 bytes/s, got {self.rate!r}")

    @property
    def is_fair(self) -> bool:
        return not self.loss and not self.delay and self.rate is None

    def worse(self, other: Weather) -> Weather:
        """Both at once."""
        rates = [rate for rate in (self.rate, other.rate) if rate is not None]
        return Weather(
            1 - (1 - self.loss) * (1 - other.loss),
            min(MAX_DELAY, self.delay + other.delay),
            min(rates) if rates else None,
        )

    def conditions(self) -> Conditions:
        # A little jitter, so that a delay does not keep datagrams in better order than a network would.
        return Conditions(delay=self.delay, jitter=self.delay / 20, loss=self.loss, rate=self.rate)

    def words(self) -> str:
        if self.is_fair:
            return "no faults"
        words = []
        if self.loss:
            words.append(f"{self.loss:.0%} loss")
        if self.delay:
            words.append(f"{self.delay * 1e3:.0f} ms delay")
        if self.rate is not None:
            words.append(f"{self.rate / 1e3:.0f} kB/s")
        return ", ".join(words) + " each way"

    def as_json(self) -> dict[str, Any]:
        return {"loss": self.loss, "delay": self.delay, "rate": self.rate}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Weather:
        """Raise ValueError for anything that is not a valid setting."""
        unknown = set(fields) - {"loss", "delay", "rate"}
        if unknown:
            raise ValueError(f"only loss, delay and rate can be set, got {', '.join(sorted(map(str, unknown)))}")
        numbers = {name: value for name, value in fields.items() if value is not None}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise ValueError(f"{name} must be a number, got {value!r}")
        return cls(**{name: float(value) for name, value in numbers.items()})


FAIR = Weather()


class FaultySocket(UdpSocket):
    """Fair until `set_weather` says otherwise; `lost` and `passed` count by sender while the weather is foul."""

    def __init__(self, sock: socket.socket, *, segmentation: bool = True) -> None:
        super().__init__(sock, segmentation=segmentation)
        self.lost: Counter[HostPort] = Counter()
        self.passed: Counter[HostPort] = Counter()
        self._dice = random.Random()
        self._held: list[tuple[float, int, bytes, Address]] = []
        self._numbers = count()
        self.set_weather(FAIR, {}, frozenset())

    def set_weather(self, everywhere: Weather, links: Mapping[HostPort, Weather], cut: frozenset[HostPort]) -> None:
        self._everywhere, self._links, self._cut = everywhere, dict(links), cut
        self._paths: dict[HostPort, Path] = {}
        self._is_fair = everywhere.is_fair and not links and not cut

    async def wait_readable(self) -> None:
        if not self._held:
            await super().wait_readable()
            return
        with trio.move_on_at(self._held[0][0]):
            await super().wait_readable()

    def receive_now(self, most: int) -> list[tuple[bytes, Address]]:
        batch = super().receive_now(most)
        if self._is_fair and not self._held:
            return batch
        now = trio.current_time()
        arrived: list[tuple[bytes, Address]] = []
        for data, address in batch:
            self._carry(data, address, now, arrived)
        while self._held and self._held[0][0] <= now:
            _, _, data, address = heappop(self._held)
            arrived.append((data, address))
        return arrived

    def _carry(self, data: bytes, address: Address, now: float, arrived: list[tuple[bytes, Address]]) -> None:
        source = (address[0], address[1])
        path = self._paths.get(source)
        if path is None:
            path = self._paths[source] = Path(self._weather_from(source).conditions(), self._dice)
        came = [] if source in self._cut else path.carry(data, now)
        if not came:
            self.lost[source] += 1
            return
        self.passed[source] += 1
        for at, copy in came:
            if at <= now:
                arrived.append((copy, address))
            elif len(self._held) < MAX_HELD:
                heappush(self._held, (at, next(self._numbers), copy, address))

    def _weather_from(self, source: HostPort) -> Weather:
        special = self._links.get(source)
        return self._everywhere if special is None else self._everywhere.worse(special)
