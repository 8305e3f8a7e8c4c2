"""Promise 5 as a check: what lies in a peer's tables belongs to its links, and nothing outgrows its limit."""

from __future__ import annotations

from dcp.child import MAX_PREVIOUS_QUERIES
from peer.core import PeerCore
from peer.envelope import MAX_REMEMBERED_BYTES
from peer.mesh.membership import Membership
from peer.trust.visitors import MAX_VISITORS

MAX_WAITING_EVENTS = 1_024
"""Events and effects that the owner has not fetched: simulations fetch after every input, so a few at most."""


def excess(core: PeerCore) -> str | None:
    """What is larger than it may be, in words; None when all is well."""
    if core.mesh.state is Membership.LEFT:
        return None
    mesh, hub, dcp = core.mesh, core.hub, core.config.dcp
    ours = len(mesh.parents) + len(mesh.pending) + len(mesh.children)
    visitors = min(len(core.doors.visitors), MAX_VISITORS)
    visits = visitors + (core.audits is not None and core.audits.is_visiting)
    sizes: list[tuple[str, int, int]] = [
        ("links mapped to dcp's", core.links_mapped, ours),
        ("events not fetched", core.events_waiting, MAX_WAITING_EVENTS),
        ("candidates", len(mesh.candidates), mesh.config.max_candidates),
        ("links of the hub", hub.links_held, ours + visits),
        ("bytes of opened packets", core.policy.envelope.remembered_bytes, MAX_REMEMBERED_BYTES),
    ]
    if core.receiver is not None:
        seen = core.receiver.statistics(0.0)
        sizes += [
            ("parents in dcp", len(seen.links), len(mesh.parents) + len(mesh.pending)),
            ("claims that wait", seen.buffered, dcp.max_buffer_packets),
            ("packets not taken", seen.ready, dcp.max_ready_packets + dcp.max_buffer_packets),
        ]
    if core.sender is not None:
        held = core.sender.statistics(0.0)
        # The client's; of each child one in force, one prepared, and for some seconds those before.
        interests = 1 + (2 + MAX_PREVIOUS_QUERIES) * len(held.links)
        sizes += [
            ("children in dcp", len(held.links), len(mesh.children) + visitors),
            ("packets in the log", held.log_packets, dcp.max_log_packets),
            ("bytes in the log", held.log_bytes, dcp.max_log_bytes),
            ("slots of the switch", len(core.policy.switch.links), interests),
        ]
    for name, size, limit in sizes:
        if size > limit:
            return f"{name}: {size}, {limit} at most"
    return None
