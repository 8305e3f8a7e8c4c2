"""What ASDI leaves out of its header: the month and year of a time, and the high bits of a sequence number.

Both are settled from the messages alone, so that two roots that started at different moments, and a batch job that
cuts the same lines into any number of pieces, come to the same answers. docs/asdi.md has the reasoning.
"""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

SECONDS_A_DAY = 86_400
_UNPRINTABLE = re.compile(rb"[^ -~]+")
# Sequence, day, time, facility and type: enough to trust the day even if the rest of the line is not a message.
_HEADER = re.compile(
    rb"([0-9A-Fa-f]{4})(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])([0-5]\d)([0-5]\d)[A-Z0-9]{4}[A-Z]{2}(?:\s|$)"
)
_EPOCH = date(1970, 1, 1)

SEQUENCE_SPACE = 1 << 16
_HALF = SEQUENCE_SPACE // 2
# The numbering's clock, in numbers per second: above any rate the feed reaches for minutes (real lines show up to 112 a
# second), and so that the whole space of sequence numbers is a round 256 seconds of it.
CLOCK_RATE = 256
# The clock moves in steps of this many seconds, so that a late or lost line hardly ever decides anything.
TICK = 16
# How far the clock must be past a whole space before numbers jump; also what makes a starting root wait.
GUARD = 8_192
# After this much silence a continuation by sequence number alone is ambiguous at CLOCK_RATE.
LONGEST_SILENCE = _HALF // CLOCK_RATE


def header(line: bytes) -> tuple[int, int, int] | None:
    """Sequence number, day of the month and second of the day of a line's header; None when the line has none."""
    found = _header(line)
    if found is None:
        return None
    sequence, day, hour, minute, second = found.groups()
    return int(sequence, 16), int(day), int(hour) * 3600 + int(minute) * 60 + int(second)


def header_day(line: bytes) -> int | None:
    """The day of the month in a line's header; None when the line has no such header, whatever else it is."""
    found = _header(line)
    return int(found[2]) if found else None


def _header(line: bytes) -> re.Match[bytes] | None:
    found = _HEADER.match(line)
    if found is None and not (line.isascii() and line.rstrip().decode("ascii").isprintable()):
        found = _HEADER.match(_UNPRINTABLE.sub(b"", line))  # the parser leaves such bytes out, too
    return found


def date_near(day: int, reference: date) -> date:
    """The date with this day of the month that lies nearest to the reference (the later one of two as near)."""
    found: date | None = None
    year, month = reference.year, reference.month
    # A day 29 to 31 can be missing in two months running (January 30 seen from March 1), so look two months each way.
    for shift in range(-2, 3):
        y, m = divmod(year * 12 + month - 1 + shift, 12)
        try:
            candidate = date(y, m + 1, day)
        except ValueError:
            continue
        if found is None or abs(candidate - reference) <= abs(found - reference):
            found = candidate
    if found is None:
        raise ValueError(f"{day} is not a day of any month near {reference}")
    return found


class Calendar:
    """Gives each message its full time, from a reference that moves along with the messages.

    The first message takes the date nearest to the reference, every later one the date nearest to that of the message
    before it: midnights, month ends and years pass by themselves, late lines fall back into the day they belong to, and
    silence of up to two weeks is understood. The state is one date, so a job can carry it from piece to piece.
    """

    def __init__(self, reference: date) -> None:
        self.date = reference
        self._midnight = 0
        self._day = 0

    def seconds(self, day: int, second: int) -> int:
        """Unix time of a message with this day of the month (1 to 31) and second of the day."""
        if day != self._day:
            self.date = date_near(day, self.date)
            self._midnight = (self.date - _EPOCH).days * SECONDS_A_DAY
            self._day = day
        return self._midnight + second


class Position(NamedTuple):
    """Where an unwrapper stands: enough to go on from, after a restart or in another piece of a job."""

    an: int
    time: int
    settled: bool


class Unwrapper:
    """16 bits of sequence number and the time of the message -> one 64-bit number, the same at every root.

    The clock runs at 256 numbers per second of Unix time, faster than the feed. A number is congruent to its sequence
    number, follows the number before it, and is kept within about one space (65,536) below the clock: when it has
    fallen a whole space and a guard behind, numbering jumps one space ahead. A jump is not a loss: `missed` counts what
    the feed itself skipped. A root that starts takes the highest fitting number that is a guard below the clock. That
    is what the others have too, unless they jumped a moment ago: when that is possible `settled` is False, and the root
    must not publish before it turns True (half a minute at usual rates).

    `at_rest` is for lines of files, which may come in any order: a time before the tick starts again, too. So the
    number of a line depends on the line itself and on those of the same tick before it, wherever a file begins.
    """

    def __init__(self, position: Position | None = None, *, at_rest: bool = False) -> None:
        self._at_rest = at_rest
        self._an = position.an if position else 0
        self._time = position.time if position else 0
        self._started = position is not None
        self.settled = position.settled if position else False
        self.missed = 0
        """Sequence numbers that the feed skipped since the start."""
        self.repeated = 0
        """Lines that came again, or late: their number is not above one already given."""
        self.restarts = 0
        """Silences so long that numbering restarted from the clock."""

    @property
    def position(self) -> Position:
        return Position(self._an, self._time, self.settled)

    def number(self, sequence: int, time: int) -> int:
        """The number of the message with this sequence number at this Unix time (whole seconds)."""
        clock = time // TICK * TICK * CLOCK_RATE
        if (
            not self._started
            or time - self._time > LONGEST_SILENCE
            or (self._at_rest and time // TICK < self._time // TICK)
        ):
            self.restarts += self._started
            self._started = True
            an = clock - GUARD - (clock - GUARD - sequence) % SEQUENCE_SPACE
            self.settled = clock - an < SEQUENCE_SPACE
            self._an, self._time = an, time
            return an
        step = (sequence - self._an + _HALF) % SEQUENCE_SPACE - _HALF
        an = self._an + step
        if step <= 0:
            self.repeated += 1
            return an
        self.missed += step - 1
        # Only the first message of a tick may jump: what a late line says about the time then changes nothing.
        if time // TICK > self._time // TICK:
            behind = clock - an
            if behind >= SEQUENCE_SPACE + GUARD:
                an += (behind - GUARD) // SEQUENCE_SPACE * SEQUENCE_SPACE
            if not self.settled and clock - an < SEQUENCE_SPACE:
                self.settled = True
        self._an = an
        self._time = max(self._time, time)
        return an

    def follow(self, an: int, time: int, lines: int) -> None:
        """What `number` does for so many lines whose sequence numbers rise within one tick, the last with this AN.

        `time` is the latest of theirs. For whoever has the numbers of such lines from their steps.
        """
        self.missed += an - self._an - lines
        self._an = an
        self._time = max(self._time, time)
