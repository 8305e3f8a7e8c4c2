"""What the index makes of one document: links that are sure to match, and entries that must be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xmlswitch.index.answers import bits_of, mask_of
from xmlswitch.index.budget import FEW_LOOKS, LOOK_WORK, NODE_WORK, Work
from xmlswitch.index.conjunctions import Block, Job, Values, run
from xmlswitch.query.evaluate import string_value

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.buckets import Bucket, Single
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.conjunctions import Entry, Needs
    from xmlswitch.index.index import Index
    from xmlswitch.index.looks import Look
    from xmlswitch.index.paths import PathEntry
    from xmlswitch.match.walk import Findings

NO, SURE, UNSURE = 0, 1, 2
_MAX_KNOWN = 2048  # buckets, and needs, of which a structure knows what it allows


class Structure:
    """The watched paths that a document has, those with several nodes, and how many where somebody counts.

    One that `lasts` stands for many documents, and knows what it allows of buckets: with many links, and with few.
    """

    __slots__ = ("_allowed", "_lasts", "counts", "parts", "plural", "present", "shelved")

    def __init__(self, findings: Findings, lasts: bool = False) -> None:
        self._lasts = lasts
        self._allowed: dict[Needs, int] = {}
        self.counts: dict[PathEntry, int] = {}
        self.plural: set[PathEntry] = set()
        self.present: set[PathEntry] = set()
        self.shelved: set[PathEntry] = set()  # paths at which conjunctions wait
        self.parts: tuple[dict[Bucket, Part], dict[Bucket, Part]] = {}, {}
        for accept, number in findings.ends.items():
            watched = accept.watched
            if watched:
                if number > 1:
                    self.plural.update(watched)
                else:
                    self.plural.update(self.present.intersection(watched))
                self.present.update(watched)
                self.shelved.update(accept.shelved)
                for path in accept.counted:
                    self.counts[path] = self.counts.get(path, 0) + number

    @property
    def key(self) -> Hashable:
        """What it is equal by."""
        return frozenset(self.present), frozenset(self.plural), frozenset(self.counts.items())

    def has_one_value(self, column: ColumnEntry) -> bool:
        """Whether a column is one look, not a list of looks."""
        path = column.path
        return column.first or column.is_count or (path in self.present and path not in self.plural)

    def allows(self, needs: Needs) -> int:
        if not self._lasts:
            return self._mode(needs)
        mode = self._allowed.get(needs)
        if mode is None:
            if len(self._allowed) >= _MAX_KNOWN:
                self._allowed.clear()
            mode = self._allowed[needs] = self._mode(needs)
        return mode

    def _mode(self, needs: Needs) -> int:
        required, absent, unique, verify = needs
        if not required <= self.present:
            return NO
        if verify or not unique.isdisjoint(self.plural):
            return UNSURE
        return SURE if absent.isdisjoint(self.present) else NO

    def part(self, bucket: Bucket, is_short: bool) -> Part:
        """What it allows of a bucket."""
        known = self.parts[is_short]
        if len(known) >= _MAX_KNOWN:
            known.clear()
        part = known[bucket] = Part(bucket, self, is_short, once=not self._lasts)
        return part


class DocumentTexts:
    """The string-values of a document's nodes, each put together once; what is read is charged."""

    __slots__ = ("_known", "_work")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._known: dict[Any, str] = {}

    def text(self, node: Any) -> str:
        if isinstance(node, str):
            return node
        if len(node) == 0:
            return node.text or ""
        text = self._known.get(node)
        if text is None:
            text = self._known[node] = string_value(node)
            self._work.charge(len(text) + NODE_WORK)
        return text


