"""Signed peer records in a Kademlia DHT: who is a root, who can be a parent.

Names are loaded when they are first used: a program that only prints its help pays neither for cryptography nor for an
event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dht.config import NodeConfig, StoreLimits
    from dht.directory import CandidateQuery, Covers, Directory, Published, Snapshot, Watch
    from dht.errors import (
        DhtError,
        DirectoryUnavailable,
        IdentityError,
        OwnerError,
        PinsError,
        RecordRejected,
        Refusal,
        SeveralOwners,
        StreamOwnerChanged,
    )
    from dht.identity import Identity, id_text, parse_id_text
    from dht.ids import PeerId
    from dht.memory import MemoryDirectory, MemoryHub
    from dht.pins import Pins
    from dht.record import Address, PeerRecord, QuerySummary, Role
    from dht.shell.service import DirectoryOptions
    from dht.shell.trio_directory import DirectoryStats, TrioDirectory, open_directory
    from dht.streams import Grant, check_stream_name

__all__ = [
    "Address",
    "CandidateQuery",
    "Covers",
    "DhtError",
    "Directory",
    "DirectoryOptions",
    "DirectoryStats",
    "DirectoryUnavailable",
    "Grant",
    "Identity",
    "IdentityError",
    "MemoryDirectory",
    "MemoryHub",
    "NodeConfig",
    "OwnerError",
    "PeerId",
    "PeerRecord",
    "Pins",
    "PinsError",
    "Published",
    "QuerySummary",
    "RecordRejected",
    "Refusal",
    "Role",
    "SeveralOwners",
    "Snapshot",
    "StoreLimits",
    "StreamOwnerChanged",
    "TrioDirectory",
    "Watch",
    "check_stream_name",
    "id_text",
    "open_directory",
    "parse_id_text",
]

_HOMES = {
    "config": ("NodeConfig", "StoreLimits"),
    "directory": ("CandidateQuery", "Covers", "Directory", "Published", "Snapshot", "Watch"),
    "errors": (
        "DhtError",
        "DirectoryUnavailable",
        "IdentityError",
        "OwnerError",
        "PinsError",
        "RecordRejected",
        "Refusal",
        "SeveralOwners",
        "StreamOwnerChanged",
    ),
    "identity": ("Identity", "id_text", "parse_id_text"),
    "ids": ("PeerId",),
    "memory": ("MemoryDirectory", "MemoryHub"),
    "pins": ("Pins",),
    "record": ("Address", "PeerRecord", "QuerySummary", "Role"),
    "shell.service": ("DirectoryOptions",),
    "streams": ("Grant", "check_stream_name"),
    "shell.trio_directory": ("DirectoryStats", "TrioDirectory", "open_directory"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dht' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dht.{home}"), name)
