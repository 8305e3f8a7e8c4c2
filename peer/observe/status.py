"""What a peer says about itself, for the status file and the live line. Reading only."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from peer.node import Peer
from peer.observe.statistics import address_text


def describe(peer: Peer) -> dict[str, Any]:
    """A snapshot as plain data, ready for JSON: `Statistics`, and who this is."""
    from dht import id_text

    now = peer.statistics()
    state: dict[str, Any] = {
        "pid": os.getpid(),
        "stream": peer.options.stream,
        "peer": id_text(peer.identity.peer_id),
        "address": address_text(peer.address),
        "query": peer.query,
    } | asdict(now)
    state["children"] = len(now.children)
    state["children_held"] = [asdict(child) for child in now.children]
    goal = peer.goal()
    state["goal"] = asdict(goal) if goal is not None else None
    for parent in state["parents"]:
        trip = parent.pop("round_trip")
        parent["round_trip_ms"] = round(trip * 1_000, 3) if trip is not None else None
    return state


def live_line(state: dict[str, Any], last: dict[str, Any], elapsed: float) -> str:
    """One line for a terminal: where the peer stands, and what came since the last line."""
    came = state["packets"] - last["packets"]
    before = {parent["address"]: parent for parent in last["parents"]}
    shown = []
    for parent in state["parents"]:
        text = parent["address"]
        if parent["round_trip_ms"] is not None:
            text += f" {parent['round_trip_ms']:.1f} ms"
        if (earlier := before.get(parent["address"])) is not None and parent["expected"] > earlier["expected"]:
            # Of what came since the last line: what this parent did not bring was lost or is late.
            lost = 1 - (parent["brought"] - earlier["brought"]) / (parent["expected"] - earlier["expected"])
            text += f" {max(0.0, min(1.0, lost)):.0%} lost"
        if parent["carrier"] != "udp":
            text += f" over {parent['carrier']}"
        if parent["protection"] is not None:
            text += f" {parent['protection']}"
        shown.append(text if parent["sound"] else f"({text})")
    parents = f"parents {state['parents_sound']}/{state['parents_wanted']} [{', '.join(shown)}]"
    return (
        f"{state['role']} level {state['level']}  {parents}  children {state['children']}  "
        f"{came / max(elapsed, 1e-9):.0f} packets/s  gaps {state['gaps']}"
    )
