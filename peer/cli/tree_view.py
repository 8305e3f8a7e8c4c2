"""`status --tree`: the reference tree of the listed peers, and whether each has the parents that it gives.

The expected parents follow from the list of ids alone, as every peer computes them; the tree's degree, capacities and
the number of parents are those that most peers have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dht.places import place_of
from peer.cli.mesh_table import printable, short_id
from peer.mesh.reftree import MAX_ARITY, Holders, Path, ReferenceTree, Rules, crown_of, expected_parents
from peer.observe.crawl import MeshView, PeerView


@dataclass(frozen=True, slots=True)
class Placed:
    """One peer of the tree."""

    peer: PeerView
    node: Path
    expected: tuple[bytes, ...]

    @property
    def is_in_place(self) -> bool:
        """With fewer roots than parents wanted, the tree gives too few: others may stand in for those."""
        return set(self.expected) <= set(self.peer.parents)


def degree_of(view: MeshView, listed: Collection[bytes]) -> int:
    """The degree of the tree that most of the listed peers say they follow. A peer may say anything."""
    said = [view.peers[peer_id].tree_degree for peer_id in listed if peer_id in view.peers]
    return _most([degree for degree in said if degree is not None and 3 <= degree <= MAX_ARITY + 1], 3)


def placed(view: MeshView, listed: Collection[bytes], degree: int) -> list[Placed]:
    """Those of the listed peers that answer, from the top."""
    routers = {place_of(view.stream, peer_id): view.peers[peer_id] for peer_id in listed if peer_id in view.peers}
    routers = {place: peer for place, peer in routers.items() if peer.answered}
    roots = sorted((root for root in view.roots() if root.answered), key=lambda root: root.peer_id)
    if not routers or not roots:
        return []
    parents = _most([peer.parents_wanted for peer in routers.values()], 2)
    arity = degree - 1
    slots = sum((root.capacity or 0) * 3 // 4 for root in roots)
    rules = Rules(parents, _most([peer.capacity for peer in routers.values()], 6), crown_of(slots, parents, arity))
    names = {-1 - number: root.peer_id for number, root in enumerate(roots)}
    holders = Holders(ReferenceTree(arity), routers)
    up = expected_parents(holders, rules, sorted(names, reverse=True))
    found = []
    for place, expected in up.items():
        ids = tuple(names[other] if other < 0 else routers[other].peer_id for other in expected)
        found.append(Placed(routers[place], holders.nodes[place], ids))
    return found


def as_text(view: MeshView, found: Sequence[Placed], *, only_expected: bool) -> str:
    if not found:
        return f"{view.stream}: no peer is in the reference tree (skymesh join --selection tree)"
    lines = []
    for one in found:
        expected = ", ".join(_name(view, peer_id) for peer_id in one.expected)
        line = f"{'  ' * len(one.node)}{_name(view, one.peer.peer_id)}: {expected}"
        if not only_expected and not one.is_in_place:
            line += f"  (has {', '.join(_name(view, peer_id) for peer_id in one.peer.parents) or 'none'})"
        lines.append(line)
    if not only_expected:
        right = sum(one.is_in_place for one in found)
        lines.insert(0, f"{view.stream}: {right} of {len(found)} peers have the parents that the tree gives them")
    return "\n".join(lines)


def as_rows(found: Sequence[Placed]) -> list[dict[str, Any]]:
    from dht import id_text

    return [
        {
            "peer": id_text(one.peer.peer_id),
            "name": one.peer.name,
            "rank": len(one.node),
            "node": list(one.node),
            "parents": sorted(id_text(peer_id) for peer_id in one.peer.parents),
            "expected": sorted(id_text(peer_id) for peer_id in one.expected),
            "in_place": one.is_in_place,
        }
        for one in found
    ]


def _most(values: Sequence[int | None], default: int) -> int:
    known = Counter(value for value in values if value)
    return known.most_common(1)[0][0] if known else default


def _name(view: MeshView, peer_id: bytes) -> str:
    peer = view.peers.get(peer_id)
    return (printable(peer.name) if peer is not None else "") or short_id(peer_id)
