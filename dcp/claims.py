"""What parents say about a stream, as values: no bytes of the wire, no flags, no link.

A *claim* is a statement about a stretch (prev, until] of the stream under one query. It is true whenever and however
often it is heard, so claims of different parents, first copies and repairs are all treated alike.
"""

from __future__ import annotations

from typing import NamedTuple

from dcp.parent import Parent

Packets = list[tuple[int, bytes]]
"""(AN, payload), in the order of the stream."""


class Claim(NamedTuple):
    """In (prev, until] exactly these packets match the query of this epoch; with none, nothing matches there."""

    parent: Parent
    epoch: int
    prev: int
    until: int
    packets: Packets


class Report(NamedTuple):
    """Where a parent stands, without data.

    Everything that matches up to `sent_until` was sent to us, and nothing matches from there to `head`. None: only the
    head is known.
    """

    parent: Parent
    epoch: int
    sent_until: int | None
    head: int
    settled: int | None = None
    """How far its own parents agree; None: it does not say."""
