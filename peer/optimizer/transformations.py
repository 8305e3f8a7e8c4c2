"""What can be changed within one optimization unit, after the paper's Table 2; composites are made of two primitives.

The unit of a peer i is i, its parents, its children and its grandchildren. In the text of a composite, `i` is the owner
of the unit, `j` and `k` are two children of i, `x` is a child of j, and `j.children` are all children of j:

    promote(x)      x moves from its parent to the parent of that
    demote(k, j)    k moves under its sibling j

Names stand for positions before the transformation. Steps of one peer are joined: what counts is from where to where it
moves, so a composite is a list of moves of one link each, and its benefit follows from theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random

from peer.optimizer.layout import Layout, Move

MAX_STEPS = 16
MAX_PAIRS = 150
"""Pairs of siblings that are tried in one unit; a sample of them if there are more, or a star would cost its square."""
_STEP = re.compile(r"\s*(promote|demote)\s*\(\s*([ijkx])(\.children)?\s*(?:,\s*([ijk])\s*)?\)\s*")


@dataclass(frozen=True, slots=True)
class Step:
    is_promotion: bool
    role: str
    of_children: bool
    """All children of the peer in this role, instead of itself."""
    under: str
    """For a demotion: the role of the sibling."""


@dataclass(frozen=True, slots=True)
class Transformation:
    name: str
    steps: tuple[Step, ...]
    is_symmetric: bool = False
    """j and k are interchangeable, so each pair is tried once."""

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(role for step in self.steps for role in (step.role, step.under) if role)


class TransformationError(ValueError):
    """A transformation that cannot be understood."""


def transformation(name: str, text: str, *, is_symmetric: bool = False) -> Transformation:
    """From steps separated by semicolons: `promote(x); demote(k, j)`."""
    steps = []
    for place, part in enumerate(text.split(";")):
        match = _STEP.fullmatch(part)
        if match is None or (match[1] == "promote") == bool(match[4]):
            raise TransformationError(
                f"step {place + 1} of {name}: expected promote(ROLE) or demote(ROLE, ROLE), got {part.strip()!r:.40}"
            )
        steps.append(Step(match[1] == "promote", match[2], bool(match[3]), match[4] or ""))
    if len(steps) > MAX_STEPS:
        raise TransformationError(f"{name}: at most {MAX_STEPS} steps, got {len(steps)}")
    return Transformation(name, tuple(steps), is_symmetric)


PROMOTE = transformation("promote", "promote(x)")
DEMOTE = transformation("demote", "demote(k, j)")
SUBTREE = transformation("subtree promotion", "promote(j.children)")
PARENT_CHILD_SWAP = transformation(
    "parent-child swap", "promote(j); demote(i, j); promote(i.children); demote(j.children, i)"
)
MIGRATION = transformation("migration", "promote(j.children); demote(j.children, k)")
SIBLING_SWAP = transformation(
    "sibling swap",
    "promote(j.children); demote(j.children, k); promote(k.children); demote(k.children, j)",
    is_symmetric=True,
)
EXCHANGE = transformation("exchange", "promote(x); demote(k, j)")
"""x takes a slot of k's parent, and k takes the slot that x leaves (rule O7). Slots near the roots are always taken, so
without it promotion stalls: 215.6 ms instead of 121.9."""

OF_THE_PAPER = (PROMOTE, DEMOTE, SUBTREE, PARENT_CHILD_SWAP, MIGRATION, SIBLING_SWAP)
BUILT_IN = (*OF_THE_PAPER, EXCHANGE)


def unit_of(layout: Layout, owner: int) -> set[int]:
    """The peers that a transformation of this unit can move or give another child."""
    found = {owner, *layout.parents[owner], *layout.children[owner]}
    for child in layout.children[owner]:
        found |= layout.children[child]
    return found


def candidates(
    layout: Layout, owner: int, kinds: Sequence[Transformation], rng: Random, most: int = MAX_PAIRS
) -> Iterator[list[Move]]:
    """Every transformation of these kinds in the unit of `owner`, as moves."""
    children = sorted(layout.children[owner])
    pairs = list(permutations(children, 2))
    if len(pairs) > most:
        pairs = rng.sample(pairs, most)
    for kind in kinds:
        for roles in _assignments(layout, owner, kind, children, pairs):
            moves = moves_of(layout, kind, roles)
            if moves:
                yield moves


def _assignments(
    layout: Layout, owner: int, kind: Transformation, children: Iterable[int], pairs: Iterable[tuple[int, int]]
) -> Iterator[dict[str, int]]:
    roles = kind.roles
    with_x = "x" in roles
    if "k" in roles:
        for j, k in pairs:
            if kind.is_symmetric and j > k:
                continue
            if not with_x:
                yield {"i": owner, "j": j, "k": k}
                continue
            for x in sorted(layout.children[j]):
                if x != k:
                    yield {"i": owner, "j": j, "k": k, "x": x}
        return
    for j in children:
        if with_x:
            for x in sorted(layout.children[j]):
                yield {"i": owner, "j": j, "x": x}
        else:
            yield {"i": owner, "j": j}


def moves_of(layout: Layout, kind: Transformation, roles: Mapping[str, int]) -> list[Move] | None:
    """The moves of a transformation with these peers in its roles; None if it is not possible, or changes nothing."""
    roles = {role: peer for role, peer in roles.items() if role in kind.roles or role in "ij"}
    first: dict[int, int] = {}  # whom each moving peer leaves
    now: dict[int, int] = {}  # under whom it is after the steps so far
    for step in kind.steps:
        peer = roles[step.role]
        if not step.of_children:
            if not _step(layout, step, peer, _usual_parent(step, roles), roles, first, now):
                return None
            continue
        for child in sorted(layout.children[peer]):
            if child not in roles.values():
                _step(layout, step, child, peer, roles, first, now)
    # A peer may be on its way through a place that it leaves again: only the ends of its way count.
    moves = [Move(x, first[x], new) for x, new in now.items() if new != first[x]]
    if any(move.new in layout.parents[move.peer] or move.new == move.peer for move in moves):
        moves = [m for m in moves if m.new not in layout.parents[m.peer] and m.new != m.peer]
        if len({*roles.values()} & {m.peer for m in moves}) < len({*roles.values()} & first.keys()):
            return None
    return moves or None


def _usual_parent(step: Step, roles: Mapping[str, int]) -> int | None:
    """Of a mesh's several parents, the one through which a role is in the unit."""
    return {"j": roles["i"], "k": roles["i"], "x": roles.get("j")}.get(step.role)


def _step(
    layout: Layout,
    step: Step,
    peer: int,
    parent: int | None,
    roles: Mapping[str, int],
    first: dict[int, int],
    now: dict[int, int],
) -> bool:
    """Take one step for one peer, on paper; False if there is nowhere to go."""
    here = now.get(peer, parent)
    if here is None:  # the owner itself, which moves below whichever of its parents j has come to
        here = now.get(roles["j"])
        if here is None or here not in layout.parents[peer]:
            return False
    if step.is_promotion:
        target = now.get(here)
        if target is None:
            is_in_unit = here in (roles.get("j"), roles.get("k"))
            target = roles["i"] if is_in_unit else _grandparent(layout, here, peer)
    else:
        target = roles[step.under]
    if target is None or target == peer:
        return False
    first.setdefault(peer, here)
    now[peer] = target
    return True


def _grandparent(layout: Layout, parent: int, peer: int) -> int | None:
    """Where a promotion from `parent` leads: the first of its parents that `peer` does not have already."""
    return next((p for p in layout.parents[parent] if p not in layout.parents[peer] and p != peer), None)
