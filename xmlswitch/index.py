"""The index: conjunctions of many queries, found together.

Every conjunction is kept in one of three places, and moves when its place gets crowded:

- at an anchor (`columns`): a short list under a rare value;
- in a group's list (`paths`): the few conjunctions that require just these paths;
- in masks, by slot: the crowd. Groups let slots through, tables of values rule slots out, and what is left holds.

Where a conjunction is only necessary in this document (a branching path has several nodes; a part can't be indexed) the
query itself is evaluated, for those links only that nothing else has settled. Negative conditions rule nothing out
there: they are exact only where the paths are unique.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xmlswitch.atoms import Column, Conjunction, Linear, holds_on_absent
from xmlswitch.automaton import Automaton
from xmlswitch.columns import Anchor, ColumnEntry
from xmlswitch.entries import Entry, EntryKey, Literal
from xmlswitch.paths import Group, GroupTree, Journal, PathEntry
from xmlswitch.programs import Program, filled
from xmlswitch.tables import RowBudget

if TYPE_CHECKING:
    from xmlswitch.limits import IndexLimits
    from xmlswitch.paths import Accept
    from xmlswitch.query import Query
    from xmlswitch.values import Values
    from xmlswitch.walk import Findings


_MIN_ANCHORED = 12  # conditions on a column before looking its value up pays
_MAX_YOUNG = 8  # conjunctions that wait for the tables
_MIN_RESTING = 256
_MAX_NEW_GROUPS = 4096
_MANY_LINKS = 48  # beyond so many links, few slots are gone through one by one
_MAX_DIRECT = 3  # a group's members beyond so many share the work in the tables


@dataclass(slots=True)
class Structure:
    """What a document's structure alone settles: node counts, satisfied groups, and the mask they let through."""

    counts: dict[PathEntry, int]
    groups: list[Group]
    base: int


