"""The whole peer: joins, selects parents, routes, repairs; the command line; the API that programs embed.

The public API is `__all__`, and docs/api.md describes it; everything else may change. Names are loaded when they are
first used: a program that only prints its help pays for no event loop.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` for it would be half of what importing this package takes
if TYPE_CHECKING:
    from dcp import Gap, Omitted, Packet, Started
    from peer import blocking, guest
    from peer.api import join, root, root_from
    from peer.blocking import Notice
    from peer.combine import FromSource, Source, open_combined, open_combiner
    from peer.errors import (
        FeedError,
        NotSynchronised,
        NotXml,
        Overrun,
        PeerClosed,
        PeerError,
        SeveralOwners,
        StreamUnavailable,
        WrongOwner,
    )
    from peer.flow import Disconnected, FallingBehind, KeepingUp, NumbersRestarted, QueryNarrowed, QueryWidened
    from peer.items import QuerySwitched
    from peer.mesh.events import (
        ChildGained,
        ChildLost,
        ColdRestart,
        Degraded,
        Disputed,
        Incomplete,
        Leaving,
        Left,
        LinkDenied,
        OtherVersion,
        ParentGained,
        ParentLost,
        ParentSuspected,
        ResilienceChanged,
        Restored,
        Starved,
        Thawed,
        Uncovered,
    )
    from peer.node import Event, Peer
    from peer.observe.statistics import ChildStatistics, ParentStatistics, Statistics
    from peer.opening import open_peer
    from peer.options import PeerOptions
    from peer.role import Role
    from xmlswitch import QueryError

__all__ = [
    "ChildGained",
    "ChildLost",
    "ChildStatistics",
    "ColdRestart",
    "Degraded",
    "Disconnected",
    "Disputed",
    "Event",
    "FallingBehind",
    "FeedError",
    "FromSource",
    "Gap",
    "Incomplete",
    "KeepingUp",
    "Leaving",
    "Left",
    "LinkDenied",
    "NotSynchronised",
    "NotXml",
    "Notice",
    "NumbersRestarted",
    "Omitted",
    "OtherVersion",
    "Overrun",
    "Packet",
    "ParentGained",
    "ParentLost",
    "ParentStatistics",
    "ParentSuspected",
    "Peer",
    "PeerClosed",
    "PeerError",
    "PeerOptions",
    "QueryError",
    "QueryNarrowed",
    "QuerySwitched",
    "QueryWidened",
    "ResilienceChanged",
    "Restored",
    "Role",
    "SeveralOwners",
    "Source",
    "Started",
    "Starved",
    "Statistics",
    "StreamUnavailable",
    "Thawed",
    "Uncovered",
    "WrongOwner",
    "blocking",
    "guest",
    "join",
    "open_combined",
    "open_combiner",
    "open_peer",
    "root",
    "root_from",
]

_HOMES = {
    "dcp": ("Gap", "Omitted", "Packet", "Started"),
    "peer.items": ("QuerySwitched",),
    "peer.api": ("join", "root", "root_from"),
    "peer.blocking": ("Notice",),
    "peer.combine": ("FromSource", "Source", "open_combined", "open_combiner"),
    "peer.role": ("Role",),
    "peer.errors": (
        *("FeedError", "NotSynchronised", "NotXml", "Overrun", "PeerClosed", "PeerError", "SeveralOwners"),
        *("StreamUnavailable", "WrongOwner"),
    ),
    "peer.flow": (
        *("Disconnected", "FallingBehind", "KeepingUp"),
        *("NumbersRestarted", "QueryNarrowed", "QueryWidened"),
    ),
    "peer.mesh.events": (
        *("ChildGained", "ChildLost", "ColdRestart", "Degraded", "Disputed", "Incomplete", "Leaving", "Left"),
        *("LinkDenied", "OtherVersion"),
        *("ParentGained", "ParentLost", "ParentSuspected", "ResilienceChanged", "Restored", "Starved", "Thawed"),
        "Uncovered",
    ),
    "peer.node": ("Event", "Peer"),
    "peer.opening": ("open_peer",),
    "peer.options": ("PeerOptions",),
    "peer.observe.statistics": ("ChildStatistics", "ParentStatistics", "Statistics"),
    "xmlswitch": ("QueryError",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("blocking", "guest")


def __getattr__(name: str) -> object:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"peer.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'peer' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
