"""The whole peer: joins, selects parents, routes, repairs; the command line; the API that programs embed.

Names are loaded when they are first used: a program that only prints its help pays for no event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcp import Gap, Packet, QuerySwitched, Started
    from peer.api import join, root, root_from
    from peer.errors import FeedError, NotSynchronised, PeerError, StreamUnavailable, WrongOwner
    from peer.node import Peer, PeerOptions, open_peer

__all__ = [
    "FeedError",
    "Gap",
    "NotSynchronised",
    "Packet",
    "Peer",
    "PeerError",
    "PeerOptions",
    "QuerySwitched",
    "Started",
    "StreamUnavailable",
    "WrongOwner",
    "join",
    "open_peer",
    "root",
    "root_from",
]

_HOMES = {
    "dcp": ("Gap", "Packet", "QuerySwitched", "Started"),
    "peer.api": ("join", "root", "root_from"),
    "peer.errors": ("FeedError", "NotSynchronised", "PeerError", "StreamUnavailable", "WrongOwner"),
    "peer.node": ("Peer", "PeerOptions", "open_peer"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'peer' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
