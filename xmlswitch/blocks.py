"""Up to 2,048 conjunctions, decided together: one integer of slots for each path and each column that they ask for.

A conjunction's bit in these integers is its *slot*. Paths that are missing (or unwanted and there) rule slots out, then
the values of columns; what nothing rules out holds. Slots that were given up stay out of `bits` and are used again when
the block is made anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from xmlswitch.answers import mask_of
from xmlswitch.entries import Bound, Entry, Needs
from xmlswitch.tables import Table

if TYPE_CHECKING:
    from xmlswitch.answers import Answer
    from xmlswitch.columns import ColumnEntry, Look
    from xmlswitch.paths import PathEntry

# What was read of a document so far, one node's look or several's; a column that is missing is read when asked for.
Values = dict["ColumnEntry", "Look | list[Look]"]
# Slots that the structure allows, and what may rule some of them out: columns of one value with thresholds alone,
# columns of one value with other tests (beside them what they remember), and columns of several nodes.
Job = tuple[
    "Block",
    int,
    list[tuple["ColumnEntry", list[float], list[int]]],
    list[tuple["ColumnEntry", dict[str, int], Table]],
    list[tuple["ColumnEntry", Table]],
]
MAX_SLOTS = 2048
_MIN_ROOM = 64  # slots; doubled when they don't suffice
_MIN_DEAD = 64
_FEW = 16  # set bits that are found by taking one after the other
_MAX_MASK_BYTES = 1 << 20  # of links that are remembered, a block


class Block:
    """Masks may name slots that were given up; `bits` does not."""

    __slots__ = (
        "_absent",
        "_columns",
        "_full",
        "_masks",
        "_owners",
        "_paths",
        "_required",
        "_settled",
        "_unique",
        "_valued",
        "_verify",
        "bits",
        "dead",
        "entries",
        "groups",
        "tables",
    )

    def __init__(self) -> None:
        self.entries: list[Entry | None] = []
        self.bits = 0
        self.dead = 0
        self._full = (1 << _MIN_ROOM) - 1
        self._required: dict[PathEntry, int] = {}
        self._absent: dict[PathEntry, int] = {}
        self._unique: dict[PathEntry, int] = {}
        self._verify = 0
        self.tables: dict[ColumnEntry, Table] = {}
        self._settled = True
        # Sets of the paths required, unique and absent: of two sets the smaller is gone through, of dictionaries not.
        self._paths: tuple[frozenset[PathEntry], ...] = (frozenset(), frozenset(), frozenset())
        self._columns: list[tuple[ColumnEntry, Table]] = []
        self._valued = 0  # slots with a test on a value
        self._owners: list[int | dict[int, int] | None] | None = None
        self._masks: list[dict[int, int]] = []
        self.groups: list[tuple[int, int]] | None = None

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= MAX_SLOTS

    @property
    def is_sparse(self) -> bool:
        """Whether making it anew gives back much."""
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
        self.links_changed()

    def remove(self, entry: Entry) -> None:
        self.entries[entry.slot] = None
        self.bits &= ~(1 << entry.slot)
        self.dead += 1
        self.links_changed()

    def take_all(self) -> list[Entry]:
        """Empty it, for its entries to be added anew."""
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
        self._owners = self.groups = None
        self._masks = []

    # --- documents ---

    def allowed(self, present: AbstractSet[PathEntry], plural: AbstractSet[PathEntry]) -> tuple[int, int]:
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

    def job(self, slots: int, has_one_value: Callable[[ColumnEntry], bool] | None = None) -> tuple[Job | None, int]:
        """What values must decide of these slots, and the slots of which they have nothing to say.

        A job that will be run many times is made for columns of which it is known whether they have one value.
        """
        self._settle()
        valued = slots & self._valued
        if not valued:
            return None, slots
        if has_one_value is None:
            return (self, valued, [], [], self._columns), slots ^ valued
        job: Job = self, valued, [], [], []
        for column, table in self._columns:
            if not table.slots & valued:
                continue
            if not has_one_value(column):
                job[4].append((column, table))
            elif (flat := table.flat) is not None:
                job[2].append((column, *flat))
            else:
                job[3].append((column, table.kept, table))
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
            owners = self._owners = [None if entry is None else entry.owners for entry in self.entries]
        links: list[int] = []
        for slot in slots_of(slots):
            owner = owners[slot]
            if type(owner) is int:
                links.append(owner)
            elif owner:
                links += owner  # type: ignore[arg-type]
        return links

    def mask(self, slots: int) -> int:
        """The same as a mask, when there are many: eight slots at a time, as they were found before."""
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

    def group(self) -> list[tuple[int, int]]:
        """For each slot the mask of its links, and the slots that have another mask."""
        slots: dict[int, int] = {}
        masks = [0 if entry is None else mask_of(entry.links) for entry in self.entries]
        for slot, mask in enumerate(masks):
            slots[mask] = slots.get(mask, 0) | 1 << slot
        shared = {mask: (mask, self._full & ~same) for mask, same in slots.items()}
        self.groups = [shared[mask] for mask in masks]
        return self.groups

    @property
    def reach(self) -> int:
        """A mask of all links."""
        groups = self.groups if self.groups is not None else self.group()
        mask = 0
        for links in {links for links, _ in groups}:
            mask |= links
        return mask


def _union(held: dict[PathEntry, int], paths: Iterable[PathEntry]) -> int:
    return reduce(or_, map(held.__getitem__, paths), 0)


def run(jobs: Iterable[Job], values: Values, answer: Answer) -> None:
    """Decide slots that the structure allows. Written flat: this is where a packet's time goes."""
    for block, slots, ladders, remembered, others in jobs:
        for column, keys, rows in ladders:  # as in `left`
            slots &= rows[bisect_right(keys, values[column][3])]
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
        if not answer.is_short:
            if slots.bit_count() > _FEW:
                answer.mask(block.mask(slots))
            else:
                answer.all_of(block.links(slots))
            continue
        groups = block.groups or block.group()
        found = 0
        while slots:  # one slot of a link is enough: all others that it has go with it
            links, rest = groups[slots.bit_length() - 1]
            found |= links
            slots &= rest
        answer.mask(found)
        if answer.done:
            return


def left(job: Job, values: Values) -> int:
    """The slots of a job that no value rules out."""
    _, slots, ladders, remembered, others = job
    for column, keys, rows in ladders:
        slots &= rows[bisect_right(keys, values[column][3])]
    for column, _, table in remembered:
        slots &= table.keep(values[column])
    for column, table in others:
        if table.slots & slots:
            slots &= table.keep(values[column])
    return slots


def slots_of(bits: int) -> list[int]:
    """The set bits."""
    found: list[int] = []
    if bits.bit_count() > _FEW:
        text = bin(bits)[:1:-1]
        at = text.find("1")
        while at >= 0:
            found.append(at)
            at = text.find("1", at + 1)
        return found
    while bits:  # from the top: the integer gets shorter as it goes
        at = bits.bit_length() - 1
        found.append(at)
        bits ^= 1 << at
    return found
