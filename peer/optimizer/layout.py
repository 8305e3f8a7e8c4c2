"""A whole mesh as a value: who has whom as parents, with levels. Peers are numbers; the first ones are the roots.

A transformation is an ordered list of moves of one parent link each. Every move is checked by rules R2 to R5 of
`peer.mesh.levels` at its turn, so whatever prefix of a list is carried out leaves a legal mesh (rule O1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from peer.mesh.levels import ROOT_LEVEL, LevelRules

UNREACHED = 255
"""Hops of a peer without a path to a root."""


class Move(NamedTuple):
    """`peer` takes `new` as a parent, then gives up `old`; None for a peer that lacks a parent."""

    peer: int
    old: int | None
    new: int


class Saved(NamedTuple):
    peer: int
    parents: list[int]
    children: set[int]
    level: int


class Layout:
    """`capacity` is by peer, `wanted` how many parents; `refused` counts what levels forbade, `fell` R5's falls."""

    def __init__(
        self, *, roots: int, capacity: Sequence[int], wanted: int, rng: Random, rules: LevelRules | None = None
    ) -> None:
        self.roots, self.size, self.wanted = roots, len(capacity), wanted
        self.capacity = list(capacity)
        self.rng, self.rules = rng, rules or LevelRules()
        self.parents: list[list[int]] = [[] for _ in capacity]
        self.children: list[set[int]] = [set() for _ in capacity]
        self.levels = [ROOT_LEVEL] * self.size
        self.refused = self.fell = 0

    @property
    def peers(self) -> range:
        """All but the roots."""
        return range(self.roots, self.size)

    def is_root(self, peer: int) -> bool:
        return peer < self.roots

    # Changes

    def levels_for(self, peer: int, new: int) -> dict[int, int] | None:
        """The levels to set before `peer` may stand under `new`; None if no rule allows it."""
        if not self.parents[new] and not self.is_root(new):
            return None  # R7
        levels, above = self.levels, self.levels[new]
        if not self.children[peer]:  # R4: nothing stands below it, so it may rise
            if above < levels[peer] and self.parents[peer]:
                return {}
            return {peer: self.rules.place([*(levels[p] for p in self.parents[peer]), above], self.rng)}
        if self.rules.may_accept(above, levels[peer]):  # R2 and R3, in one instant
            return {}
        floor = max((levels[p] for p in self.parents[new]), default=None)
        if floor is None or levels[peer] - floor < 2:
            return None
        return {new: (floor + levels[peer]) // 2}  # R5: its children only see more room

    def apply(self, moves: Iterable[Move]) -> list[Saved] | None:
        """All moves in their order, or none. Returns what `undo` needs, or None if one of them is not allowed."""
        moves = list(moves)
        touched = {peer for move in moves for peer in move if peer is not None}
        saved = [Saved(y, list(self.parents[y]), set(self.children[y]), self.levels[y]) for y in touched]
        for peer, old, new in moves:
            allowed = (
                peer != new and peer >= self.roots and new not in self.parents[peer]
                and (old is None or old in self.parents[peer])
            )  # fmt: skip
            levels = self.levels_for(peer, new) if allowed else None
            if levels is None:
                self.refused += allowed
                self.undo(saved)
                return None
            for other, level in levels.items():
                self.fell += level < self.levels[other]
                self.levels[other] = level
            if old is not None:
                self.parents[peer].remove(old)
                self.children[old].discard(peer)
            self.parents[peer].append(new)
            self.children[new].add(peer)
        return saved

    def undo(self, saved: Iterable[Saved]) -> None:
        for peer, parents, children, level in saved:
            self.parents[peer], self.children[peer], self.levels[peer] = list(parents), set(children), level

    def whole(self) -> list[Saved]:
        """Everything, for `undo`."""
        return [Saved(y, list(self.parents[y]), set(self.children[y]), self.levels[y]) for y in range(self.size)]

    def remove(self, peer: int) -> list[int]:
        """It died: returns the children that lost it as a parent."""
        orphans = sorted(self.children[peer])
        for parent in self.parents[peer]:
            self.children[parent].discard(peer)
        for child in orphans:
            self.parents[child].remove(peer)
        self.parents[peer], self.children[peer], self.levels[peer] = [], set(), ROOT_LEVEL
        return orphans

    # What it is like

    def has_room(self, moves: Iterable[Move]) -> bool:
        """After these moves: has nobody more children than it can have?"""
        return all(len(self.children[move.new]) <= self.capacity[move.new] for move in moves)

    def order(self) -> list[int]:
        """Parents before children, without trusting levels; shorter than the mesh if there is a cycle."""
        left = [len(parents) for parents in self.parents]
        found = [peer for peer, count in enumerate(left) if not count]
        children = self.children
        for peer in found:
            for child in children[peer]:
                left[child] -= 1
                if not left[child]:
                    found.append(child)
        return found

    def hops(self, order: Sequence[int] | None = None) -> list[int]:
        """Of the longest path to a root."""
        depth = [0] * self.size
        parents = self.parents
        for peer in order or self.order():
            above = parents[peer]
            if above:
                deepest = depth[above[0]]
                for parent in above[1:]:
                    if depth[parent] > deepest:
                        deepest = depth[parent]
                depth[peer] = deepest + 1
            elif peer >= self.roots:
                depth[peer] = UNREACHED
        return depth

    def heights(self, order: Sequence[int] | None = None) -> list[int]:
        """Links down to the farthest peer below."""
        height = [0] * self.size
        for peer in reversed(order or self.order()):
            for parent in self.parents[peer]:
                height[parent] = max(height[parent], height[peer] + 1)
        return height

    def violations(self) -> int:
        """Links on which the order of levels is broken."""
        return sum(self.levels[p] >= self.levels[x] for x in self.peers for p in self.parents[x])
