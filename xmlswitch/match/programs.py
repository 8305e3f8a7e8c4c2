"""What a packet of a known markup still needs: which columns to look at, where their texts are, what may hold.

All that structure decides is worked out once for a markup and again when the index changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xmlswitch.index.budget import NODE_WORK
from xmlswitch.index.waypoints import Spot, Waypoint
from xmlswitch.match.matching import Part, Structure, decide, undecided

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.buckets import Bucket, Single
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.conjunctions import Entry, Values
    from xmlswitch.index.index import Index
    from xmlswitch.index.looks import Look
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.index.scopes import ScopeSet

# How a column's value is put together: the one slot itself, or pieces of markup text and slot numbers.
Template = int | tuple[str | int, ...]

# What a walk does to the frames: it comes to a place with a value, or without; or it leaves a node.
Action = tuple[Spot, Template | None] | Waypoint

_TRUST, _PATIENCE = 64, -8  # how far ahead and behind the first column's balance may go
_LEARNING = 16  # packets after which a column's use says something


def filled(template: Template, texts: Sequence[str]) -> str:
    if isinstance(template, int):
        return texts[template]
    return "".join(texts[part] if isinstance(part, int) else part for part in template)


class _Texts(dict["ColumnEntry", "Look | list[Look]"]):
    """The values of a packet."""

    __slots__ = ("program", "texts")
    program: Program
    texts: Sequence[str]

    def __missing__(self, column: ColumnEntry) -> Look | list[Look]:
        found = self[column] = self.program.look(column, self.texts)
        return found


class Program:
    """`_direct` and `_plain`: columns of one text that is a slot, so that most values are read in flat loops.

    Something waits for values of `_direct` (and of `_indirect`) columns; `_plain` ones are those that most packets are
    asked for by what they came to, known beforehand or learned from those that had to be read one by one (`_misses`).
    `_first` is the one direct column that is tried before all others are read, as long as it ends the search in about
    half of the cases in which all together do (`_balance`).
    """

    __slots__ = (
        "_accepts",
        "_balance",
        "_direct",
        "_first",
        "_indirect",
        "_known",
        "_links",
        "_misses",
        "_open",
        "_plain",
        "_read",
        "_runs",
        "_shelves",
        "_templates",
        "_work",
        "start",
        "structure",
        "tape",
    )

    def __init__(
        self,
        structure: Structure,
        accepts: Sequence[Accept],
        templates: Mapping[PathEntry, Sequence[Template]],
        tape: Sequence[Action],
        work: int,
        start: Waypoint,
    ) -> None:
        self.tape = tape  # what a walk does to frames: as long as walks begin at this waypoint
        self.start = start
        self._work = work  # that it takes
        self.structure = structure
        self._accepts = accepts
        self._templates = templates
        self._read = self._shelves = -1
        self._links = 0
        self._open: list[Bucket] = []
        self._first: list[tuple[dict[str, Look], ColumnEntry, int]] = []
        self._balance = 0
        self._direct: list[tuple[dict[str, Look], ColumnEntry, int]] = []
        self._plain: list[tuple[dict[str, Look], ColumnEntry, int]] = []
        self._indirect: list[ColumnEntry] = []
        self._known: Values = {}  # what does not depend on the packet
        self._runs = 0  # since it was arranged
        self._misses: dict[ColumnEntry, int] = {}

    def run(self, index: Index, texts: Sequence[str], answer: Answer) -> list[Entry]:
        """The entries that must be evaluated; what is sure goes into the answer."""
        pending = self._run(index, texts, answer)
        if self.tape and not answer.done:
            self._play(index, texts, answer)
        return pending

    def _play(self, index: Index, texts: Sequence[str], answer: Answer) -> None:
        """Do to the frames what a walk would do."""
        held = 0
        reported: dict[ScopeSet, int] = {}
        index.work.charge(self._work)
        for action in self.tape:
            if not isinstance(action, tuple):
                held = action.leave(held, reported, answer)
                continue
            spot, template = action
            if template is None:
                held |= spot.fixed
                continue
            text = filled(template, texts)
            if not isinstance(template, int):
                index.work.charge(len(text) + NODE_WORK)
            held = spot.note(text, held)

    def _run(self, index: Index, texts: Sequence[str], answer: Answer) -> list[Entry]:
        if self._read != index.journal.end:
            self._links = 0
            for accept in self._accepts:
                self._links |= accept.links(index.journal)
            self._read = index.journal.end
        if self._shelves != index.shelves:
            self._arrange(index)
        if self._links:
            answer.mask(self._links)
            if answer.done:
                return []
        self._runs += 1
        values = _Texts()
        values.program = self
        values.texts = texts
        structure = self.structure
        singles: list[Single] = []
        doubtful: list[Part] = []
        for known, column, place in self._plain:
            text = texts[place]
            values[column] = known.get(text) or column.look(text)
        for known, column, place in self._first:
            text = texts[place]
            look = values[column] = known.get(text) or column.look(text)
            if look[2]:
                decide(look[2], structure, values, answer, singles, doubtful)
                if answer.done:
                    if self._balance < _TRUST:
                        self._balance += 1
                    return []
        buckets = self._open.copy()
        for known, column, place in self._direct:
            text = texts[place]
            look = values[column] = known.get(text) or column.look(text)
            buckets += look[2]
        for column in self._indirect:
            several = values[column]
            if isinstance(several, tuple):
                buckets += several[2]
            elif len(several) > 1:
                buckets += dict.fromkeys(bucket for one in several for bucket in one[2])
        decide(buckets, structure, values, answer, singles, doubtful)
        if answer.done:
            self._balance -= 1
            if self._balance < _PATIENCE:
                self._try_another_first()
            return []
        return undecided(singles, doubtful, structure, values, answer)

    def _try_another_first(self) -> None:
        """Other columns would more often have ended the search at once: find out which."""
        self._balance = 0
        self._direct += self._first
        self._first = [self._direct.pop(0)] if self._direct else []

    def look(self, column: ColumnEntry, texts: Sequence[str]) -> Look | list[Look]:
        """What a column has in a packet with these texts."""
        if column.is_muted:
            return column.absent
        nodes = self._templates.get(column.path)
        if column.is_count or nodes is None:
            known = self._known.get(column)
            if known is None:
                count = str(self.structure.counts.get(column.path, 0))
                known = self._known[column] = column.look(count) if column.is_count else column.absent
            return known
        if column.first or len(nodes) == 1:
            text = filled(nodes[0], texts)
            self._learn(column, nodes[0])
            return column.looks.get(text) or column.look(text)
        several: list[Look] = []
        for node in nodes:
            text = filled(node, texts)
            if not isinstance(node, int):
                column.work.charge_column(column, len(text) + NODE_WORK)
            several.append(column.looks.get(text) or column.look(text))
        return several

    def _learn(self, column: ColumnEntry, template: Template) -> None:
        """A column had to be read by itself: if most packets need it, read it with the others."""
        misses = self._misses[column] = self._misses.get(column, 0) + 1
        if misses * 2 > self._runs >= _LEARNING and isinstance(template, int):
            self._plain.append((column.looks, column, template))

    def _arrange(self, index: Index) -> None:
        """Find what the structure lets through: what is kept at its paths, and the columns with values to look up."""
        self._shelves = index.shelves
        self._known.clear()
        self._misses.clear()
        self._runs = 0
        present = self.structure.present
        buckets = (index.always, *(path.bucket for path in present))
        self._open = [bucket for bucket in buckets if bucket is not None and bucket.size]
        anchored = dict.fromkeys(column for path in present for column in path.anchored)
        blocks = [block for bucket in self._open for block in bucket.blocks]
        needed = dict.fromkeys(column for block in blocks for column in block.tables)
        self._direct = []
        self._plain = []
        self._indirect = []
        for column in anchored | needed:
            nodes = self._templates.get(column.path)
            if nodes is not None and (column.first or len(nodes) == 1) and isinstance(nodes[0], int):
                if not column.is_count:
                    (self._direct if column in anchored else self._plain).append((column.looks, column, nodes[0]))
            elif column in anchored:
                self._indirect.append(column)
        self._first = []
        self._try_another_first()
