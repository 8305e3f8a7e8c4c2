"""Whom to send elsewhere when every slot is taken: fairness between hosts first, then room for repairs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dcp.admission import network_of
from dcp.links.address import is_loopback

if TYPE_CHECKING:
    from peer.mesh.hostport import HostPort
    from peer.mesh.messages import Join
    from peer.mesh.placement.neighbourhood import ChildView, Neighbourhood


def child_to_move(around: Neighbourhood, join: Join, address: HostPort) -> ChildView | None:
    """A child of a host that has more than its share, or for a repair one that finds a new place more easily."""
    child = crowding(around, address)
    if child is None and around.config.makes_room and join.has_children:
        child = movable(around, join, address)
    return child


def _slots_by_host(around: Neighbourhood) -> Counter[bytes]:
    return Counter(network_of(child.address[0]) for child in around.children)


def movable(around: Neighbourhood, join: Join, address: HostPort) -> ChildView | None:
    """The child to move for the sake of a repair.

    Only a child that keeps more parents than the joiner has, and that finds a new place more easily: one without
    children (it can go anywhere), else one at a higher level than the joiner. A moved child may make another move,
    but levels rise along such a chain, so it ends.

    A joiner can claim to have children at no cost. So it never moves a child of another host that holds no more slots
    here than the joiner's own: one host gains at most one slot by it, however often it asks. By moving the only child
    of its own host it gains none; with more of them a liar behind an address translator could push its neighbours off.
    On loopback nobody is behind a translator, and a mesh on one machine could not be repaired otherwise.
    """
    held = _slots_by_host(around)
    host = network_of(address[0])

    def may_lose_one(other: bytes) -> bool:
        return held[other] > held[host] or (other == host and (held[host] == 1 or is_loopback(address)))

    able = [
        child
        for child in around.children
        if may_lose_one(network_of(child.address[0]))
        and child.report is not None
        and not child.report.is_leaving
        and child.report.parents > max(1, join.parents)
        and (child.report.children == 0 or child.report.level > join.level)
    ]
    return max(able, key=lambda c: (c.is_childless, c.report.level if c.report else 0, c.link), default=None)


def crowding(around: Neighbourhood, address: HostPort) -> ChildView | None:
    """The newest child of the host that holds most slots, if that is more than one host's share and more than the
    newcomer's host would have. So a host that opens many links competes with itself.
    """
    held = _slots_by_host(around)
    most, count = max(held.items(), key=lambda item: item[1], default=(b"", 0))
    if count <= max(around.config.host_share, held[network_of(address[0])] + 1):
        return None
    return max((c for c in around.children if network_of(c.address[0]) == most), key=lambda c: c.link)
