"""Which senders are wanted, and when to try again those that went away. Pure: deadlines in, addresses out."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from dcp.control import Reason
from dcp.links.link import SocketAddress

FIRST_DELAY = 0.2
MAX_DELAY = 5.0

# Asking again will not help: the stream is not there, or not of this kind, or the sender speaks another version.
FINAL = {Reason.STREAM_UNKNOWN, Reason.MODE_MISMATCH, Reason.VERSION}


@dataclass(slots=True)
class _Wanted:
    hello: bytes = b""
    failures: int = 0
    at: float = math.inf
    has_shut_down: bool = False
    final: str | None = None


class Redial:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._wanted: dict[SocketAddress, _Wanted] = {}

    def want(self, address: SocketAddress, hello: bytes = b"") -> None:
        self._wanted[address] = _Wanted(hello)

    def forget(self, address: SocketAddress) -> None:
        self._wanted.pop(address, None)

    def forget_all(self) -> None:
        self._wanted.clear()

    def opened(self, address: SocketAddress) -> None:
        wanted = self._wanted.get(address)
        if wanted is not None:
            wanted.failures = 0
            wanted.at = math.inf
            wanted.has_shut_down = False

    def failed(self, address: SocketAddress, reason: int, name: str, body: bytes, now: float) -> None:
        wanted = self._wanted.get(address)
        if wanted is None:
            return
        if reason == Reason.SHUTTING_DOWN:
            wanted.has_shut_down = True
        if reason in FINAL:
            detail = f" ({body.decode('utf-8', 'replace')})" if body else ""
            shown = f"[{address[0]}]" if ":" in address[0] else address[0]
            wanted.final = f"{shown}:{address[1]}: {name}{detail}"
            return
        if reason != Reason.RENEW:
            wanted.failures += 1
        delay = min(FIRST_DELAY * 2.0 ** min(wanted.failures - 1, 10), MAX_DELAY) if wanted.failures else 0.0
        wanted.at = now + delay * self._rng.uniform(0.5, 1.0)

    def due(self, now: float) -> list[tuple[SocketAddress, bytes]]:
        """The senders to dial now, and what to greet each with."""
        found = [(address, wanted) for address, wanted in self._wanted.items() if wanted.at <= now]
        for _, wanted in found:
            wanted.at = math.inf
        return [(address, wanted.hello) for address, wanted in found]

    def next_at(self) -> float:
        return min((wanted.at for wanted in self._wanted.values()), default=math.inf)

    @property
    def has_shut_down(self) -> bool:
        """A sender said that it shuts down, and was not reached again since."""
        return any(wanted.has_shut_down for wanted in self._wanted.values())

    @property
    def is_hopeless(self) -> bool:
        """Every sender that is wanted has refused for good."""
        return bool(self._wanted) and all(wanted.final for wanted in self._wanted.values())

    def why(self) -> str:
        return "; ".join(wanted.final for wanted in self._wanted.values() if wanted.final)
