"""Where a peer stands in the mesh, as one table.

Theory of operation. A peer is always in one state. Everything that can move it to another is an input of the table
below, and only the table moves it; an input that a state does not list is a bug, reported with both names. How many
parents there are is data, kept in `parents.py`; after each change it is summed up as one of three inputs,
COMPLETE (n sound parents or more), SHORT (at least one parent held, fewer than n sound) and BARE (none held). Two rules
about this file: all that decides a transition is here, and it knows nothing of links, levels or time.

    IDLE      not started
    ROOT      a source: no parents, level 0
    JOINING   no parent and no children: free to go anywhere
    DEGRADED  one parent or more, fewer than n sound ones: the stream goes on, more are sought
    STEADY    n sound parents
    ORPHANED  no parent, but children: keeps its level and seeks below it; COLD after some seconds
    LEAVING   has said goodbye, still feeds the children for a moment
    LEFT      over; a new life is a new machine
"""

from __future__ import annotations

from enum import Enum


class Membership(Enum):
    IDLE = "idle"
    ROOT = "root"
    JOINING = "joining"
    DEGRADED = "degraded"
    STEADY = "steady"
    ORPHANED = "orphaned"
    LEAVING = "leaving"
    LEFT = "left"


class Input(Enum):
    START_ROOT = "start as a root"
    START = "start as a router or leaf"
    COMPLETE = "n sound parents"
    SHORT = "fewer than n sound parents"
    BARE = "no parent, children remain"
    FREE = "no parent, no children"
    COLD = "no parent for too long"
    LEAVE = "leave"
    GONE = "grace is over"


_M, _I = Membership, Input

TRANSITIONS: dict[Membership, dict[Input, Membership]] = {
    _M.IDLE: {_I.START_ROOT: _M.ROOT, _I.START: _M.JOINING, _I.LEAVE: _M.LEFT},
    _M.ROOT: {_I.LEAVE: _M.LEAVING},
    _M.JOINING: {
        _I.FREE: _M.JOINING,
        _I.SHORT: _M.DEGRADED,
        _I.COMPLETE: _M.STEADY,
        _I.LEAVE: _M.LEAVING,
    },
    _M.DEGRADED: {
        _I.SHORT: _M.DEGRADED,
        _I.COMPLETE: _M.STEADY,
        _I.BARE: _M.ORPHANED,
        _I.FREE: _M.JOINING,
        _I.LEAVE: _M.LEAVING,
    },
    _M.STEADY: {
        _I.COMPLETE: _M.STEADY,
        _I.SHORT: _M.DEGRADED,
        _I.BARE: _M.ORPHANED,
        _I.FREE: _M.JOINING,
        _I.LEAVE: _M.LEAVING,
    },
    _M.ORPHANED: {
        _I.BARE: _M.ORPHANED,
        _I.FREE: _M.JOINING,
        _I.SHORT: _M.DEGRADED,
        _I.COMPLETE: _M.STEADY,
        _I.COLD: _M.JOINING,
        _I.LEAVE: _M.LEAVING,
    },
    _M.LEAVING: {_I.GONE: _M.LEFT},
    _M.LEFT: {},
}

SEEKING = frozenset({_M.JOINING, _M.DEGRADED, _M.STEADY, _M.ORPHANED})
"""States in which the number of parents means something. STEADY seeks only to place itself better."""


class MembershipError(RuntimeError):
    """An input that its state does not list: a bug of ours, or a command out of order."""


def step(state: Membership, given: Input) -> Membership:
    try:
        return TRANSITIONS[state][given]
    except KeyError:
        raise MembershipError(f"a peer that is {state.value} has no answer to {given.value!r}") from None


def as_markdown() -> str:
    """The table as docs/mesh.md shows it, so that the page cannot drift (a test compares them)."""
    lines = ["| state | input | next |", "|---|---|---|"]
    for state, row in TRANSITIONS.items():
        lines += [f"| {state.name} | {given.name} | {target.name} |" for given, target in row.items()]
    return "\n".join(lines)
