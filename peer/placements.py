"""How a peer finds its place in the mesh: the names that users give, and what they stand for. Light, as the options."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer.mesh.messages import PeerId
    from peer.mesh.placement.moves import Placement

PLACEMENTS = {
    "scored": "peer.optimizer.placement:GoalPlacement",
    "walk": "peer.mesh.placement.walk:WalkPlacement",
    "tree": "peer.mesh.placement.tree:TreePlacement",
}
"""How a peer finds its place in the mesh, by the name that users give (`selection`), and where it is written."""


def placement_of(
    selection: str, peer_id: PeerId, *, stream: str, tree_degree: Callable[[], int] = lambda: 3, is_leaf: bool = False
) -> Placement:
    """How this peer finds its place."""
    module, _, kind = PLACEMENTS[selection].partition(":")
    make = getattr(import_module(module), kind)
    if selection != "tree":
        placement: Placement = make()
        return placement
    from dht.places import place_of

    tree: Placement = make(peer_id, partial(place_of, stream), degree=tree_degree, is_leaf=is_leaf)
    return tree