class Texts(dict["ColumnEntry", "Look | list[Look]"]):
    """The values of a document that was walked, read on demand and kept."""

    __slots__ = ("_nodes", "_structure", "_text")

    def __init__(
        self, nodes: Mapping[PathEntry, Sequence[Any]], text: Callable[[Any], str], structure: Structure
    ) -> None:
        self._nodes = nodes
        self._text = text
        self._structure = structure

    def __missing__(self, column: ColumnEntry) -> Look | list[Look]:
        found: Look | list[Look]
        nodes = self._nodes.get(column.path) if not column.is_muted else None
        if column.is_count:
            found = column.look(str(self._structure.counts.get(column.path, 0)))
        elif nodes is None:
            found = column.absent
        elif column.first or len(nodes) == 1:
            text = self._text(nodes[0])
            found = column.looks.get(text) or column.look(text)
        else:
            found = []
            if len(nodes) > FEW_LOOKS:
                column.work.charge_column(column, LOOK_WORK * len(nodes))
            for node in nodes:
                text = self._text(node)
                found.append(column.looks.get(text) or column.look(text))
        self[column] = found
        return found

    def find_awaited(self, column: ColumnEntry, awaited: dict[str, Bucket], found: dict[Bucket, None]) -> None:
        """The buckets that wait for one of the texts, where a text itself is all that counts."""
        if column.is_muted:
            return
        nodes = self._nodes.get(column.path, ())
        if len(nodes) > FEW_LOOKS:
            column.work.charge_column(column, LOOK_WORK * len(nodes))
        for node in nodes[:1] if column.first else nodes:
            bucket = awaited.get(self._text(node))
            if bucket is not None:
                found[bucket] = None


def match_walked(index: Index, structure: Structure, texts: Texts, answer: Answer) -> list[Entry]:
    """The entries that must be evaluated; what is sure goes into the answer."""
    buckets: dict[Bucket, None] = {index.always: None}
    for path in structure.shelved:
        if path.bucket is not None:
            buckets[path.bucket] = None
        for column in path.anchored:
            if column.awaited is not None and column not in texts:
                texts.find_awaited(column, column.awaited, buckets)
                continue
            look = texts[column]
            for one in (look,) if isinstance(look, tuple) else look:
                for bucket in one[2]:
                    buckets[bucket] = None
    singles: list[Single] = []
    doubtful: list[Part] = []
    decide(buckets, structure, texts, answer, singles, doubtful)
    return undecided(singles, doubtful, structure, texts, answer)


class Part:
    """What a document's structure allows of a bucket's blocks, at a version of the bucket.

    `links` are those that the structure alone decides, as the answer takes them: a mask for few links, else a list.
    """

    __slots__ = ("doubtful", "jobs", "links", "version")

    def __init__(self, bucket: Bucket, structure: Structure, is_short: bool, once: bool) -> None:
        has_one_value = None if once else structure.has_one_value
        self.version = bucket.version
        self.jobs: list[Job] = []
        self.doubtful: list[tuple[Block, int]] = []
        links: list[int] = []
        for block in bucket.blocks:
            sure, unsure = block.allowed(structure.present, structure.plural)
            if sure:
                job, settled = block.job(sure, has_one_value, is_short)
                if job is not None:
                    self.jobs.append(job)
                if settled:
                    links += block.links(settled)
            if unsure:
                self.doubtful.append((block, unsure))
        self.links: int | list[int] = mask_of(links) if is_short else links


def decide(
    buckets: Iterable[Bucket],
    structure: Structure,
    values: Values,
    answer: Answer,
    singles: list[Single],
    doubtful: list[Part],
) -> None:
    """Tell the answer what is sure of these buckets' blocks; what is not decided here is put into both lists."""
    parts = structure.parts[answer.is_short]
    jobs: list[Job] = []
    for bucket in buckets:
        if not bucket.blocks:  # not worth remembering: there are many such buckets, and little in them
            singles += bucket.few
            continue
        part = parts.get(bucket)
        if part is None or part.version != bucket.version:
            part = structure.part(bucket, answer.is_short)
        jobs += part.jobs
        if part.links:
            answer.take(part.links)
        if part.doubtful:
            doubtful.append(part)
    if jobs:
        run(jobs, values, answer)


def undecided(
    singles: list[Single], doubtful: list[Part], structure: Structure, values: Values, answer: Answer
) -> list[Entry]:
    """Tell the answer what is sure of these; the entries that must be evaluated."""
    pending: list[Entry] = []
    unmatched = answer.left
    present = structure.present
    for single in singles:
        entry = single.entry
        owners = entry.owners
        if type(owners) is int and not unmatched >> owners & 1:  # most have one owner, found already
            continue
        if not single.needs.required <= present:
            continue
        mode = SURE if single.is_free else structure.allows(single.needs)
        if mode != NO and single.holds(values, mode == UNSURE):
            if mode == UNSURE:
                pending.append(entry)
            else:
                answer.all_of(entry.links)
                unmatched = answer.left
    if answer.done:
        return []
    for part in doubtful:
        for block, slots in part.doubtful:
            found = bits_of(block.possible(slots, values))
            pending += [held for slot in found if (held := block.entries[slot]) is not None]
    return pending
