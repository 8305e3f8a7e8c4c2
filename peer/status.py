"""What a peer says about itself, for the status file, the live line and metrics. Reading only."""

from __future__ import annotations

import os
from typing import Any

import trio

from peer.core import Role
from peer.node import Peer


def describe(peer: Peer) -> dict[str, Any]:
    """A snapshot as plain data, ready for JSON."""
    from dht import id_text

    core, now = peer.core, trio.current_time()
    state: dict[str, Any] = {
        "pid": os.getpid(),
        "stream": peer.options.stream,
        "role": peer.options.role.value,
        "peer": id_text(peer.identity.peer_id),
        "address": _text(peer.address),
        "state": core.mesh.state.value if hasattr(core.mesh.state, "value") else str(core.mesh.state),
        "level": peer.level,
        "parents_wanted": 0 if peer.options.role is Role.ROOT else peer.options.parents,
        "parents_sound": peer.parents,
        "parents": _parents(peer, now),
        "children": len(core.mesh.children),
        "position": None,
        "packets": 0,
        "bytes": 0,
        "gaps": 0,
    }
    if core.receiver is not None:
        got = core.receiver.statistics(now)
        state |= {
            "position": got.position,
            "packets": got.packets,
            "bytes": got.bytes,
            "gaps": got.gaps,
            "duplicates": got.duplicates,
            "nacks": got.nacks,
            "recovered": got.recovered,
            "waiting": got.ready,
        }
    elif core.sender is not None:
        sent = core.sender.statistics(now)
        log = core.sender.log
        state |= {"position": sent.head, "packets": log.next_ordinal, "bytes": sent.log_bytes}
    return state


def _parents(peer: Peer, now: float) -> list[dict[str, Any]]:
    """Each parent with what dcp measured on its link."""
    from dht import id_text

    receiver = peer.core.receiver
    if receiver is None:
        return []
    links = {link.address[:2]: link for link in receiver.statistics(now).links}
    rows = []
    for parent in peer.core.mesh.parents.links.values():
        link = links.get(parent.address[:2])
        rows.append(
            {
                "peer": id_text(parent.peer_id),
                "address": _text(parent.address),
                "level": parent.told,
                "sound": parent.is_sound,
                "round_trip_ms": round(link.round_trip * 1_000, 3) if link is not None else None,
                "copies": link.first_copies + link.duplicates if link is not None else 0,
                "first": link.first_copies if link is not None else 0,
            }
        )
    return rows


def live_line(state: dict[str, Any], last: dict[str, Any], elapsed: float) -> str:
    """One line for a terminal: where the peer stands, and what came since the last line."""
    came = state["packets"] - last["packets"]
    before = {parent["address"]: parent["copies"] for parent in last["parents"]}
    shown = []
    for parent in state["parents"]:
        text = parent["address"]
        if parent["round_trip_ms"] is not None:
            text += f" {parent['round_trip_ms']:.1f} ms"
        if came > 0 and parent["address"] in before:
            # Copies that this parent brought, of all packets that came: what it did not bring was lost or is late.
            lost = 1 - (parent["copies"] - before[parent["address"]]) / came
            text += f" {max(0.0, min(1.0, lost)):.0%} lost"
        shown.append(text if parent["sound"] else f"({text})")
    parents = f"parents {state['parents_sound']}/{state['parents_wanted']} [{', '.join(shown)}]"
    return (
        f"{state['role']} level {state['level']}  {parents}  children {state['children']}  "
        f"{came / max(elapsed, 1e-9):.0f} packets/s  gaps {state['gaps']}"
    )


def _text(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
