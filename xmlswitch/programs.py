"""What a packet of a known markup still needs: which columns to look at, where their texts are, what may hold.

All that structure decides is worked out once for a markup and again when the index changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xmlswitch.matching import Allowed, Structure

if TYPE_CHECKING:
    from xmlswitch.answers import Answer
    from xmlswitch.blocks import Looks
    from xmlswitch.buckets import Bucket
    from xmlswitch.columns import ColumnEntry, Look
    from xmlswitch.entries import Entry
    from xmlswitch.index import Index
    from xmlswitch.paths import Accept, PathEntry

# How a column's value is put together: the one slot itself, or pieces of markup text and slot numbers.
Template = int | tuple[str | int, ...]


def filled(template: Template, texts: Sequence[str]) -> str:
    if isinstance(template, int):
        return texts[template]
    return "".join(texts[part] if isinstance(part, int) else part for part in template)


class Program:
    """`_direct`: columns of one text that is a slot, so that most of a packet's values are read in one flat loop."""

    __slots__ = (
        "_accepts",
        "_arranged",
        "_direct",
        "_indirect",
        "_known",
        "_links",
        "_open",
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
        self._indirect: list[ColumnEntry] = []
        self._arranged: dict[Bucket, tuple[int, Allowed]] = {}
        self._known: Looks = {}  # what does not depend on the packet

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
        looks: Looks = {}
        buckets: list[Bucket] = []
        for known, column, place in self._direct:
            look = known.get(texts[place])
            if look is None:
                look = column.look(texts[place])
            looks[column] = look
            if look[2]:
                buckets += look[2]

        def read(column: ColumnEntry) -> Look | list[Look]:
            return self._look(column, texts, looks)

        for column in self._indirect:
            found = read(column)
            if isinstance(found, tuple):
                buckets += found[2]
            elif len(found) > 1:
                buckets += dict.fromkeys(bucket for one in found for bucket in one[2])
        allowed = Allowed()
        for bucket in self._open:
            allowed.join(self._allowed(bucket))
        for bucket in buckets:
            allowed.join(self._allowed(bucket))
        return allowed.decide(looks, read, answer)

    def _allowed(self, bucket: Bucket) -> Allowed:
        known = self._arranged.get(bucket)
        if known is None or known[0] != bucket.version:
            allowed = Allowed()
            allowed.include(bucket, self.structure)
            known = self._arranged[bucket] = bucket.version, allowed
        return known[1]

    def _look(self, column: ColumnEntry, texts: Sequence[str], looks: Looks) -> Look | list[Look]:
        found: Look | list[Look]
        nodes = self._templates.get(column.path)
        if column.is_count or nodes is None:
            known = self._known.get(column)
            if known is None:
                count = str(self.structure.counts.get(column.path, 0))
                known = self._known[column] = column.look(count) if column.is_count else column.absent
            found = known
        elif column.first or len(nodes) == 1:
            text = filled(nodes[0], texts)
            found = column.looks.get(text) or column.look(text)
        else:
            found = []
            for node in nodes:
                text = filled(node, texts)
                found.append(column.looks.get(text) or column.look(text))
        looks[column] = found
        return found

    def _arrange(self, index: Index) -> None:
        """Find what the structure lets through: what is kept at its paths, and the columns with values to look up."""
        self._shelves = index.shelves
        self._arranged.clear()
        self._known.clear()
        present = self.structure.present
        buckets = (index.always, *(path.bucket for path in present))
        self._open = [bucket for bucket in buckets if bucket is not None and bucket.size]
        anchored = dict.fromkeys(column for path in present for column in path.anchored)
        blocks = [block for bucket in self._open for block in bucket.blocks]
        needed = dict.fromkeys(column for block in blocks for column in block.tables)
        self._direct = []
        self._indirect = []
        for column in anchored | needed:
            nodes = self._templates.get(column.path)
            if nodes is not None and (column.first or len(nodes) == 1) and isinstance(nodes[0], int):
                if not column.is_count:
                    self._direct.append((column.looks, column, nodes[0]))
            elif column in anchored:
                self._indirect.append(column)
