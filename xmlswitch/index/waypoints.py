"""Where a walk can be: one waypoint for each sequence of element names from the root that documents have shown.

All automata take their step once for a waypoint and never again: the one over the index's paths, the one that opens
frames, and for each frame that is open here the one over the paths below it. A walk goes from waypoint to waypoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from xmlswitch.index.automaton import Automaton, State
    from xmlswitch.index.frames import Frames, ScopeSet
    from xmlswitch.index.paths import Accept
    from xmlswitch.limits import IndexLimits

# An end of paths: in the frame that was opened at a depth, or in the document (MAIN).
Mark = tuple[int, "Accept"]
MAIN = -1
_MAX_NAMES = 256


# A frame that is open: where it was opened, how far the paths below it have come, and for which scopes it is.
_Live = tuple[int, "State", "ScopeSet"]


def _marks(state: State | None, live: tuple[_Live, ...], what: Callable[[State], Accept | None]) -> tuple[Mark, ...]:
    """The ends of paths that matter: all in the document, in a frame those that its scopes name."""
    found: list[Mark] = []
    if state is not None and (accept := what(state)) is not None:
        found.append((MAIN, accept))
    for at, below, scopes in live:
        accept = what(below)
        if accept is not None and not scopes.relevant.isdisjoint(accept.paths):
            found.append((at, accept))
    return tuple(found)


class Waypoint:
    __slots__ = (
        "_named",
        "accept",
        "depth",
        "has_attributes",
        "live",
        "marks",
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
        self.next: dict[str, Waypoint] = {}
        self.accept = state.element
        self.marks = _marks(None, live, lambda below: below.element)
        self.texts = _marks(state, live, lambda below: below.texts)
        self.has_attributes = any(
            below.attributes is not None or below.wildcard_attribute is not None
            for below in (state, *(below for _, below, _ in live))
        )
        self._named: dict[str, tuple[Mark, ...]] = {}

    def attribute(self, name: str) -> tuple[Mark, ...]:
        """The ends of paths at an attribute."""
        marks = self._named.get(name)
        if marks is None:
            named = _marks(self.state, self.live, lambda s: s.attributes.get(name) if s.attributes else None)
            marks = (*named, *_marks(self.state, self.live, lambda s: s.wildcard_attribute))
            if len(self._named) > _MAX_NAMES:
                self._named.clear()
            self._named[name] = marks
        return marks


class _Paths(Protocol):
    """What a walk follows of the index."""

    automaton: Automaton
    paths_changed: int
    limits: IndexLimits


class Waypoints:
    def __init__(self, index: _Paths, frames: Frames) -> None:
        self._index = index
        self._frames = frames
        self._version = (-1, -1)
        self._number = 0
        self._start: Waypoint | None = None

    def start(self) -> Waypoint:
        """The document itself."""
        version = self._index.paths_changed, self._frames.version
        if self._start is None or self._version != version or self._number >= self._index.limits.max_waypoints:
            self._version = version
            self._number = 0
            frames = self._frames
            opener = frames.openers.current(frames.openers.start)
            opens = frames.opened_by(opener.element)
            relative, main = frames.relative, self._index.automaton
            live = ((0, relative.current(relative.start), opens),) if opens is not None else ()
            self._start = Waypoint(0, main.current(main.start), opener, live, opens)
        return self._start

    def follow(self, waypoint: Waypoint, name: str) -> Waypoint:
        self._number += 1
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
        if self._number < self._index.limits.max_waypoints:  # one packet can have more: then it is slow, and no more
            waypoint.next[name] = found
        return found
