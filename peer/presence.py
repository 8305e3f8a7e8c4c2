"""What people may know about a running peer: its stream and name, and what its counters did in the last seconds."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from peer.mesh.messages import About
from peer.version import version

if TYPE_CHECKING:
    from dcp.receiver import Receiver
    from dcp.sender import Sender
    from peer.coreconfig import CoreConfig

INTERVAL = 1.0
"""Seconds between two samples."""
SAMPLES = 6


class Sample(NamedTuple):
    """Counters that only rise, at one moment."""

    at: float
    packets: int
    brought: int
    """Packets that parents brought unasked..."""
    expected: int
    """...of those that they should have brought."""


class Presence:
    def __init__(self, config: CoreConfig, receiver: Receiver | None, sender: Sender | None) -> None:
        self._config, self._receiver, self._sender = config, receiver, sender
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def look(self, now: float) -> None:
        """Take a sample if one is due."""
        if self._samples and now < self._samples[-1].at + INTERVAL:
            return
        if self._receiver is not None:
            got = self._receiver.statistics(now)
            brought, expected = sum(up.brought for up in got.links), sum(up.expected for up in got.links)
            self._samples.append(Sample(now, got.packets, brought, expected))
        elif self._sender is not None:
            log = self._sender.log
            self._samples.append(Sample(now, len(log) + log.evicted, 0, 0))

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
