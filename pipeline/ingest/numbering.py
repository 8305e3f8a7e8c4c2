"""Which number and time each piece of a text begins with, so that a line has the same ones wherever its file begins.

A line's number is the one that a root would give it (`asdi.time.Unwrapper`): it depends on the line's own sequence
number and time, and on the lines of the same 16 seconds before it. So the end of a piece says all that the next one has
to know, and the names of files, their dates and how they were cut or joined change nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import asdi
from asdi.time import CLOCK_RATE, SEQUENCE_SPACE, TICK, Position, Unwrapper, header
from pipeline.ingest.inputs import Chunk
from pipeline.session import PipelineError

TAIL_BYTES = 1 << 20
"""Of a piece: the lines of its last ticks are in there."""
_TAIL_TICKS = 3
_MOST_HEADS = 16_384
"""In a tail: more than that come in so few seconds only from a feed that is too fast for its numbers."""
_RATE_SECONDS = 64
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Counted:
    """What the first pass says of a piece."""

    lines: int
    messages: int
    """Lines that are not blank."""
    days: tuple[int, ...]
    """The days of the month of its headers, in order, repeats left out."""
    first: str
    """Its first header line..."""
    last: str
    """...and its last one."""
    heads: tuple[tuple[int, int, int], ...]
    """Sequence number, day and second of the day of its last lines..."""
    is_whole: bool
    """...which are all that it has."""
    problem: str = ""
    """Why the file can't be read: then it is one line of the quarantine..."""
    skipped: int = 0
    """...and these are the lines before the place where it breaks off."""


class Begin(NamedTuple):
    """Where the second pass begins with a piece."""

    chunk: Chunk
    line: int
    an: int
    """The next number if lines are counted, else that of the line before (or behind, if there is none)."""
    date: date
    problem: str = ""
    time: int = 0
    """Of the line before (or behind): what a line without a header goes by."""
    is_counting: bool = True
    position: Position | None = None
    skipped: int = 0


def tail_heads(text: bytes) -> tuple[list[tuple[int, int, int]], bool]:
    """The headers of the last ticks of a text, and whether these are all of it."""
    heads: list[tuple[int, int, int]] = []
    ticks: set[tuple[int, int]] = set()
    for line in reversed(text.split(b"\n")):
        head = header(line)
        if head is None:
            continue
        ticks.add((head[1], head[2] // TICK))
        if len(ticks) > _TAIL_TICKS or len(heads) == _MOST_HEADS:
            return heads[::-1], False
        heads.append(head)
    return heads[::-1], True


# --- the second pass: what each line of a block has ------------------------------------------------------------------
def times_of(calendar: asdi.Calendar, days: Numbers, seconds: Numbers) -> Numbers:
    """What `calendar.seconds` says of each line in turn: it is asked once for each run of lines of one day."""
    stops = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    midnights = np.zeros(len(days), np.int64)
    for begin, end in pairwise(stops):
        if begin < end:
            midnights[begin:end] = calendar.seconds(int(days[begin]), 0)
    return midnights + seconds


def numbers_of(unwrapper: Unwrapper, sequences: Numbers, times: Numbers) -> Numbers:
    """What `unwrapper.number` says of each line in turn.

    It is asked for the first line of each tick, and where a sequence number does not rise; between those, numbers rise
    as the sequence numbers do.
    """
    ticks = times // TICK
    steps = (np.diff(sequences) + SEQUENCE_SPACE // 2) % SEQUENCE_SPACE - SEQUENCE_SPACE // 2
    stops = (np.flatnonzero((steps <= 0) | (np.diff(ticks) != 0)) + 1).tolist()
    ans = np.empty(len(sequences), np.int64)
    for begin, end in pairwise([0, *stops, len(sequences)]):
        at = begin
        while at < end:  # a line that repeats a number, or comes late, is not what the next one goes on from
            an = ans[at] = unwrapper.number(int(sequences[at]), int(times[at]))
            at += 1
            position = unwrapper.position
            if at < end and position.an == an and position.time // TICK == ticks[begin]:
                ans[at:end] = an + np.cumsum(steps[at - 1 : end - 1])
                unwrapper.follow(int(ans[end - 1]), int(times[at:end].max()), end - at)
                at = end
    return ans


def begin_all(
    chunks: Sequence[Chunk], counts: Sequence[Counted], references: Sequence[date | None], first_an: int | None
) -> tuple[list[Begin], int]:
    """The driver's part between the passes: where each piece begins, and the number of the first line.

    With `first_an` lines are counted from there on, whatever their own numbers are. A file without a reference has no
    line that a date could be of.
    """
    begins: list[Begin] = []
    line, count, file = 0, first_an or 0, -1
    numbers, started = Unwrapper(at_rest=True), False
    calendar = asdi.Calendar(date(1970, 1, 1))
    around = (0, 0)
    for place, (chunk, counted) in enumerate(zip(chunks, counts, strict=True)):
        if chunk.file != file:
            file, line = chunk.file, 0
            calendar = asdi.Calendar(references[file] or date(1970, 1, 1))
            around = _first_of(chunks, counts, place, calendar.date)
        position = numbers.position if started else None
        an = count if first_an is not None else around[0]
        begins.append(
            Begin(
                chunk, line, an, calendar.date, counted.problem, around[1], first_an is not None, position,
                counted.skipped,
            )
        )  # fmt: skip
        before = calendar.date
        for day in counted.days:
            calendar.seconds(day, 0)
        line += counted.lines
        count += counted.messages
        if counted.heads:
            times = asdi.Calendar(before if counted.is_whole else calendar.date)
            if not counted.is_whole:
                numbers = Unwrapper(at_rest=True)
            for sequence, day, second in counted.heads:
                around = (numbers.number(sequence, times.seconds(day, second)), times.seconds(day, second))
            started = True
            if first_an is None:
                _check_rate(counted)
    return begins, min((begin.an for begin in begins), default=0)


def _first_of(chunks: Sequence[Chunk], counts: Sequence[Counted], place: int, reference: date) -> tuple[int, int]:
    """Number and time of a file's first line with a header, for lines without one before it."""
    for chunk, counted in zip(chunks[place:], counts[place:], strict=True):
        if chunk.file != chunks[place].file:
            break
        found = header(counted.first.encode("ascii", "replace"))
        if found is not None:
            time = asdi.Calendar(reference).seconds(*found[1:])
            return Unwrapper(at_rest=True).number(found[0], time), time
    return 0, asdi.Calendar(reference).seconds(reference.day, 0)


def _check_rate(counted: Counted) -> None:
    first, last = (header(line.encode("ascii", "replace")) for line in (counted.first, counted.last))
    if first is None or last is None or first[1] != last[1]:
        return
    seconds = last[2] - first[2]
    if seconds >= _RATE_SECONDS and counted.messages > CLOCK_RATE * seconds:
        raise PipelineError(
            f"{counted.messages / seconds:.0f} lines per second are too many for ASDI's numbers, which tell at most "
            f"{CLOCK_RATE} apart; count the lines with --first-an"
        )
