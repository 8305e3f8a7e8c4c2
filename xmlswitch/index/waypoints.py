"""Where a walk can be: one waypoint for each sequence of element names from the root that documents have shown.

All automata take their step once for a waypoint and never again: the one over the index's paths, the one that opens
frames, and for each frame that is open here the one over the paths below it. A walk goes from waypoint to waypoint, and
carries one integer with the bits of all frames that are open, one frame above the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from xmlswitch.index.budget import LOOK_WORK, MARK_WORK, SPOT_WORK

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.automaton import Automaton, State
    from xmlswitch.index.budget import Work
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.frames import Frames
    from xmlswitch.index.path_table import PathTable
    from xmlswitch.index.paths import Accept
    from xmlswitch.index.scopes import ScopeSet, Tests
    from xmlswitch.limits import IndexLimits

_WAYPOINT_BYTES, _SPOT_BYTES, _VALUE_BYTES = 1000, 300, 200  # of one, of what is noted there, of a value's bits
_TEXT_BYTES = 60  # of a text that means something at a spot
_MAX_CHARS = 64  # longer values hardly come again, and would take much memory
_BITS_OF_WORK = 64  # of the frames that are open, which are worth as much as reading a character
_FEW_NAMES = 4  # attributes that are asked for one by one
_FEW_ELEMENTS = 48  # names that libxml2 looks for: with more a walk over all elements is as fast
_STRANGER = "\0"  # a name that no element has


# A frame that is open: its depth, how far the paths below it have come, its scopes, and where its bits begin.
_Live = tuple[int, "State", "ScopeSet", int]


class Spot:
    """What nodes at one place mean: to the document (`main`), and as bits to all frames that are open.

    `fixed` are the bits that every node sets, `known` those and what its value sets, as far as it came before. Of some
    frames the first node alone counts (`firsts`), if the flag is not set yet.
    """

    __slots__ = ("_bound", "_tests", "_texts", "firsts", "fixed", "has_values", "known", "main")

    def __init__(self, main: tuple[Accept, ...], ends: Iterable[tuple[ScopeSet, int, Accept]], bound: Bound) -> None:
        self.main = main
        self.fixed = 0
        noted = 0
        self.known: dict[str, int] = {}
        self.firsts: list[tuple[int, list[_Tests]]] = []
        self._tests: list[_Tests] = []
        self._bound = bound
        for scopes, base, accept in ends:
            for at, (fixed, tests, flag, firsts) in scopes.meanings(accept):
                at += base
                noted += 1 + len(tests) + len(firsts)
                self.fixed |= fixed << at
                self._tests += [_bound(at, column, held) for column, held in tests.items()]
                if flag:
                    self.firsts.append((flag << at, [_bound(at, column, held) for column, held in firsts.items()]))
        plain = [texts for *_, texts in self._tests if texts is not None]
        # The texts that mean something, if no other value does.
        self._texts = set[str]().union(*plain) if plain and len(plain) == len(self._tests) else None
        self.has_values = bool(self._tests or self.firsts)
        bound.work.charge(SPOT_WORK * noted)
        bound.remember(_SPOT_BYTES + _TEXT_BYTES * len(self._texts or ()) + self.fixed.bit_length() // 8)

    def note(self, text: str, held: int) -> int:
        """What is noted in the frames, with what a node with this value means."""
        if not self.has_values:
            return held | self.fixed
        bits = self.known.get(text)
        held |= self._read(text) if bits is None else bits
        for flag, tests in self.firsts:
            if not held & flag:
                self._bound.work.charge(LOOK_WORK * len(tests))
                held |= flag | _passed(tests, text)
        return held

    def _read(self, text: str) -> int:
        """The bits of a value that is not known."""
        if self._texts is not None and text not in self._texts:
            return self.fixed
        self._bound.work.charge(LOOK_WORK * len(self._tests))
        bits = self.fixed | _passed(self._tests, text)
        if len(text) <= _MAX_CHARS and self._bound.remember(_VALUE_BYTES + len(text) + bits.bit_length() // 8):
            self.known[text] = bits
        return bits


# Tests on a column of a scope whose bits begin here; and the bits of texts, where that is all that they are about.
_Tests = tuple[int, "ColumnEntry", "Tests", dict[str, int] | None]


def _bound(at: int, column: ColumnEntry, held: Tests) -> _Tests:
    return at, column, held, None if column.chain else held.plain


def _passed(tests: list[_Tests], text: str) -> int:
    bits = 0
    for at, column, held, plain in tests:
        if plain is not None:
            if found := plain.get(text):
                bits |= found << at
        elif not column.is_muted:
            bits |= held.passed(column.looks.get(text) or column.look(text)) << at
    return bits


class Bound:
    """Bytes that waypoints take, and what may still be read of a packet."""

    __slots__ = ("bytes", "max_bytes", "work")

    def __init__(self, max_bytes: int, work: Work) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes
        self.work = work

    def remember(self, size: int) -> bool:
        """Whether there is room. One packet can have more: then it is slow, and no more."""
        if self.bytes >= self.max_bytes:
            return False
        self.bytes += size
        return True


class Waypoint:
    """`beyond` is where elements stand that have nothing to do with any path, at whatever depth."""

    __slots__ = (
        "_asked",
        "_attributes",
        "_bound",
        "_raised",
        "_strange",
        "accept",
        "base",
        "below",
        "beyond",
        "depth",
        "few",
        "live",
        "next",
        "node",
        "opener",
        "opens",
        "state",
        "texts",
        "top",
        "work",
    )

    def __init__(
        self,
        depth: int,
        states: tuple[State, State],
        live: tuple[_Live, ...],
        top: int,
        opens: ScopeSet | None,
        bound: Bound,
    ) -> None:
        """`top`: how many bits the frames take that are open further up."""
        self.depth = depth
        self.state, self.opener = states
        self.live = live
        self.opens = opens
        self.base = top  # where the bits of its own frame begin
        self.below = (1 << top) - 1  # those of frames further up
        self.top = top if opens is None else top + opens.size
        self.beyond: Waypoint | None = None
        self.next: dict[str, Waypoint] = {}
        self.accept = self.state.element
        self._bound = bound
        self._raised: dict[int, int] = {}
        self.node = self._spot(_element) if live else None
        self.texts = self._spot(_texts, self.state.texts)
        everywhere = [self.state, *(held[1] for held in live)]
        self._asked = {name for below in everywhere for name in below.attributes or ()}
        self._strange = self._spot(_any_attribute, self.state.wildcard_attribute)  # attributes that no path names
        self._attributes: dict[str, Spot | None] = {}
        # Those that are asked for by name, when they are few, or none.
        self.few: tuple[tuple[str, Spot], ...] | None = None
        if len(self._asked) <= _FEW_NAMES and self._strange is None:
            self.few = tuple((name, spot) for name in sorted(self._asked) if (spot := self.attribute(name)) is not None)
        self.work = MARK_WORK * len(live) + self.top // _BITS_OF_WORK  # of a visit
        bound.remember(_WAYPOINT_BYTES + 2 * self.top // 8)

    def _spot(self, what: Callable[[State], Iterable[Accept | None]], *main: Accept | None) -> Spot | None:
        mains = tuple([accept for accept in main if accept is not None])
        ends = [(scopes, base, a) for _, below, scopes, base in self.live for a in what(below) if a is not None]
        return Spot(mains, ends, self._bound) if ends or mains else None

    def attribute(self, name: str) -> Spot | None:
        """What an attribute means. Names that no path has are not remembered: packets choose them."""
        if name not in self._asked:
            return self._strange
        if name not in self._attributes:

            def both(state: State) -> tuple[Accept | None, Accept | None]:
                return state.attributes.get(name) if state.attributes else None, state.wildcard_attribute

            self._attributes[name] = self._spot(both, *both(self.state))
        return self._attributes[name]

    def leave(self, held: int, reported: dict[ScopeSet, int], answer: Answer) -> int:
        """Decide what was noted in the frame that is opened here; what is noted in those further up.

        `reported`: which terms of a document's frames were found to hold already.
        """
        scopes = self.opens
        if scopes is None:
            return held
        if held <= self.below:  # nothing was noted in its frame
            holding = scopes.idle
        else:
            holding = (((held >> self.base) ^ scopes.flips) + scopes.low) & scopes.guards
            held &= self.below
        if holding:
            if facts := holding & scopes.facts:
                held |= self.raised(facts)
            if found := holding & scopes.wanted & ~reported.get(scopes, 0):
                reported[scopes] = reported.get(scopes, 0) | found
                scopes.report(found, answer)
        return held

    def raised(self, facts: int) -> int:
        """What to note in frames further up when terms that are facts hold here."""
        bits = self._raised.get(facts)
        if bits is None:
            bits = 0
            terms = self.opens.terms(facts) if self.opens is not None else ()
            for depth, below, scopes, base in self.live:
                if depth < self.depth and below.element is not None:
                    bits |= scopes.raised(below.element.paths, terms) << base
            if self._bound.remember(_VALUE_BYTES + (facts.bit_length() + bits.bit_length()) // 8):
                self._raised[facts] = bits
        return bits


def _element(state: State) -> tuple[Accept | None]:
    return (state.element,)


def _texts(state: State) -> tuple[Accept | None]:
    return (state.texts,)


def _any_attribute(state: State) -> tuple[Accept | None]:
    return (state.wildcard_attribute,)


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
        self._bound = Bound(index.limits.max_waypoint_bytes, frames.work)
        self._start: Waypoint | None = None

    @property
    def bytes(self) -> int:
        """What all waypoints take, about."""
        return self._bound.bytes

    def start(self) -> Waypoint:
        """The document itself."""
        version = self._index.paths_changed, self._frames.version
        if self._start is None or self._version != version or self._bound.bytes >= self._bound.max_bytes:
            self._bound.bytes = 0
            frames = self._frames
            opener = frames.openers.current(frames.openers.start)
            opens = frames.opened_by(opener.element)
            relative, main = frames.relative, self._index.automaton
            live = ((0, relative.current(relative.start), opens, 0),) if opens is not None else ()
            self._start = Waypoint(0, (main.current(main.start), opener), live, 0, opens, self._bound)
            self._version = version
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
            states = stranger.state, stranger.opener
            found = waypoint.beyond = Waypoint(waypoint.depth, states, live, waypoint.top, None, self._bound)
            found.beyond = found
        return found

    def follow(self, waypoint: Waypoint, name: str) -> Waypoint:
        frames = self._frames
        depth, top = waypoint.depth + 1, waypoint.top
        main, openers, relative = self._index.automaton, frames.openers, frames.relative
        state = main.current(waypoint.state.next.get(name) or main.follow(waypoint.state, name))
        opener = openers.current(waypoint.opener.next.get(name) or openers.follow(waypoint.opener, name))
        opens = frames.opened_by(opener.element)
        live: list[_Live] = []
        for at, below, scopes, base in waypoint.live:
            following = below.next.get(name) or relative.follow(below, name)
            if following.nodes:
                live.append((at, relative.current(following), scopes, base))
        if opens is not None:
            live.append((depth, relative.current(relative.start), opens, top))
        found = Waypoint(depth, (state, opener), tuple(live), top, opens, self._bound)
        if self._bound.remember(len(name)):
            waypoint.next[name] = found
        return found
