"""What a running peer knows of itself: its stream and name, and what its counters did in the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from peer.mesh.messages import About
from peer.version import version

if TYPE_CHECKING:
    from dcp.receiver import Receiver
    from dcp.sender import Sender
    from peer.content import Subscription
    from peer.coreconfig import CoreConfig

INTERVAL = 1.0
"""Seconds between two samples."""
SAMPLES = 6
HIGHEST_OF = 60
"""Seconds of which the highest rate of a link is remembered."""
LEAST_SAMPLES = 3
"""Of a link, before anything is said about its rate."""


class Sample(NamedTuple):
    """Counters that only rise, at one moment."""

    at: float
    packets: int
    brought: int
    """Packets that parents brought unasked..."""
    expected: int
    """...of those that they should have brought."""
    incoming: int = 0
    """Bytes of payload, each packet once."""
    own: int = 0
    """Bytes that the client here was handed."""
    outgoing: int = 0
    """Bytes that were sent to children."""


class LinkRate(NamedTuple):
    """Bytes per second."""

    now: float
    highest: float
    """Of the last minute: what the link has been seen to carry."""


class Presence:
    def __init__(
        self,
        config: CoreConfig,
        receiver: Receiver | None,
        sender: Sender | None,
        client: Subscription | None = None,
    ) -> None:
        self._config, self._receiver, self._sender, self._client = config, receiver, sender, client
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._brought: dict[int, int] = {}
        self._links: dict[int, deque[float]] = {}

    def look(self, now: float) -> None:
        """Take a sample if one is due."""
        last = self._samples[-1] if self._samples else None
        if last is not None and now < last.at + INTERVAL:
            return
        outgoing = self._sender.bytes_sent if self._sender is not None else 0
        if self._receiver is not None:
            got = self._receiver.statistics(now)
            brought, expected = sum(up.brought for up in got.links), sum(up.expected for up in got.links)
            own = self._client.bytes if self._client is not None else 0
            self._samples.append(Sample(now, got.packets, brought, expected, got.bytes, own, outgoing))
            size = got.bytes / got.packets if got.packets else 0.0
            before, self._brought = self._brought, {up.link: up.brought for up in got.links}
            links = {}
            for link in before.keys() & self._brought.keys() if last is not None else ():
                rates = links[link] = self._links.get(link) or deque(maxlen=HIGHEST_OF)
                rates.append(max(0, self._brought[link] - before[link]) * size / (now - last.at if last else 1.0))
            self._links = links
        elif self._sender is not None:
            log = self._sender.log
            self._samples.append(Sample(now, len(log) + log.evicted, 0, 0, outgoing=outgoing))

    def rates(self) -> Mapping[str, float]:
        """Bytes per second, by the names that goals use."""
        if len(self._samples) < 2:
            return {}
        first, last = self._samples[0], self._samples[-1]
        incoming, own, outgoing = (
            (after - before) / (last.at - first.at) for before, after in zip(first[4:], last[4:], strict=True)
        )
        superfluous = max(0.0, incoming - own)
        return {"own_rate": own, "incoming": incoming, "outgoing": outgoing, "superfluous": superfluous}

    def link_rates(self) -> dict[int, LinkRate]:
        """What came over each link to a parent, by dcp's number."""
        return {
            link: LinkRate(sum(list(rates)[-LEAST_SAMPLES:]) / LEAST_SAMPLES, max(rates))
            for link, rates in self._links.items()
            if len(rates) >= LEAST_SAMPLES
        }

    def about(self) -> About:
        rate = loss = None
        if len(self._samples) > 1:
            first, last = self._samples[0], self._samples[-1]
            rate = (last.packets - first.packets) / (last.at - first.at)
            expected = last.expected - first.expected
            if expected > 0:  # a parent that has left takes its counters along
                loss = min(1.0, max(0.0, 1 - (last.brought - first.brought) / expected))
        protection = ""
        if self._receiver is not None and self._receiver.mending.is_wanted:
            protection = self._receiver.mending.steering.choice.name
        sources = self._config.sources
        return About(
            self._config.stream, self._config.label, version(), rate, loss, protection=protection, sources=sources
        )
