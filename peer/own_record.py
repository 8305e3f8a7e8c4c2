"""What a peer says of itself in the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcp import EVERYTHING
from peer.mesh.hostport import HostPort
from peer.role import Role

if TYPE_CHECKING:
    from dht import Grant, PeerId, PeerRecord
    from peer.core import PeerCore
    from peer.mesh.events import PublishRecord


def own_record(
    record: PublishRecord, core: PeerCore, stream: str, peer_id: PeerId, address: HostPort, grant: Grant | None
) -> PeerRecord:
    """What the mesh machine wants to be published, as the directory's record."""
    from dht import PeerRecord, QuerySummary
    from dht import Role as DhtRole

    role = {Role.ROOT: DhtRole.ROOT, Role.ROUTER: DhtRole.ROUTER, Role.LEAF: DhtRole.LEAF}[core.config.role]
    token = core.subscription
    return PeerRecord(
        stream=stream,
        peer_id=peer_id,
        addresses=(address,),
        role=role,
        level=record.level,
        hops=record.hops,
        children=record.children,
        capacity=record.capacity,
        free_slots=record.free,
        free_repair_slots=record.free_for_repair,
        wanted_parents=record.parents_wanted,
        held_parents=record.parents_held,
        query=QuerySummary.of(core.policy.text_of(token)) if token != EVERYTHING else None,
        grant=grant,
        signs=core.signing is not None,
    )


def public_address(bound: HostPort, seen: list[HostPort]) -> HostPort:
    """Where others reach us: what we are bound to, or, bound to everything, where others saw us."""
    host, port = bound
    if host in ("0.0.0.0", "::"):
        return seen[0] if seen else ("127.0.0.1", port)
    return host, port
