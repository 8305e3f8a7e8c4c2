"""Where a walk can be: one waypoint for each sequence of element names from the root that documents have shown.

All automata take their step once for a waypoint and never again: the one over the index's paths, the one that opens
frames, and for each frame that is open here the one over the paths below it. A walk goes from waypoint to waypoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from xmlswitch.index.automaton import Automaton, State
    from xmlswitch.index.frames import Frames
    from xmlswitch.index.path_table import PathTable
    from xmlswitch.index.paths import Accept
    from xmlswitch.index.scope_sets import Ends, ScopeSet
    from xmlswitch.limits import IndexLimits

MAIN = -1
# An end of paths: in the frame that was opened at a depth, or in the document (MAIN); what is noted there, where the
# paths ended, and whether the node is kept.
Mark = tuple[int, int, "Accept", bool]
_WAYPOINT_BYTES, _MARK_BYTES = 1000, 120  # of one, with its entry in the one before, and of what is noted there
_FEW_NAMES = 4  # attributes that are asked for one by one
_FEW_ELEMENTS = 48  # names that libxml2 looks for: with more a walk over all elements is as fast
_STRANGER = "\0"  # a name that no element has


# A frame that is open: where it was opened, how far the paths below it have come, and for which scopes it is.
_Live = tuple[int, "State", "ScopeSet"]


def _marks(state: State | None, live: tuple[_Live, ...], what: Callable[[State], Accept | None]) -> tuple[Mark, ...]:
    """The ends of paths that matter: all in the document, in a frame those that its scopes name."""
    found: list[Mark] = []
    if state is not None and (accept := what(state)) is not None:
        found.append((MAIN, 0, accept, False))
    for at, below, scopes in live:
        accept = what(below)
        if accept is not None and (bit := scopes.bit(accept)):
            found.append((at, bit, accept, scopes.keeps(accept)))
    return tuple(found)


class Waypoint:
    """`beyond` is where elements stand that have nothing to do with any path, at whatever depth."""

    __slots__ = (
        "_any",
        "_asked",
        "_named",
        "accept",
        "beyond",
        "depth",
        "ends",
        "has_attributes",
        "live",
        "marks",
        "names",
        "next",
        "opener",
        "opens",
        "state",
        "texts",
    )

    def __init__(
        self, depth: int, state: State, opener: State, live: tuple[_Live, ...], opens: ScopeSet | None
    ) -> None:
        self.depth = depth
        self.state = state
        self.opener = opener
        self.live = live
        self.opens = opens
        self.beyond: Waypoint | None = None
        self.next: dict[str, Waypoint] = {}
        self.accept = state.element
        self.marks = _marks(None, live, lambda below: below.element)
        self.ends: Ends = tuple(
            (at, scopes, below.element)
            for at, below, scopes in live
            if below.element is not None and scopes.bit(below.element)
        )
        self.texts = _marks(state, live, lambda below: below.texts)
        states = [state, *(below for _, below, _ in live)]
        named = {name for below in states for name in below.attributes or ()}
        is_any = any(below.wildcard_attribute is not None for below in states)
        self.has_attributes = bool(named) or is_any
        # Those that are asked for by name, when they are few.
        self.names = tuple(sorted(named)) if len(named) <= _FEW_NAMES and not is_any else None
        self._asked = named
        self._any = _marks(state, live, lambda below: below.wildcard_attribute)
        self._named: dict[str, tuple[Mark, ...]] = {}

    def attribute(self, name: str) -> tuple[Mark, ...]:
        """The ends of paths at an attribute. Names that no path has are not remembered: packets choose them."""
        marks = self._named.get(name)
        if marks is None:
            if name not in self._asked:
                return self._any
            named = _marks(self.state, self.live, lambda s: s.attributes.get(name) if s.attributes else None)
            marks = (*named, *_marks(self.state, self.live, lambda s: s.wildcard_attribute))
            self._named[name] = marks
        return marks


class _Paths(Protocol):
    """What a walk follows of the index."""

    automaton: Automaton
    paths_changed: int
    paths: PathTable
    limits: IndexLimits


class Waypoints:
    def __init__(self, index: _Paths, frames: Frames) -> None:
        self._index = index
        self._frames = frames
        self._version = (-1, -1)
        self._names: tuple[str, ...] | None = None
        self._names_at = (-1, -1)
        self._bytes = 0
        self._start: Waypoint | None = None

    def start(self) -> Waypoint:
        """The document itself."""
        version = self._index.paths_changed, self._frames.version
        if self._start is None or self._version != version or self._bytes >= self._index.limits.max_waypoint_bytes:
            self._version = version
            self._bytes = 0
            frames = self._frames
            opener = frames.openers.current(frames.openers.start)
            opens = frames.opened_by(opener.element)
            relative, main = frames.relative, self._index.automaton
            live = ((0, relative.current(relative.start), opens),) if opens is not None else ()
            self._start = Waypoint(0, main.current(main.start), opener, live, opens)
        return self._start

    def names(self) -> tuple[str, ...] | None:
        """The elements that paths name, if they are few and no path goes through others: no others need be visited."""
        version = self._index.paths_changed, self._frames.version
        if self._names_at != version:
            self._names_at = version
            tables = (self._index.paths, *self._frames.tables)
            found = set[str]().union(*(table.names for table in tables))
            is_open = any(table.loose for table in tables) or not 0 < len(found) <= _FEW_ELEMENTS
            self._names = None if is_open else tuple(sorted(found))
        return self._names

    def beyond(self, waypoint: Waypoint) -> Waypoint:
        """Below elements that no path names. No waypoint is entered for these: they have no depth."""
        found = waypoint.beyond
        if found is None:
            stranger = self.follow(waypoint, _STRANGER)
            waypoint.next.pop(_STRANGER, None)
            live = tuple(held for held in stranger.live if held[0] <= waypoint.depth)
            found = waypoint.beyond = Waypoint(waypoint.depth, stranger.state, stranger.opener, live, None)
            found.beyond = found
        return found

    def follow(self, waypoint: Waypoint, name: str) -> Waypoint:
        frames = self._frames
        depth = waypoint.depth + 1
        main, openers, relative = self._index.automaton, frames.openers, frames.relative
        state = main.current(waypoint.state.next.get(name) or main.follow(waypoint.state, name))
        opener = openers.current(waypoint.opener.next.get(name) or openers.follow(waypoint.opener, name))
        opens = frames.opened_by(opener.element)
        live: list[_Live] = []
        for at, below, scopes in waypoint.live:
            following = below.next.get(name) or relative.follow(below, name)
            if following.nodes:
                live.append((at, relative.current(following), scopes))
        if opens is not None:
            live.append((depth, relative.current(relative.start), opens))
        found = Waypoint(depth, state, opener, tuple(live), opens)
        if (
            self._bytes < self._index.limits.max_waypoint_bytes
        ):  # one packet can have more: then it is slow, and no more
            self._bytes += _WAYPOINT_BYTES + len(name) + _MARK_BYTES * (len(found.marks) + len(found.texts))
            waypoint.next[name] = found
        return found
