"""What the index makes of one document: links that are sure to match, and entries that must be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xmlswitch.blocks import Block, Looks, Read, run, slots_of

if TYPE_CHECKING:
    from xmlswitch.answers import Answer
    from xmlswitch.buckets import Bucket, Single
    from xmlswitch.columns import ColumnEntry, Look
    from xmlswitch.entries import Entry, Needs
    from xmlswitch.index import Index
    from xmlswitch.paths import PathEntry
    from xmlswitch.walk import Findings

NO, SURE, UNSURE = 0, 1, 2


class Structure:
    """The watched paths that a document has, those with several nodes, and how many where somebody counts."""

    __slots__ = ("counts", "plural", "present")

    def __init__(self, findings: Findings) -> None:
        self.counts: dict[PathEntry, int] = {}
        self.plural: set[PathEntry] = set()
        self.present: set[PathEntry] = set()
        for accept, number in findings.hits.items():
            watched = accept.watched
            if watched:
                if number > 1:
                    self.plural.update(watched)
                else:
                    self.plural.update(self.present.intersection(watched))
                self.present.update(watched)
                for path in watched:
                    if path.counted:
                        self.counts[path] = self.counts.get(path, 0) + number

    def allows(self, needs: Needs) -> int:
        if not needs.required <= self.present:
            return NO
        if needs.verify or not needs.unique.isdisjoint(self.plural):
            return UNSURE
        return SURE if needs.absent.isdisjoint(self.present) else NO


class Texts:
    """The values of a document that was walked, read when somebody asks and kept for whoever asks next."""

    __slots__ = ("_nodes", "_structure", "_text", "looks")

    def __init__(
        self, nodes: Mapping[PathEntry, Sequence[Any]], text: Callable[[Any], str], structure: Structure
    ) -> None:
        self._nodes = nodes
        self._text = text
        self._structure = structure
        self.looks: Looks = {}

    def read(self, column: ColumnEntry) -> Look | list[Look]:
        found: Look | list[Look]
        nodes = self._nodes.get(column.path)
        if column.is_count:
            found = column.look(str(self._structure.counts.get(column.path, 0)))
        elif nodes is None:
            found = column.absent
        elif column.first or len(nodes) == 1:
            text = self._text(nodes[0])
            found = column.looks.get(text) or column.look(text)
        else:
            found = []
            for node in nodes:
                text = self._text(node)
                found.append(column.looks.get(text) or column.look(text))
        self.looks[column] = found
        return found


def match_walked(index: Index, structure: Structure, texts: Texts, answer: Answer) -> list[Entry]:
    """The entries that must be evaluated; what is sure goes into the answer."""
    buckets: dict[Bucket, None] = {index.always: None}
    for path in structure.present:
        if path.bucket is not None:
            buckets[path.bucket] = None
        for column in path.anchored:
            look = texts.read(column)
            for one in (look,) if isinstance(look, tuple) else look:
                for bucket in one[2]:
                    buckets[bucket] = None
    allowed = Allowed()
    for bucket in buckets:
        allowed.include(bucket, structure)
    return allowed.decide(texts.looks, texts.read, answer)


class Allowed:
    """What a document's structure allows of some buckets."""

    __slots__ = ("doubtful", "singles", "sure")

    def __init__(self) -> None:
        self.sure: list[tuple[Block, int]] = []
        self.doubtful: list[tuple[Block, int]] = []
        self.singles: list[tuple[Single, bool]] = []  # and whether it is unsure

    def include(self, bucket: Bucket, structure: Structure) -> None:
        for single in bucket.few:
            mode = structure.allows(single.needs)
            if mode != NO:
                self.singles.append((single, mode == UNSURE))
        for block in bucket.blocks:
            sure, unsure = block.allowed(structure.present, structure.plural)
            if sure:
                self.sure.append((block, sure))
            if unsure:
                self.doubtful.append((block, unsure))

    def join(self, other: Allowed) -> None:
        self.sure += other.sure
        self.doubtful += other.doubtful
        self.singles += other.singles

    def decide(self, looks: Looks, read: Read, answer: Answer) -> list[Entry]:
        """The entries that must be evaluated."""
        if answer.done:
            return []
        run(self.sure, looks, read, answer)
        pending: list[Entry] = []
        for single, unsure in self.singles:
            if single.holds(looks, read, unsure):
                if unsure:
                    pending.append(single.entry)
                else:
                    answer.all_of(single.entry.links)
        for block, slots in self.doubtful:
            found = slots_of(block.possible(slots, looks, read))
            pending += [entry for slot in found if (entry := block.entries[slot]) is not None]
        return [] if answer.done else pending
