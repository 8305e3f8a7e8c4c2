"""Packets and logs for the tests of the packet log."""

from __future__ import annotations

from peer.packetlog import (
    LogConfig,
    Packet,
    Reader,
)

SMALL = LogConfig(max_segment_bytes=400)
EAGER = LogConfig(sync_bytes=0)


def packets(first: int, count: int, size: int = 10) -> list[Packet]:
    return [Packet(an, 1_000_000 * an, bytes([an % 256]) * size) for an in range(first, first + count)]


def content(directory, **options) -> list:
    return [entry for _, entry in Reader(directory, **options).iterate()]
