"""What a packet of a known markup still needs: which columns to look at, where their texts are, what may hold.

All that structure decides is worked out once for a markup and again when the index changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xmlswitch.matching import NO, SURE, UNSURE, Part, Structure, decide

if TYPE_CHECKING:
    from xmlswitch.answers import Answer
    from xmlswitch.blocks import Values
    from xmlswitch.buckets import Bucket, Single
    from xmlswitch.columns import ColumnEntry, Look
    from xmlswitch.entries import Entry
    from xmlswitch.index import Index
    from xmlswitch.paths import Accept, PathEntry

# How a column's value is put together: the one slot itself, or pieces of markup text and slot numbers.
Template = int | tuple[str | int, ...]

_MAX_PARTS = 2048  # buckets of which a program knows what its structure allows


def filled(template: Template, texts: Sequence[str]) -> str:
    if isinstance(template, int):
        return texts[template]
    return "".join(texts[part] if isinstance(part, int) else part for part in template)


class _Texts(dict["ColumnEntry", "Look | list[Look]"]):
    """The values of a packet."""

    __slots__ = ("_program", "_texts")

    def __init__(self, program: Program, texts: Sequence[str]) -> None:
        self._program = program
        self._texts = texts

    def __missing__(self, column: ColumnEntry) -> Look | list[Look]:
        found = self[column] = self._program.look(column, self._texts)
        return found


class Program:
    """`_direct` and `_plain`: columns of one text that is a slot, so that most values are read in flat loops.

    Something waits for values of `_direct` (and of `_indirect`) columns, but not for those of `_plain` ones.
    """

    __slots__ = (
        "_accepts",
        "_direct",
        "_indirect",
        "_known",
        "_links",
        "_open",
        "_plain",
        "_read",
        "_shelves",
        "_templates",
        "framed",
        "structure",
    )

    def __init__(
        self,
        structure: Structure,
        accepts: Sequence[Accept],
        templates: Mapping[PathEntry, Sequence[Template]],
        framed: bool,
    ) -> None:
        self.framed = framed  # some query must be decided node by node, on the parsed packet
        self.structure = structure
        self._accepts = accepts
        self._templates = templates
        self._read = self._shelves = -1
        self._links = 0
        self._open: list[Bucket] = []
        self._direct: list[tuple[dict[str, Look], ColumnEntry, int]] = []
        self._plain: list[tuple[dict[str, Look], ColumnEntry, int]] = []
        self._indirect: list[ColumnEntry] = []
        self._known: Values = {}  # what does not depend on the packet

    def run(self, index: Index, texts: Sequence[str], answer: Answer) -> list[Entry]:
        """The entries that must be evaluated; what is sure goes into the answer."""
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
        values = _Texts(self, texts)
        buckets = self._open.copy()
        for known, column, place in self._plain:
            text = texts[place]
            values[column] = known.get(text) or column.look(text)
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
        structure = self.structure
        known_parts = structure.parts[answer.is_short]
        parts: list[Part] = []
        singles: list[tuple[Single, bool]] = []
        for bucket in buckets:
            if not bucket.blocks:  # not worth remembering: there are many such buckets, and little in them
                for single in bucket.few:
                    mode = SURE if single.is_free else structure.allows(single.needs)
                    if mode != NO:
                        singles.append((single, mode == UNSURE))
                continue
            part = known_parts.get(bucket)
            if part is None or part.version != bucket.version:
                if len(known_parts) >= _MAX_PARTS:
                    known_parts.clear()
                part = known_parts[bucket] = Part(bucket, structure, answer.is_short)
            parts.append(part)
        return decide(parts, singles, values, answer)

    def look(self, column: ColumnEntry, texts: Sequence[str]) -> Look | list[Look]:
        """What a column has in a packet with these texts."""
        nodes = self._templates.get(column.path)
        if column.is_count or nodes is None:
            known = self._known.get(column)
            if known is None:
                count = str(self.structure.counts.get(column.path, 0))
                known = self._known[column] = column.look(count) if column.is_count else column.absent
            return known
        if column.first or len(nodes) == 1:
            text = filled(nodes[0], texts)
            return column.looks.get(text) or column.look(text)
        several: list[Look] = []
        for node in nodes:
            text = filled(node, texts)
            several.append(column.looks.get(text) or column.look(text))
        return several

    def _arrange(self, index: Index) -> None:
        """Find what the structure lets through: what is kept at its paths, and the columns with values to look up."""
        self._shelves = index.shelves
        self._known.clear()
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
