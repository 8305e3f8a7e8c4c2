"""What parents say about a stream, as values: no bytes of the wire, no flags, no link.

A *claim* is a statement about a stretch (prev, until] of the stream under one query. It is true whenever and however
often it is heard, so claims of different parents, first copies and repairs are all treated alike.
"""

from __future__ import annotations

Packets = list[tuple[int, bytes]]
"""(AN, payload), in the order of the stream."""
