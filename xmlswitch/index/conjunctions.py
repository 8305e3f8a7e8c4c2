"""Up to 2,048 conjunctions, decided together: one integer of slots for each path and each column that they ask for.

A conjunction's bit in these integers is its *slot*. Paths that are missing (or unwanted and there) rule slots out, then
the values of columns; what nothing rules out holds. Slots that were given up stay out of `bits` and are used again when
the block is rebuilt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from xmlswitch.index.answers import SHORT, Few, bits_of, mask_of
from xmlswitch.index.indexed import IndexedQuery
from xmlswitch.index.looks import Look
from xmlswitch.index.tables import Table
from xmlswitch.query.atoms import Conjunction, Test

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer

# Paths and columns are keys here, and nothing else is known of them.
PathKey = Any
ColumnKey = Any
# What was read of a document so far, one node's look or several's; a column that is missing is read when asked for.
Values = dict[ColumnKey, Look | list[Look]]
MAX_SLOTS = 2048
_MIN_ROOM = 64  # slots; doubled when they don't suffice
_MIN_DEAD = 64
_FIRST = SHORT + 1  # the size of an integer whose last bit is the first slot behind the links
_ALL_LINKS = (1 << SHORT) - 1
_FEW = 16  # slots whose links are reported one by one
_MAX_MASK_BYTES = 1 << 20  # of remembered links, per block


# What a conjunction is equal by: its atoms, and the query when the atoms alone don't decide.
EntryKey = tuple[Conjunction, IndexedQuery | None]


class Job(NamedTuple):
    """What values must still decide of a block: slots that the structure allows, and the columns that rule some out."""

    block: Block
    slots: int
    reach: int  # the links that the slots have, -1 where that is not known
    # Columns of one value:
    thresholds: list[tuple[ColumnKey, list[float], list[int]]]  # with nothing but thresholds
    equalities: list[tuple[ColumnKey, int | None, dict[str, int], int]]  # with nothing but equality, or prefixes
    remembered: list[tuple[ColumnKey, dict[str, int], Table]]  # with other tests, beside what they remember
    # Columns of several nodes, or of how many is not known:
    others: list[tuple[ColumnKey, Table]]


class Home(Protocol):
    """Where a conjunction waits: a bucket."""

    size: int

    def links_changed(self, entry: Entry) -> None: ...

    def remove(self, entry: Entry) -> None: ...


class Owned:
    """`owners`: the one link that wants it, or how often each of several does."""

    __slots__ = ("owners",)
    owners: int | dict[int, int] | None

    def take(self, link: int) -> None:
        if self.owners is None:
            self.owners = link
            return
        if isinstance(self.owners, int):
            self.owners = {self.owners: 1}
        self.owners[link] = self.owners.get(link, 0) + 1

    def drop(self, link: int) -> None:
        if isinstance(self.owners, dict):
            self.owners[link] -= 1
            if not self.owners[link]:
                del self.owners[link]
            if not self.owners:
                self.owners = None
        else:
            self.owners = None

    @property
    def links(self) -> Iterable[int]:
        if self.owners is None:
            return ()
        return (self.owners,) if isinstance(self.owners, int) else self.owners


class Entry(Owned):
    __slots__ = ("bucket", "conjunction", "place", "query", "slot")

    def __init__(self, conjunction: Conjunction, query: IndexedQuery | None) -> None:
        self.owners = None
        self.conjunction = conjunction
        self.query = query
        self.bucket: Home | None = None  # None for a path alone, which keeps it itself
        self.place: Block | None = None  # where in the bucket, None for one of its few
        self.slot = -1


class Needs(NamedTuple):
    """What a document's structure must be: paths that are there, paths that are not.

    Sure only where each path of `unique` has one node, and never when `verify`; elsewhere `absent` proves nothing.
    """

    required: frozenset[PathKey]
    absent: frozenset[PathKey]
    unique: frozenset[PathKey]
    verify: bool


class Bound(NamedTuple):
    """An atom on a value, bound to its column."""

    column: ColumnKey
    test: Test
    positive: bool


class Block:
    """Masks may name slots that were given up; `bits` does not."""

    __slots__ = (
        "_absent",
        "_are_shared",
        "_columns",
        "_full",
        "_masks",
        "_owners",
        "_paths",
        "_required",
        "_rests",
        "_settled",
        "_slots",
        "_unique",
        "_valued",
        "_verify",
        "bits",
        "dead",
        "entries",
        "rests",
        "tables",
    )

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []
        self.bits = 0
        self.dead = 0
        self._full = (1 << _MIN_ROOM) - 1
        self._required: dict[PathKey, int] = {}
        self._absent: dict[PathKey, int] = {}
        self._unique: dict[PathKey, int] = {}
        self._verify = 0
        self.tables: dict[ColumnKey, Table] = {}
        self._settled = True
        # Sets of the paths required, unique and absent: of two sets the smaller is gone through, of dictionaries not.
        self._paths: tuple[frozenset[PathKey], ...] = (frozenset(), frozenset(), frozenset())
        self._columns: list[tuple[ColumnKey, Table]] = []
        self._valued = 0  # slots with a test on a value
        self._owners: list[int | Iterable[int]] | None = None
        self._are_shared = False  # some slot has several owners
        self._masks: list[dict[int, int]] = []
        # For few links, by slot: all slots and links but those that go with it. Empty while some slot has none. They
        # are asked from the last slot down: what older ones know of later ones does not matter.
        self.rests: list[int] = []
        self._rests: list[int] = []
        self._slots: dict[int, int] = {}  # by the links that they have

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= MAX_SLOTS

    @property
    def is_sparse(self) -> bool:
        """Whether rebuilding it frees much."""
        return self.dead >= max(_MIN_DEAD, len(self.entries) // 4)

    def add(self, entry: Entry, needs: Needs, tests: Iterable[Bound]) -> None:
        slot = len(self.entries)
        bit = 1 << slot
        self.entries.append(entry)
        entry.slot = slot
        entry.place = self
        self.bits |= bit
        if bit > self._full:
            self._full |= self._full << slot
        for path in needs.required:
            self._required[path] = self._required.get(path, 0) | bit
        for path in needs.absent:
            self._absent[path] = self._absent.get(path, 0) | bit
        for path in needs.unique:
            self._unique[path] = self._unique.get(path, 0) | bit
        if needs.verify:
            self._verify |= bit
        for column, test, positive in tests:
            table = self.tables.get(column)
            if table is None:
                table = self.tables[column] = Table()
            table.add(slot, test, positive)
        self._settled = False
        self._owners = None
        self._masks = []
        self.rests = []

    def remove(self, entry: Entry) -> None:
        self.entries[entry.slot] = None
        self.bits &= ~(1 << entry.slot)
        self.dead += 1
        self._owners = None
        self._masks = []

    def take_all(self) -> list[Entry]:
        """Empty it, so that its entries can be added again."""
        left = [entry for entry in self.entries if entry is not None]
        self.entries.clear()
        for held in (self.tables, self._required, self._absent, self._unique):
            held.clear()
        self._settled = False
        self._full = (1 << _MIN_ROOM) - 1
        self.bits = self.dead = self._verify = 0
        self.links_changed()
        return left

    def links_changed(self) -> None:
        """Other links want an entry that is in it."""
        self._owners = None
        self._masks = []
        self.rests = []
        self._rests = []
        self._slots = {}

    # --- documents ---

    def allowed(self, present: AbstractSet[PathKey], plural: AbstractSet[PathKey]) -> tuple[int, int]:
        """The slots that a document's structure allows: those that are sure, and those that are only possible."""
        self._settle()
        required, unique, absent = self._paths
        left = self.bits & ~_union(self._required, required - present)
        if not left:
            return 0, 0
        unsure = self._verify
        if unique:
            unsure |= _union(self._unique, unique & plural)
        sure = left & ~unsure
        if absent:
            sure &= ~_union(self._absent, absent & present)
        return sure, left & unsure

    def job(
        self, slots: int, has_one_value: Callable[[ColumnKey], bool] | None = None, is_short: bool = False
    ) -> tuple[Job | None, int]:
        """What values must decide of these slots, and the slots of which they have nothing to say.

        A job that will be run many times is made for columns of which it is known whether they have one value, and for
        few links or many.
        """
        self._settle()
        valued = slots & self._valued
        if not valued:
            return None, slots
        if has_one_value is None:
            return Job(self, valued, -1, [], [], [], self._columns), slots ^ valued
        job = Job(self, valued, self.reach if is_short else -1, [], [], [], [])
        for column, table in self._columns:
            if not table.slots & valued:
                continue
            if not has_one_value(column):
                job.others.append((column, table))
            elif (ladder := table.flat_ladder) is not None:
                job.thresholds.append((column, *ladder))
            elif (equal := table.flat_tests) is not None:
                job.equalities.append((column, *equal))
            else:
                job.remembered.append((column, table.kept, table))
        return job, slots ^ valued

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            self._paths = frozenset(self._required), frozenset(self._unique), frozenset(self._absent)
            self._columns = [*self.tables.items()]
            self._valued = 0
            for table in self.tables.values():
                table.settle(self._full)
                self._valued |= table.slots

    def possible(self, slots: int, values: Values) -> int:
        """Of these slots, those no positive test rules out: negative ones prove nothing where paths branch."""
        self._settle()
        for column, table in self.tables.items():
            if table.slots & slots:
                look = values[column]
                slots &= ~table.many([look] if isinstance(look, tuple) else look, negative=False)
        return slots

    def links(self, slots: int) -> list[int]:
        """The links of these slots, some perhaps more than once."""
        owners = self._owners
        if owners is None:
            held = [None if entry is None else entry.owners for entry in self.entries]
            owners = self._owners = [() if owner is None else owner for owner in held]
            self._are_shared = any(entry is not None and not isinstance(entry.owners, int) for entry in self.entries)
        found = [*map(owners.__getitem__, bits_of(slots))]
        if not self._are_shared:
            return found  # type: ignore[return-value]
        links = [owner for owner in found if isinstance(owner, int)]
        for owner in found:
            links += () if isinstance(owner, int) else owner
        return links

    def mask(self, slots: int) -> int:
        """The same as a mask, of short ones when there are many: eight slots at a time, as they were found before."""
        masks = self._masks
        if not masks:
            masks = self._masks = [{} for _ in range(len(self.entries) // 8 + 1)]
        found = 0
        for place, byte in enumerate(slots.to_bytes(len(masks), "little")):
            if byte:
                part = masks[place].get(byte)
                if part is None:
                    part = mask_of(self.links(byte << place * 8))
                    if len(masks[place]) >= _MAX_MASK_BYTES * 8 // ((part.bit_length() or 1) * len(masks)):
                        masks[place].clear()
                    masks[place][byte] = part
                found |= part
        return found

    def find_rests(self) -> list[int]:
        """Have `rests` for all slots."""
        rests, held = self._rests, self._slots
        new = []
        for slot, entry in enumerate(self.entries[len(rests) :], len(rests)):
            links = 0 if entry is None else sum([1 << link for link in entry.links if link < SHORT])
            held[links] = held.get(links, 0) | 1 << slot
            new.append(links)
        full = self._full << SHORT | _ALL_LINKS
        shared = {links: full ^ (held[links] << SHORT | links) for links in set(new)}
        rests += [shared[links] for links in new]
        self.rests = rests
        return rests

    @property
    def reach(self) -> int:
        """The few links that it has, and perhaps some that it had."""
        if not self.rests:
            self.find_rests()
        return reduce(or_, self._slots, 0)


def _union(held: dict[PathKey, int], paths: Iterable[PathKey]) -> int:
    return reduce(or_, map(held.__getitem__, paths), 0)


def run(jobs: Iterable[Job], values: Values, answer: Answer) -> None:
    """Decide slots that the structure allows. Written flat: this is where a packet's time goes."""
    unmatched = answer.left
    is_short = answer.is_short
    for block, slots, reach, thresholds, equalities, remembered, others in jobs:
        if not reach & unmatched:
            continue
        for column, keys, rows in thresholds:
            slots &= rows[bisect_right(keys, values[column][3])]
        for column, length, held, rest in equalities:
            slots &= held.get(values[column][0][:length], 0) | rest  # type: ignore[arg-type]
        for column, kept, table in remembered:
            look = values[column]
            mask = kept.get(look[0])  # type: ignore[arg-type]
            slots &= table.keep(look) if mask is None else mask
        if not slots:
            continue
        for column, table in others:
            if table.slots & slots:
                slots &= table.keep(values[column])
        if not slots:
            continue
        if is_short:
            # One slot of a link is enough: it takes the link, and all others that the link has, with it.
            rests = block.rests or block.find_rests()
            unmatched |= slots << SHORT
            while (size := unmatched.bit_length()) > SHORT:
                unmatched &= rests[size - _FIRST]
            if not unmatched:
                break
        elif slots.bit_count() > _FEW and not answer.is_wide:
            answer.mask(block.mask(slots))
        else:
            answer.all_of(block.links(slots))
    if isinstance(answer, Few):
        answer.left = unmatched
        answer.done = not unmatched
