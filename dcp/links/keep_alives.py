"""The sign of life of a parent: when the next keep-alive is due, and what it says.

A keep-alive is a claim too, wherever one can be made: it shows the loss of a tail and carries the child's position
through stretches in which nothing matched.
"""

from __future__ import annotations

from dcp.child import Child
from dcp.control import KeepAlive, Times
from dcp.links.rtt import Pace, RoundTrip
from dcp.links.timing import Timing
from dcp.log import Log
from dcp.serial import HALF, QUARTER


class KeepAliveTimer:
    __slots__ = ("_pace", "_rtt", "_sent", "_timing", "at")

    def __init__(self, timing: Timing, rtt: RoundTrip, pace: Pace, now: float) -> None:
        self.at = now
        """When the next one is due, if nothing else is sent before."""
        self._timing = timing
        self._rtt = rtt
        self._pace = pace
        self._sent = 0

    def restart(self, now: float, least: float = 0.0) -> None:
        """A claim went out: the next sign of life can wait, `least` seconds if something else shows a tail's loss."""
        self._sent = 0
        delay = self._timing.keep_alive_delay(self._rtt, self._pace, 0)
        self.at = now + max(delay, least)

    def is_due(self, now: float) -> bool:
        """When it is, the next one is planned."""
        if now < self.at:
            return False
        self._sent += 1
        self.at = now + self._timing.keep_alive_delay(self._rtt, self._pace, self._sent)
        return True


def current_keep_alive(child: Child, times: Times) -> KeepAlive:
    """Where we stand, as a claim wherever one can be made."""
    log, cursor = child.log, child.cursor
    settled = settled_of(log)
    can_claim = (
        child.floor is not None
        and child.acked - HALF // 4 <= log.head
        and cursor.position >= log.low
        and cursor.prev <= cursor.position <= log.head
    )
    if can_claim:
        prev = max(cursor.prev, cursor.position - QUARTER)
        return KeepAlive(times, child.epoch, True, prev, cursor.position, settled=settled)
    start = child.proposed_start() if child.floor is None and log.started else None
    if start is not None and start <= log.head:
        return KeepAlive(times, child.epoch, False, start, log.head, start=True, settled=settled)
    return KeepAlive(times, child.epoch, False, 0, log.head if log.started else 0, settled=settled)


def settled_of(log: Log) -> int:
    """How far what we say is final: a root's word is, a router's as far as its own parents agree (rule L7)."""
    return log.head if log.is_final else log.settled
