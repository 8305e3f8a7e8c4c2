"""A durable, append-only, segmented log of packets. docs/packetlog.md is the specification."""

from peer.packetlog.files import LogDamaged, LogFull, LogLocked, LogTruncated, PacketLogError
from peer.packetlog.format import Entry, Gap, Late, Packet
from peer.packetlog.reader import Reader
from peer.packetlog.writer import LogConfig, Repair, Writer, settle

__all__ = [
    "Entry", "Gap", "Late", "LogConfig", "LogDamaged", "LogFull", "LogLocked", "LogTruncated", "Packet",
    "PacketLogError", "Reader", "Repair", "Writer", "settle",
]  # fmt: skip
