"""Where a packet's AN comes from: the same number for the same packet at every root of a stream. Pure.

Three ways, chosen by what the feed has:

    AsdiSequencer       ASDI's own sequence number and time (`asdi`): roots agree without talking to each other
    PositionSequencer   the place in a file or archive: roots that read the same one agree
    ContentSequencer    nothing but the content: the first root counts, and a root that comes later listens to the mesh
                        until it knows which number its own packets have (`Aligner`), and counts on from there

All three give `Numbered` packets with rising ANs. `contiguous` False says that the feed lost something before this
packet: a hole, never a guess. docs/feeds.md has the reasoning.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from datetime import date
from hashlib import blake2b
from typing import Final, NamedTuple

from asdi import AsdiError, Calendar, Unwrapper, parse, to_xml
from peer.feeds.mark import Mark

FINGERPRINT_BYTES: Final = 16
DEFAULT_RUN: Final = 8
"""Packets in a row that must agree. More: a later start; fewer: an accident becomes thinkable."""
DEFAULT_WINDOW: Final = 8_192
"""Packets of either side that are compared: how far apart two roots' feeds may be."""
MAX_COMPARISONS: Final = 500_000
"""For one look. Content that repeats so much that this does not do is ambiguous, and is treated so."""


class Numbered(NamedTuple):
    """A packet that is ready to be published."""

    an: int
    payload: bytes
    contiguous: bool = True
    time: float | None = None
    """Unix time that the feed itself gives the packet, for replay at its own speed."""
    line: bytes | None = None
    """The line of ASDI text that it was made of."""


class PositionSequencer:
    """The n-th packet of the feed has AN n; a feed that loops counts on.

    After a restart the same packets get the same numbers again, which is harmless: a root that read its file again has
    its history back.
    """

    def __init__(self) -> None:
        self._last = 0
        self._is_behind_a_hole = False

    @property
    def mark(self) -> Mark:
        return Mark(self._last)

    def number(self, payload: bytes) -> Numbered:
        self._last += 1
        contiguous, self._is_behind_a_hole = not self._is_behind_a_hole, False
        return Numbered(self._last, payload, contiguous)

    def skip(self) -> int:
        """A packet that can't be published has its place all the same: its AN, which is a hole."""
        self._last += 1
        self._is_behind_a_hole = True
        return self._last


class AsdiSequencer:
    """Lines of ASDI text to numbered XML packets.

    With `waits` (a live feed) nothing is published before the numbering is settled: a root that starts just as the
    others are about to jump a whole sequence space could be one space behind them. A file has a first line that is the
    same for everybody, and needs no wait.
    """

    def __init__(self, reference: date, mark: Mark | None = None, *, waits: bool = True) -> None:
        position = None
        if mark is not None and mark.time is not None:
            position = Unwrapper().position._replace(an=mark.an, time=mark.time, settled=bool(mark.settled))
        self._calendar = Calendar(reference)
        self._unwrapper = Unwrapper(position)
        self._waits = waits
        self._last = mark.an if mark is not None else -1
        self._expected: int | None = None
        self.errors: Counter[str] = Counter()
        """Lines that became no packet, by reason. Each is a hole, for it had a number."""
        self.unsettled = 0
        """Messages that were not published because the numbering could not be known for sure yet."""
        self.missed = 0
        """Numbers that the feed itself skipped."""

    @property
    def repeated(self) -> int:
        """Lines that came again or late: not published."""
        return self._unwrapper.repeated

    @property
    def mark(self) -> Mark:
        position = self._unwrapper.position
        return Mark(position.an, position.time, position.settled)

    def number(self, line: bytes) -> Numbered | None:
        try:
            message = parse(line)
        except AsdiError as error:
            self.errors[error.reason.value] += 1
            return None
        time = self._calendar.seconds(message.day, message.second)
        restarts, missed = self._unwrapper.restarts, self._unwrapper.missed
        an = self._unwrapper.number(message.sequence, time)
        if an <= self._last:
            return None
        if self._waits and not self._unwrapper.settled:
            self.unsettled += 1
            return None
        # A jump of the numbering is not a loss; what the feed skipped is, and so is a silence that is too long.
        skipped = self._unwrapper.missed - missed
        contiguous = skipped == 0 and self._unwrapper.restarts == restarts
        self.missed += skipped
        first = self._last < 0
        self._last = an
        return Numbered(an, to_xml(message), contiguous or first, float(time), line)


# --- numbering by content ---------------------------------------------------------------------------------------------


def fingerprint(payload: bytes) -> bytes:
    """Equal for equal packets; nobody can make two packets that look equal."""
    return blake2b(payload, digest_size=FINGERPRINT_BYTES).digest()


