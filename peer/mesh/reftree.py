"""A reference tree over all places of a line, and who holds which node of it: the topology follows from the ids alone.

Theory of operation (docs/tree.md). A *place* is a number of 160 bits that a peer's id and the stream give. Places lie
on a line, and a peer owns the keys after its predecessor's place up to its own; the last one also owns the rest. Every
key is a node of one tree that all peers know without talking to each other. A peer holds the node of its *topmost* key,
the first one of its keys in breadth-first order. Its parent is the holder of the nearest node above that anybody holds.

A node is written as a path of child numbers from the root; its *rank* is the length of the path. For n parents, the
j-th is looked for at the parent's path with a public mask added digit by digit, so n parents of a peer are in different
parts of the tree, and every link goes to a lower rank: no belief about who holds what can close a cycle.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

PLACES = 1 << 160
MAX_ARITY = 16
MORE_MASKS = 2
"""When the j-th parent has no room: so many other masks are tried before going upwards."""

Path = tuple[int, ...]


class Span(NamedTuple):
    """The keys of a subtree: [low, high)."""

    low: int
    high: int
    parent_is_right: bool


class ReferenceTree:
    """Every key of [0, size) is one node.

    The property of section 3.2: of a node's children at most one lies outside of the interval between the node and its
    parent, beyond the node. That bounds the degree of hosts: by the tree's degree if it is binary, and with high
    probability otherwise.
    """

    def __init__(self, arity: int = 2, size: int = PLACES) -> None:
        if not 2 <= arity <= MAX_ARITY:
            raise ValueError(f"arity must be in 2..{MAX_ARITY}, got {arity}")
        if size < 1:
            raise ValueError(f"size must be positive, got {size}")
        self.arity = arity
        self.size = size

    @property
    def root(self) -> Span:
        return Span(0, self.size, True)

    def key(self, span: Span) -> int:
        """The key of the node above all others of the span."""
        low, high, parent_is_right = span
        if self.arity == 2:
            return (low + high) // 2
        share = (high - low) // self.arity
        return low + share if parent_is_right else high - 1 - share

    def children(self, span: Span) -> list[Span]:
        """The subtrees below the span's node, from left to right; some may be empty."""
        key = self.key(span)
        outer = Span(span.low, key, True) if span.parent_is_right else Span(key + 1, span.high, False)
        first, last = (key + 1, span.high) if span.parent_is_right else (span.low, key)
        inside = self.arity - 1
        cuts = [first + (last - first) * number // inside for number in range(inside + 1)]
        inner = [Span(cuts[i], cuts[i + 1], not span.parent_is_right) for i in range(inside)]
        return [outer, *inner] if span.parent_is_right else [*inner, outer]

    def span(self, path: Path) -> Span:
        span = self.root
        for number in path:
            span = self.children(span)[number]
        return span

    def topmost(self, first: int, last: int) -> Path:
        """Definition 2: the first key of [first, last] in breadth-first order, as a path."""
        if not 0 <= first <= last < self.size:
            raise ValueError(f"expected keys in 0..{self.size - 1}, got {first} to {last}")
        # Of each rank at most the few subtrees that the keys reach into: no key of a higher rank lies among them.
        rank: list[tuple[Path, Span]] = [((), self.root)]
        while True:
            for path, span in rank:
                if first <= self.key(span) <= last:
                    return path
            rank = [
                ((*path, number), child)
                for path, span in rank
                for number, child in enumerate(self.children(span))
                if child.low <= last and first < child.high and child.low < child.high
            ]


@lru_cache(maxsize=4_096)
def mask(rank: int, number: int, arity: int) -> Path:
    """What is added, digit by digit, to a path of this rank to find the parent of this number; nothing for 0.

    Distinct, and never all zeros for the others, as far as a rank has so many paths: zeros would send a whole rank to
    the parents that it has already.
    """
    if not number:
        return (0,) * rank
    dice = random.Random(f"skymesh mask v1/{arity}/{rank}/{number}")
    taken = {mask(rank, other, arity) for other in range(number)} if number < arity**rank else set()
    while True:
        digits = tuple(dice.randrange(arity) for _ in range(rank))
        if digits not in taken:
            return digits


class Holders:
    """Places and the nodes that they hold. A change moves the place itself and its two neighbors, and nobody else."""

    def __init__(self, tree: ReferenceTree, places: Iterable[int] = ()) -> None:
        self.tree = tree
        self.places = sorted(set(places))
        self.nodes: dict[int, Path] = {}
        """The node of each place."""
        self._holder: dict[Path, int] = {}
        self._settle(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def holder(self, path: Path) -> int | None:
        return self._holder.get(path)

    def keyset(self, place: int) -> tuple[int, int]:
        """Definition 1: the first and the last key that belong to a place."""
        at = bisect_left(self.places, place)
        first = self.places[at - 1] + 1 if at else 0
        return first, self.tree.size - 1 if place == self.places[-1] else place

    def add(self, place: int) -> None:
        if not 0 <= place < self.tree.size:
            raise ValueError(f"expected a place in 0..{self.tree.size - 1}, got {place}")
        if place in self.nodes:
            return
        insort(self.places, place)
        at = bisect_left(self.places, place)
        self._settle(self.places[max(0, at - 1) : at + 2])

    def remove(self, place: int) -> None:
        at = bisect_left(self.places, place)
        if at == len(self.places) or self.places[at] != place:
            raise ValueError(f"nobody is at {place}")
        del self.places[at]
        self._leave(place)
        self._settle(self.places[max(0, at - 1) : at + 1])

    def _settle(self, places: Sequence[int]) -> None:
        for place in places:
            if place in self.nodes:
                self._leave(place)
        for place in places:
            node = self.nodes[place] = self.tree.topmost(*self.keyset(place))
            self._holder[node] = place

    def _leave(self, place: int) -> None:
        node = self.nodes.pop(place)
        if self._holder.get(node) == place:
            del self._holder[node]

    # --- the paper's tree ---------------------------------------------------------------------------------------------

    def paths_above(self, node: Path, number: int = 0) -> Iterator[Path]:
        """Where the parent of this number is looked for: at its key, then above."""
        if not node:
            return
        digits = mask(len(node) - 1, number, self.tree.arity)
        above = tuple((digit + more) % self.tree.arity for digit, more in zip(node[:-1], digits, strict=True))
        for rank in range(len(above), -1, -1):
            yield above[:rank]

    def chain(self, node: Path, number: int = 0) -> Iterator[int]:
        """Whom to ask for the parent of this number, best first: the holder of its key, then of the keys above."""
        for path in self.paths_above(node, number):
            holder = self._holder.get(path)
            if holder is not None:
                yield holder

    def node_of_leaf(self, place: int) -> Path:
        """The node that somebody would hold at this place, who does not: leaves displace nobody."""
        at = bisect_left(self.places, place)
        first = self.places[at - 1] + 1 if at else 0
        return self.tree.topmost(min(first, place), place)

    def parent(self, place: int) -> int | None:
        """Definition 3, par(k): the nearest holder above; None at the top."""
        return next(self.chain(self.nodes[place]), None)

    def children(self, place: int) -> list[int]:
        """The nearest holders below, found depth first, as the place itself would find them."""
        found: list[int] = []
        self._scan(self.nodes[place], self.tree.span(self.nodes[place]), found)
        return found

    def _scan(self, path: Path, span: Span, found: list[int]) -> None:
        for number, child in enumerate(self.tree.children(span)):
            if child.low >= child.high:
                continue
            below = (*path, number)
            holder = self._holder.get(below)
            if holder is not None:
                found.append(holder)
            elif not self._is_owned_by_one(child):
                self._scan(below, child, found)

    def _is_owned_by_one(self, span: Span) -> bool:
        """Then nobody's topmost key lies below the node of the span."""
        at = bisect_left(self.places, span.low)
        return at >= len(self.places) - 1 or self.places[at] >= span.high - 1

    def neighbors(self, place: int) -> set[int]:
        parent = self.parent(place)
        return {*self.children(place), *(() if parent is None else (parent,))}


# --- n parents ----------------------------------------------------------------------------------------------------


def crown_of(root_slots: int, parents: int, arity: int = 2) -> int:
    """Ranks up to this one take all their parents among the stream's roots; -1: not even the first one can.

    The largest c for which everybody of rank 0 to c finds room there. Below 3 a mesh is easily cut: when 30 % die, all
    of it may be with 0 or 2, a quarter of it with 3.
    """
    crown, peers = -1, 0
    while True:
        peers += arity ** (crown + 1)
        if parents * peers > root_slots:
            return crown
        crown += 1


class Rules(NamedTuple):
    """What all peers of a stream agree on."""

    parents: int = 2
    capacity: int = 6
    """Children of a peer; at least 1.5 n times the arity, or masked children find no room."""
    crown: int = 3


def expected_parents(holders: Holders, rules: Rules, roots: Sequence[int]) -> dict[int, list[int]]:
    """The parents of every place, parents first: what a mesh whose peers know everything comes to.

    `roots` stand above the tree, as negative numbers: they are no places. A peer gives `arity` of its slots to children
    of the tree, and the rest to those that a mask sends.
    """
    if not roots:
        raise ValueError("a stream must have a root")
    up: dict[int, list[int]] = {}
    every: Counter[int] = Counter()
    of_tree: Counter[int] = Counter()
    for place in sorted(holders.nodes, key=lambda place: (len(holders.nodes[place]), place)):
        node = holders.nodes[place]
        chosen: list[int] = []
        for number in range(rules.parents) if len(node) > rules.crown else ():
            for holder in candidates_for(holders, node, number, rules.parents):
                spare = rules.capacity - holders.tree.arity
                is_full = every[holder] >= rules.capacity or (number and every[holder] - of_tree[holder] >= spare)
                if holder not in chosen and not is_full:
                    chosen.append(holder)
                    every[holder] += 1
                    of_tree[holder] += number == 0
                    break
        turn = sum(node)
        missing = min(rules.parents - len(chosen), len(roots))
        up[place] = chosen + [roots[(turn + i) % len(roots)] for i in range(missing)]
    return up


def candidates_for(holders: Holders, node: Path, number: int, parents: int) -> Iterator[int]:
    """The holder of its key; when that is full two more masks, then upwards, first on its own path, then the tree's."""
    own = list(holders.chain(node, number))
    yield from own[:1]
    if number:
        for more in range(1, MORE_MASKS + 1):
            yield from list(holders.chain(node, number + more * parents))[:1]
    yield from own[1:]
    if number:
        yield from holders.chain(node)


def depths(up: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The longest way from a root to each place. `up` lists parents before children."""
    longest: dict[int, int] = {}
    for place, parents in up.items():
        longest[place] = 1 + max((longest.get(parent, 0) for parent in parents), default=0)
    return longest
