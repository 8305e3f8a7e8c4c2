"""Lying parents in words and as JSON: for the log, the lines of `join` and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dht.addresses import endpoint_text
from peer.mesh.events import Disputed, Incomplete, Starved, Uncovered
from peer.mesh.parents import Parent


def in_words(event: Disputed | Starved | Incomplete | Uncovered) -> str:
    if isinstance(event, Uncovered):
        return (
            f"{event.packets} signed packets after {event.after} up to {event.until} were found at "
            f"{endpoint_text(event.address)}: all parents had said that they were not there"
        )
    if isinstance(event, Incomplete):
        return (
            f"{event.missing} packets after {event.after} up to {event.until} are missing, by the count that a root "
            "has signed: all parents left them out"
        )
    if isinstance(event, Starved):
        return (
            f"parents report packets up to {event.head}, but have brought none for {event.seconds:.0f} s; "
            "looking for other parents"
        )
    return (
        f"parent {endpoint_text(event.address)} is contradicted about the packets after {event.after} up to "
        f"{event.until}: {event.reason}; looking for another parent"
    )


def as_json(event: Disputed | Starved | Uncovered) -> dict[str, Any]:
    if isinstance(event, Uncovered):
        where = endpoint_text(event.address)
        return {"uncovered": {"at": where, "after": event.after, "until": event.until, "packets": event.packets}}
    if isinstance(event, Starved):
        return {"starved": {"head": event.head, "seconds": round(event.seconds, 3)}}
    return {
        "disputed": {
            "parent": endpoint_text(event.address),
            "after": event.after,
            "until": event.until,
            "reason": event.reason,
        }
    }


def held_in_words(parents: Iterable[Parent]) -> str:
    """Which of the present parents are contradicted, and why; empty if none is."""
    return "; ".join(f"{endpoint_text(p.address)}: {p.dispute}" for p in parents if p.dispute is not None)
