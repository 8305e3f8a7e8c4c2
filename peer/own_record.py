"""What a peer says of itself in the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcp import EVERYTHING
from peer.coreconfig import Role
from peer.options import HostPort

if TYPE_CHECKING:
    from dht import PeerRecord
    from dht.shell.trio_directory import TrioDirectory
    from peer.mesh.events import PublishRecord
    from peer.node import Peer


def own_record(peer: Peer, record: PublishRecord, directory: TrioDirectory) -> PeerRecord:
    """The core's word about this peer as the directory's."""
    from dht import PeerRecord, QuerySummary
    from dht import Role as DhtRole

    role = {Role.ROOT: DhtRole.ROOT, Role.ROUTER: DhtRole.ROUTER, Role.LEAF: DhtRole.LEAF}[peer.options.role]
    token = peer.core.subscription
    return PeerRecord(
        stream=peer.options.stream,
        peer_id=peer.identity.peer_id,
        addresses=(public_address(peer.address, directory.observed_addresses()),),
        role=role,
        level=record.level,
        hops=record.hops,
        children=record.children,
        capacity=record.capacity,
        free_slots=record.free,
        free_repair_slots=record.free_for_repair,
        wanted_parents=record.parents_wanted,
        held_parents=record.parents_held,
        query=QuerySummary.of(peer.core.policy.query_of(token).canonical) if token != EVERYTHING else None,
        grant=peer.grant,
    )


def public_address(bound: HostPort, seen: list[HostPort]) -> HostPort:
    """Where others reach us: what we are bound to, or, bound to everything, where others saw us."""
    host, port = bound
    if host in ("0.0.0.0", "::"):
        return seen[0] if seen else ("127.0.0.1", port)
    return host, port
