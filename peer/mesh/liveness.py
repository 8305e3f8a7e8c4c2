"""Who lives, who is fed from a root, and whether we ourselves slept. Arithmetic only: no table of links, no clock.

Silence is the one sign of death, and a frozen process is as silent as a dead one, so both are noticed alike. There is
no fitted detector: loss makes gaps geometric, and a plain limit of nine beats gave no false alarm in 11 link-hours at
10 % loss, where an accrual detector with a normal fit did badly.
"""

from __future__ import annotations

from enum import Enum

from peer.mesh.messages import MAX_AGE_MS, UNFED, RootProof

MAX_RUNS_A_PARENT = 4
"""Root runs whose counters are remembered for one parent. More roots than this may feed a mesh: a forgotten run that
comes back counts as new, and memory and the reported age still bound it."""
MAX_RUNS_REMEMBERED = 32
"""The same for the peer as a whole."""


class Verdict(Enum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


def verdict(silence: float, *, suspect_after: float, drop_after: float) -> Verdict:
    if silence >= drop_after:
        return Verdict.DEAD
    return Verdict.SUSPECT if silence >= suspect_after else Verdict.ALIVE


def slept(now: float, due_at: float | None, *, thaw_after: float) -> float:
    """How long this machine overslept its own deadline, or 0.0 if it did not."""
    if due_at is None or now - due_at < thaw_after:
        return 0.0
    return now - due_at


class RootMemory:
    """The highest beat of each root that this peer ever heard, and when: old beats stay old on new links.

    Without it a cut-off island keeps itself warm: everybody looks for better parents, and on each new link the last
    beat from before the cut is heard "for the first time".
    """

    __slots__ = ("_beat_interval", "_beats")

    def __init__(self, beat_interval: float) -> None:
        self._beat_interval = beat_interval
        self._beats: dict[int, tuple[int, float]] = {}

    def hear(self, feed: RootProof, now: float) -> float:
        """About when this beat was first heard here: now, if it is the newest of its root."""
        beats = self._beats
        known = beats.get(feed.run)
        if known is not None and feed.beat <= known[0]:
            return known[1] - (known[0] - feed.beat) * self._beat_interval
        if known is not None:
            del beats[feed.run]  # the order of the table is that of the last advance
        elif len(beats) >= MAX_RUNS_REMEMBERED:
            del beats[next(iter(beats))]
        beats[feed.run] = (feed.beat, now)
        return now


class RootFeed:
    """What one parent tells about the freshest root beat it knows.

    `advanced_at` moves only when a root's counter advances on this link, or when its first word is news to the whole
    peer. In a loop of peers that only believe in each other nobody can advance a counter, so all of them run dry after
    one `feed_timeout`, however fast they pass it round. `origin_at` is when the root made that beat, by reported ages;
    it bounds what somebody with no memory, who hears a counter for the first time, can be made to believe.

    The link's own counter comes before the peer's memory, so that one parent that lies about a root's counter cannot
    make all others look behind: they advance by themselves.
    """

    __slots__ = ("_beats", "_memory", "advanced_at", "beat", "origin_at", "run")

    def __init__(self, memory: RootMemory) -> None:
        self._memory = memory
        self.forget()

    def forget(self) -> None:
        """Nothing heard so far counts (after a sleep: it may have lain in the socket)."""
        self._beats: dict[int, int] = {}
        self.advanced_at = float("-inf")
        self.origin_at = float("-inf")
        self.run = 0
        self.beat = 0

    def hear(self, feed: RootProof, now: float) -> None:
        if feed.age_ms >= MAX_AGE_MS:
            return
        beats = self._beats
        known = beats.get(feed.run)
        if known is not None and feed.beat <= known:
            return
        heard_at = self._memory.hear(feed, now)
        if known is not None:
            heard_at = now
            del beats[feed.run]  # the order of the table is that of the last advance
        elif len(beats) >= MAX_RUNS_A_PARENT:
            del beats[next(iter(beats))]
        beats[feed.run] = feed.beat
        if heard_at > self.advanced_at:
            self.advanced_at = heard_at
            self.origin_at = now - feed.age_ms / 1000
            self.run, self.beat = feed.run, feed.beat

    def is_fresh(self, now: float, *, feed_timeout: float, max_feed_age: float) -> bool:
        return now - self.advanced_at <= feed_timeout and now - self.origin_at <= max_feed_age

    def passed_down(self, now: float) -> RootProof:
        """What to pass down."""
        age_ms = int((now - self.origin_at) * 1000) if self.run or self.beat else MAX_AGE_MS
        return RootProof(self.run, self.beat, age_ms) if age_ms < MAX_AGE_MS else UNFED


def resilience(parents: list[int]) -> int:
    """The largest k such that k parents have a resilience of at least k (roots: 255).

    Then any k-1 deaths leave one of those k parents alive, and that one survives the same deaths above it. With n
    parents each n-resilient this is the paper's n; with weaker parents it is what can honestly be promised.
    """
    best = 0
    for index, value in enumerate(sorted(parents, reverse=True), start=1):
        if value < index:
            break
        best = index
    return best