class Aligner:
    """Finds which AN our own packets have, by what the mesh carries. Never guesses.

    An *offset* (AN minus the index in our own feed) is consistent when every packet that both sides have shown agrees
    under it, and at least one does. We are aligned when exactly one offset is consistent and `run` different packets
    or more agree (heartbeats that are all alike count as one). Content that repeats with a period leaves several
    consistent offsets and so never aligns: that is reported, not guessed. What falls out of the bounded windows no
    longer speaks for or against any offset.
    """

    def __init__(self, *, run: int = DEFAULT_RUN, window: int = DEFAULT_WINDOW) -> None:
        if not 1 <= run <= window:
            raise ValueError("the run must fit the window")
        self.run = run
        self._window = window
        self._own: deque[bytes] = deque(maxlen=window)
        self._own_end = 0
        self._mesh: OrderedDict[int, bytes] = OrderedDict()
        self.ambiguous = False
        """Whether the last look found more than one offset."""

    @property
    def own_first(self) -> int:
        """The index of the oldest own packet that still counts."""
        return self._own_end - len(self._own)

    def own(self, payload: bytes) -> None:
        """The next packet of our feed."""
        self._own.append(fingerprint(payload))
        self._own_end += 1

    def mesh(self, an: int, payload: bytes) -> None:
        """A packet that the mesh carries. Gaps are not passed in: what is missing says nothing."""
        self._mesh[an] = fingerprint(payload)
        if len(self._mesh) > self._window:
            self._mesh.popitem(last=False)

    def restart(self) -> None:
        """Our feed lost something: it is another run of packets from here. What the mesh showed stays."""
        self._own.clear()
        self._own_end = 0

    def offset(self) -> int | None:
        """The offset, once it is the only one and enough packets agree."""
        self.ambiguous = False
        if not self._mesh or len(self._own) < self.run:
            return None
        own, mesh = list(self._own), self._mesh
        first = self.own_first
        lowest, highest = min(mesh), max(mesh)
        budget = MAX_COMPARISONS
        found: int | None = None
        agreeing: set[bytes] = set()
        for offset in range(lowest - (self._own_end - 1), highest - first + 1):
            agreed: set[bytes] = set()
            base = offset + first
            for place in range(max(0, lowest - base), min(len(own), highest - base + 1)):
                theirs = mesh.get(base + place)
                if theirs is None:
                    continue
                budget -= 1
                if theirs != own[place]:
                    agreed.clear()
                    break
                agreed.add(theirs)
            if not agreed:
                continue
            if found is not None or budget < 0:
                self.ambiguous = True
                return None
            found, agreeing = offset, agreed
        return found if len(agreeing) >= self.run else None


class ContentSequencer:
    """Numbers for a feed that has none of its own.

    It starts `listening`: packets of the feed are kept (bounded) while `heard` shows what the mesh carries, until the
    two fit in one way only; then everything that was kept comes out numbered, and counting goes on. `count_alone` is
    for the first root: there is nobody to agree with. After `broke` it listens again, for its count may be wrong.
    """

    def __init__(
        self, mark: Mark | None = None, *, run: int = DEFAULT_RUN, window: int = DEFAULT_WINDOW, look_every: int = 4
    ) -> None:
        self._last = mark.an if mark is not None else 0
        self._restarted = mark is not None
        self._next: int | None = None
        self._aligner = Aligner(run=run, window=window)
        self._kept: deque[bytes] = deque(maxlen=window)
        self._look_every = look_every
        self._news = 0
        self.dropped = 0
        """Packets of the feed that came too early to be numbered, and were not kept any more."""

    @property
    def listening(self) -> bool:
        return self._next is None

    @property
    def ambiguous(self) -> bool:
        """What was heard fits in more than one way: the content repeats."""
        return self._aligner.ambiguous

    @property
    def mark(self) -> Mark:
        return Mark(self._last)

    def count_alone(self) -> list[Numbered]:
        """Nobody else serves the stream: count on from the last AN known.

        After a restart or a break one AN is left out, so that clients see a gap where packets may be missing.
        """
        if self._next is None:
            self._next = self._last + (2 if self._restarted else 1)
        return self._release()

    def broke(self) -> None:
        """The feed lost something, or may have: what comes next has a number that must be found again."""
        self._restarted = True
        self._next = None
        self.dropped += len(self._kept)
        self._kept.clear()
        self._aligner.restart()

    def number(self, payload: bytes) -> list[Numbered]:
        """The next packet of the feed; what can be published now."""
        if self._next is None:
            if len(self._kept) == self._kept.maxlen:
                self.dropped += 1
            self._kept.append(payload)
            self._aligner.own(payload)
            return self._look()
        self._kept.append(payload)
        return self._release()

    def heard(self, an: int, payload: bytes) -> list[Numbered]:
        """A packet that the mesh carries; what can be published now."""
        if self._next is not None:
            return []
        self._aligner.mesh(an, payload)
        return self._look()

    def _look(self) -> list[Numbered]:
        self._news += 1
        if self._news < self._look_every:
            return []
        self._news = 0
        offset = self._aligner.offset()
        if offset is None:
            return []
        self._next = self._aligner.own_first + offset
        return self._release()

    def _release(self) -> list[Numbered]:
        assert self._next is not None
        ready = []
        for payload in self._kept:
            an, self._next = self._next, self._next + 1
            if an > self._last:  # what we had published before a break has its number already
                ready.append(Numbered(an, payload, an == self._last + 1 or self._last == 0))
                self._last = an
        self._kept.clear()
        return ready