class Index:
    """`add` and `remove` conjunctions for links; `candidates` for a document."""

    def __init__(self, limits: IndexLimits) -> None:
        self.limits = limits
        self.automaton = Automaton(limits.max_states)
        self.journal = Journal()
        self.layout = 0  # changes when a walk would find other columns, or other paths worth counting
        self.standing = 0  # changes when a path's groups do
        self.budget = RowBudget(limits.max_row_bytes_floor)
        self.entries: dict[EntryKey, Entry] = {}
        self._paths: dict[Linear, PathEntry] = {}
        self._required: dict[frozenset[PathEntry], list[Any]] = {}  # each set of paths once, and how many have it
        self._serials = itertools.count(1)
        self._tree = GroupTree()
        self.new_groups: list[Group] = []  # of several paths, in the order they came; a new layout when it starts anew
        self._always = Group()  # of conjunctions that require no path
        self._by_slot: list[Entry | None] = []
        self._free: list[int] = []
        self._resting: list[int] = []
        self._young: dict[Entry, None] = {}
        self._link_bits: dict[int, int] = {}  # by the link's own bit
        self.linking = 0  # changes when a link gets or gives up a conjunction
        self._verify_bits = 0
        self._plain_bits = 0  # slots that nothing but their group's paths decides
        self.value_bits = 0  # slots with conditions on values or on absence
        self._counts: dict[ColumnEntry, None] = {}  # columns of count()
        self._on_absent: dict[ColumnEntry, None] = {}

    # --- conjunctions come and go ---

    def add(self, query: Query, link: int) -> None:
        self.linking += 1
        for conjunction in query.plan.conjunctions:
            key = _key(conjunction, query)
            entry = self.entries.get(key)
            if entry is None:
                entry = self.entries[key] = self._bound(key)
                self.budget.limit += self.limits.max_row_bytes_a_query
                self._place(entry)
            if entry.links >> link & 1:
                entry.again = entry.again or {}
                entry.again[link] = entry.again.get(link, 0) + 1
                continue
            entry.links |= 1 << link
            if entry.slot >= 0:
                self._link_bits[1 << link] = self._link_bits.get(1 << link, 0) | 1 << entry.slot

    def remove(self, query: Query, link: int) -> None:
        self.linking += 1
        for conjunction in query.plan.conjunctions:
            key = _key(conjunction, query)
            entry = self.entries[key]
            if entry.again and link in entry.again:
                entry.again[link] -= 1
                if not entry.again[link]:
                    del entry.again[link]
                continue
            entry.links &= ~(1 << link)
            if entry.slot >= 0:
                self._link_bits[1 << link] &= ~(1 << entry.slot)
                if not self._link_bits[1 << link]:
                    del self._link_bits[1 << link]
            if not entry.links:
                del self.entries[key]
                self._unplace(entry)
                self._release(entry)
                self.budget.limit -= self.limits.max_row_bytes_a_query

    def _bound(self, key: EntryKey) -> Entry:
        """A new entry, its atoms bound to paths and columns."""
        conjunction = key[0]
        literals: list[Literal] = []
        for atom, positive in sorted(conjunction.literals, key=lambda pair: not pair[1]):
            path = self._path(atom.path)
            column = self._column(path, atom.column) if atom.column is not None else None
            if column is not None and atom.column is not None and holds_on_absent(atom.column, atom.test):
                column.on_absent += 1
                self._on_absent[column] = None
            literals.append(Literal(path, column, atom.test, positive))
        required = frozenset(self._paths[a.path] for a, positive in conjunction.literals if positive and a.needs_path)
        unique = tuple(self._path(path) for path in sorted(conjunction.unique))
        shared = self._required.setdefault(required, [required, 0])
        shared[1] += 1
        entry = Entry(key, tuple(literals), unique, shared[0])
        for path in self._watched(entry):
            path.watched += 1
            self.layout += path.watched == 1
        return entry

    def _release(self, entry: Entry) -> None:
        shared = self._required[entry.required]
        shared[1] -= 1
        if not shared[1]:
            del self._required[entry.required]
        for path in self._watched(entry):
            path.watched -= 1
            self.layout += path.watched == 0
        for literal in entry.literals:
            column = literal.column
            if column is not None:
                if holds_on_absent(column.column, literal.test):
                    column.on_absent -= 1
                    if not column.on_absent:
                        del self._on_absent[column]
                self._release_column(column)
            self._release_path(literal.path)
        for path in entry.unique:
            self._release_path(path)

    def _watched(self, entry: Entry) -> Iterable[PathEntry]:
        """The paths that must be counted for this entry: where they may be several, and where only presence counts."""
        yield from entry.unique
        if not entry.is_structural:
            for literal in entry.literals:
                if literal.column is None or literal.column.is_count:
                    yield literal.path

    def _path(self, path: Linear) -> PathEntry:
        entry = self._paths.get(path)
        if entry is None:
            entry = self._paths[path] = PathEntry(path, next(self._serials), self.journal)
            self.automaton.add(entry)
            self.layout += 1
        entry.refs += 1
        return entry

    def _release_path(self, entry: PathEntry) -> None:
        entry.refs -= 1
        if not entry.refs:
            del self._paths[entry.path]
            self.automaton.remove(entry)
            self.layout += 1

    def _column(self, path: PathEntry, column: Column) -> ColumnEntry:
        entry = path.columns.get(column)
        if entry is None:
            entry = path.columns[column] = ColumnEntry(column, path, self.budget, self.limits.max_value_memo)
            path.sort_columns()
            if entry.is_count:
                self._counts[entry] = None
            self.layout += 1
        entry.refs += 1
        return entry

    def _release_column(self, entry: ColumnEntry) -> None:
        entry.refs -= 1
        if not entry.refs:
            path = entry.path
            entry.shed()
            entry.shed()  # looks, then rows
            del self.budget.holders[entry]
            del path.columns[entry.column]
            path.sort_columns()
            self._counts.pop(entry, None)
            self.layout += 1

    # --- places ---

    def _place(self, entry: Entry) -> None:
        closed: list[Anchor] = []
        best: Anchor | None = None
        for anchor in self._anchors(entry):
            if anchor.is_open:
                if best is None or _preference(anchor) < _preference(best):
                    best = anchor
            else:
                closed.append(anchor)
        if best is not None:
            best.column.keep(best)
            best.entries.append(entry)
            entry.anchor = best
            return
        for anchor in closed:
            anchor.spilled += 1
        entry.spilled = tuple(closed)
        self._place_in_group(entry)
        # An anchor that was just found full is closed now: its crowd goes where crowds cost least.
        for anchor in closed:
            waiting = list(anchor.entries)
            anchor.entries.clear()  # in place: columns remember the list
            for other in waiting:
                other.anchor = None
                self._place(other)

    def _anchors(self, entry: Entry) -> Iterable[Anchor]:
        for literal in entry.literals:
            if literal.column is None or literal.test is None or not literal.positive:
                continue
            if literal.column.refs < _MIN_ANCHORED or literal.column.is_count:
                continue
            anchor = literal.column.anchor(literal.test) if literal.path in entry.required else None
            if anchor is not None:
                yield anchor

    def _place_in_group(self, entry: Entry) -> None:
        group = self._group(entry.required)
        entry.group = group
        if entry.is_structural:
            self._to_masks(entry, group)
            return
        # Where every column is looked at for others anyway, one more in the tables costs a packet nothing.
        crowded = all(item.column is None or item.column.refs >= _MIN_ANCHORED for item in entry.literals)
        if not group.spilled and not crowded and len(group.direct) < _MAX_DIRECT:
            group.direct.append(entry)
            self.standing += len(group.direct) == 1
            return
        if group.direct:
            waiting, group.direct = group.direct, []
            self.standing += 1
            for other in waiting:
                self._defer(other)
        group.spilled = True
        self._defer(entry)

    def _defer(self, entry: Entry) -> None:
        """Tables take conjunctions in batches; until one is full its members are checked one by one."""
        entry.group = None
        self._young[entry] = None
        if len(self._young) < _MAX_YOUNG:
            return
        young, self._young = self._young, {}
        touched: set[ColumnEntry] = set()
        for other in young:
            group = self._group(other.required)
            group.spilled = True
            other.group = group
            self._to_masks(other, group)
            touched.update(literal.column for literal in other.literals if literal.column is not None)
        for column in touched:
            column.seal()

    def _group(self, paths: frozenset[PathEntry]) -> Group:
        if not paths:
            return self._always
        if len(paths) == 1:
            return next(iter(paths)).group
        group = self._tree.groups.get(paths)
        if group is None:
            group = Group(paths)
            self._tree.add(group)
            if len(self.new_groups) >= _MAX_NEW_GROUPS:
                self.new_groups.clear()
                self.layout += 1
            self.new_groups.append(group)
            for path in paths:
                path.many += 1
            self.standing += 1
        return group

    def _to_masks(self, entry: Entry, group: Group) -> None:
        if self._free:
            slot = heapq.heappop(self._free)
        else:
            slot = len(self._by_slot)
            self._by_slot.append(None)
        bit = 1 << slot
        entry.slot = slot
        self._by_slot[slot] = entry
        group.bits |= bit
        self.journal.note(group, slot, True)
        for literal in entry.literals:
            literal.predicate = None  # the tables decide from now on
            if literal.column is not None and literal.test is not None:
                literal.column.add(slot, literal.test, literal.positive)
            elif not literal.positive:
                literal.path.negative_bits |= bit
        if not entry.is_structural:
            self.value_bits |= bit
        elif not entry.unique and not entry.always_verified:
            self._plain_bits |= bit
        for path in entry.unique:
            path.unique_bits |= bit
        if entry.always_verified:
            self._verify_bits |= bit
        links = entry.links
        while links:
            link = links & -links
            self._link_bits[link] = self._link_bits.get(link, 0) | bit
            links ^= link

    def _unplace(self, entry: Entry) -> None:
        if entry.anchor is not None:
            anchor = entry.anchor
            anchor.entries.remove(entry)
            if not anchor.entries and not anchor.spilled:
                anchor.column.drop(anchor)
            return
        for anchor in entry.spilled:
            anchor.spilled -= 1
            if not anchor.entries and not anchor.spilled:
                anchor.column.drop(anchor)
        group = entry.group
        if group is None:
            del self._young[entry]
            return
        if entry.slot < 0:
            group.direct.remove(entry)
            self.standing += not group.direct
        else:
            self._out_of_masks(entry, group)
        if group.is_empty:
            group.spilled = False
            if len(group.paths) > 1:
                self._tree.remove(group)
                for path in group.paths:
                    path.many -= 1
                self.standing += 1

    def _out_of_masks(self, entry: Entry, group: Group) -> None:
        slot = entry.slot
        keep = ~(1 << slot)
        group.bits &= keep
        self.journal.note(group, slot, False)
        for literal in entry.literals:
            if literal.column is not None:
                literal.column.remove(slot)
            elif not literal.positive:
                literal.path.negative_bits &= keep
        for path in entry.unique:
            path.unique_bits &= keep
        self._verify_bits &= keep
        self.value_bits &= keep
        self._plain_bits &= keep
        self._by_slot[slot] = None
        self._resting.append(slot)
        if len(self._resting) > max(_MIN_RESTING, len(self._by_slot) // 8):
            self._wake_slots()

    def _wake_slots(self) -> None:
        """Rows still rule on slots that were given up; without rows the slots are good for others."""
        for path in self._paths.values():
            for column in path.columns.values():
                for table in column.tables:
                    table.drop_rows()
        for slot in self._resting:
            heapq.heappush(self._free, slot)
        self._resting.clear()

    # --- documents ---

    def structure(self, findings: Findings) -> Structure:
        """What the walk's hits settle."""
        counts: dict[PathEntry, int] = {}
        live: set[PathEntry] = set()
        journal, standing = self.journal, self.standing
        end = journal.end
        base = self._always.bits
        for accept, number in findings.hits.items():
            for path in accept.watched:
                counts[path] = counts.get(path, 0) + number
            if accept.standing != standing:
                accept.look_for_lists(standing)
            if accept.live:
                live.update(accept.live)
            mask = accept.mask
            base |= mask.known if mask.read == end else mask.bits(journal)
        groups = [self._always] if self._always.direct else []
        if live:
            groups += [path.group for path in live if path.group.direct]
            for group in self._tree.satisfied(live):
                groups.append(group)
                base |= group.bits
        return Structure(counts, groups, base)

    def settled_by(self, accept: Accept) -> int:
        """The links that match wherever a document has these paths, whatever else is in it."""
        if accept.linking != self.linking:
            accept.settled = self.links_of(accept.mask.bits(self.journal) & self._plain_bits)
            accept.linking = self.linking
        return accept.settled

    def by_counts(self, counts: Mapping[PathEntry, int]) -> tuple[int, int]:
        """The slots that only an evaluation can settle in a document with so many nodes on its paths, and those that
        want a path not to be there that is."""
        unsure, negative = self._verify_bits, 0
        for path, number in counts.items():
            negative |= path.negative_bits
            if number > 1:
                unsure |= path.unique_bits
        return unsure, negative

    def given(
        self, counts: Mapping[PathEntry, int], nodes: Mapping[PathEntry, Any]
    ) -> Iterable[tuple[ColumnEntry, str]]:
        """Columns whose text follows from structure alone: of counts, and of absent paths where absence can hold."""
        for column in self._counts:
            if column.tables:
                yield column, str(counts.get(column.path, 0))
        for column in self._on_absent:
            if column.tables and not column.is_count and column.path not in nodes:
                yield column, ""

    def satisfied_groups(self, present: set[PathEntry]) -> list[Group]:
        """All groups that a document with these paths lets through, the empty ones too."""
        return [self._always, *(path.group for path in present), *self._tree.satisfied(present)]

    def candidates(self, structure: Structure, values: Values[Any], wanted: int) -> tuple[int, list[Entry]]:
        """The links (of `wanted`) that are sure to match, and the entries whose queries must be evaluated to know.

        Cheapest first: what structure alone settles, then what tables rule out, then lists, and no further than until
        every wanted link has matched.
        """
        counts = structure.counts
        unsure, absent = self.by_counts(counts)
        matched = self.links_of(structure.base & ~self.value_bits & ~unsure, wanted)
        if matched == wanted:
            return matched, []
        lists: list[Iterable[Entry]] = []
        violated = negative = 0
        for column, texts in self._texts(structure, values):
            if len(texts) == 1:
                look = column.looks.get(texts[0])
                if look is None or look[4] != column.stamp:
                    look = column.look(texts[0])
                _, ruled_out, bad, anchored, _ = look
                lists += anchored
            else:
                ruled_out, bad = column.verdict(texts)
                column.anchored_by(texts, lists)
            violated |= ruled_out
            negative |= bad
        left = structure.base & ~violated
        matched |= self.links_of(left & self.value_bits & ~(unsure | negative | absent), wanted & ~matched)
        doubtful = left & unsure
        return self._settle(structure, values, wanted, matched, lists, doubtful)

    def _texts(self, structure: Structure, values: Values[Any]) -> Iterable[tuple[ColumnEntry, Sequence[str]]]:
        for path in values.nodes:
            for column in path.looked_at:
                yield column, values.texts(column)
        for column, text in self.given(structure.counts, values.nodes):
            yield column, (text,)

    def candidates_known(
        self, program: Program, texts: Sequence[str], values: Callable[[], Values[Any]], wanted: int
    ) -> tuple[int, list[Entry]]:
        """`candidates` for a packet of a known markup, with nothing worked out that the markup settles."""
        if program.read != self.journal.end or program.linked != self.linking:
            program.refresh(self)
        matched = program.settled & wanted
        if matched == wanted:
            return matched, []
        lists: list[Iterable[Entry]] = []
        violated = negative = 0
        sure = not program.unsure
        for looks, column, place in program.singles:
            look = looks.get(texts[place])
            if look is None or look[4] != column.stamp:
                look = column.look(texts[place])
            if sure:
                violated |= look[0]
            else:
                violated |= look[1]
                negative |= look[2]
            if look[3]:
                lists += look[3]
        for looks, column, template in program.others:
            text = filled(template, texts)
            look = looks.get(text)
            if look is None or look[4] != column.stamp:
                look = column.look(text)
            _, ruled_out, bad, anchored, _ = look
            violated |= ruled_out
            negative |= bad
            lists += anchored
        for column, templates in program.several:
            several = [filled(template, texts) for template in templates]
            ruled_out, bad = column.verdict(several)
            violated |= ruled_out
            negative |= bad
            column.anchored_by(several, lists)
        left = program.open & ~(violated | negative) if negative else program.open & ~violated
        matched |= self.links_of(left, wanted & ~matched)
        if matched == wanted:
            return matched, []
        return self._settle(program.structure, values(), wanted, matched, lists, program.doubtful & ~violated)

    def _settle(
        self,
        structure: Structure,
        values: Values[Any],
        wanted: int,
        matched: int,
        lists: list[Iterable[Entry]],
        doubtful: int,
    ) -> tuple[int, list[Entry]]:
        """Lists of conjunctions, one by one, and the slots that are left for evaluation."""
        pending: list[Entry] = []
        if matched == wanted:
            return matched, pending
        counts = structure.counts
        lists += [group.direct for group in structure.groups]
        lists.append(self._young)
        left = wanted & ~matched
        for entries in lists:
            for entry in entries:
                if not entry.links & left:
                    continue
                unsure = entry.always_verified
                for path in entry.unique:
                    unsure = unsure or counts.get(path, 0) > 1
                if entry.holds(values, counts, unsure):
                    if unsure:
                        pending.append(entry)
                    else:
                        left &= ~entry.links
                        if not left:
                            return wanted, []
        if doubtful:
            for slot in _slots(doubtful):
                found = self._by_slot[slot]
                if found is not None and found.links & left:
                    pending.append(found)
        return wanted & ~left, pending

    def links_of(self, slots: int, wanted: int = -1) -> int:
        """The links that own at least one of the slots: by link or by slot, whichever are fewer."""
        if not slots or not wanted:
            return 0
        matched = 0
        if len(self._link_bits) > _MANY_LINKS and slots.bit_count() * 4 < len(self._link_bits):
            for slot in _slots(slots):
                entry = self._by_slot[slot]
                if entry is not None:
                    matched |= entry.links
            return matched & wanted
        for bit, bits in self._link_bits.items():
            if bit & wanted and slots & bits:
                matched |= bit
        return matched


def _key(conjunction: Conjunction, query: Query) -> EntryKey:
    return conjunction, query if conjunction.verify or conjunction.unique else None


def _preference(anchor: Anchor) -> tuple[int, int, int]:
    """Equality before prefixes, long prefixes before short ones, few waiting before many."""
    prefix = anchor.test.op == "starts-with"
    return prefix, -len(str(anchor.test.operand)) if prefix else 0, len(anchor.entries)


def _slots(bits: int) -> Iterable[int]:
    """The set bits, lowest first."""
    text = bin(bits)[:1:-1]
    at = text.find("1")
    while at >= 0:
        yield at
        at = text.find("1", at + 1)
