"""All linear paths of all queries as one automaton over element names, made deterministic only where documents go.

The paths share a trie. A descendant step hangs below a *loop* node, which once reached stays active all the way down.
A state of the automaton is the set of trie nodes that are active at an element; its transitions are computed when a
document first asks and kept. Adding or removing a path drops only the transitions that its trie node touches.

What a state accepts is an `Accept`: the paths that end there, at the element, at one of its attributes or at its text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from xmlswitch.index.paths import Accept, PathEntry
from xmlswitch.limits import INDEX_LIMITS
from xmlswitch.query.atoms import ATTRIBUTE, TEXT, Linear

_SPARE_ACCEPTS = 256
_TRANSITION_BYTES = 150  # of an entry in a dictionary, with a name


class _Node:
    """A trie node. `states` are the automaton's states in which it is active."""

    __slots__ = ("attributes", "children", "ends", "label", "loop", "parent", "serial", "states", "texts")

    def __init__(self, parent: _Node | None, label: str | None, serial: int) -> None:
        self.serial = serial
        self.parent = parent
        self.label = label  # None for a loop node
        self.children: dict[str, _Node] = {}
        self.loop: _Node | None = None
        self.ends: PathEntry | None = None
        self.attributes: dict[str, PathEntry] | None = None
        self.texts: PathEntry | None = None
        self.states: list[State] = []

    @property
    def is_loop(self) -> bool:
        return self.label is None

    @property
    def is_bare(self) -> bool:
        return not (self.children or self.loop or self.ends or self.attributes or self.texts)


class State:
    """What is active at an element. `next` maps an element name to the state of a child of that name.

    What a `stale` state accepts must be computed again (`Automaton.current`): a path that ends there came or went.
    """

    __slots__ = ("attributes", "element", "next", "nodes", "stale", "texts", "wildcard_attribute")

    def __init__(self, nodes: tuple[_Node, ...]) -> None:
        self.nodes = nodes
        self.stale = True
        self.next: dict[str, State] = {}
        self.element: Accept | None = None
        self.attributes: dict[str, Accept] | None = None
        self.wildcard_attribute: Accept | None = None
        self.texts: Accept | None = None


class Automaton:
    def __init__(self, max_states: int, max_transition_bytes: int = INDEX_LIMITS.max_transition_bytes) -> None:
        self.max_states = max_states
        self.max_transition_bytes = max_transition_bytes
        self.transition_bytes = 0
        self.resets = 0
        self._serials = itertools.count(1)
        self._root = _Node(None, "", 0)
        self._states: dict[tuple[int, ...], State] = {}
        self._accepts: dict[tuple[int, ...], Accept] = {}
        self._pruned = 0
        self.start = self._state_of([self._root])

    def _reset(self) -> None:
        """Forget every state; documents build again what they need."""
        self.resets += 1
        for state in self._states.values():
            for node in state.nodes:
                node.states.clear()
        self._states.clear()
        self._accepts.clear()
        self._pruned = 0
        self.transition_bytes = 0
        self.start = self._state_of([self._root])

    @property
    def accepts(self) -> int:
        """Sets of paths that end together, which are kept because states share them."""
        return len(self._accepts)

    @property
    def states(self) -> int:
        return len(self._states)

    # --- paths come and go ---

    def add(self, entry: PathEntry) -> None:
        node = self._insert(entry.path)
        tail = entry.path.tail
        if not tail:
            node.ends = entry
        elif tail == TEXT:
            node.texts = entry
        else:
            node.attributes = node.attributes or {}
            node.attributes[tail.removeprefix(ATTRIBUTE)] = entry
        for state in node.states:
            state.stale = True

    def remove(self, entry: PathEntry) -> None:
        node = self._find(entry.path)
        tail = entry.path.tail
        if not tail:
            node.ends = None
        elif tail == TEXT:
            node.texts = None
        elif node.attributes is not None:
            del node.attributes[tail.removeprefix(ATTRIBUTE)]
        for state in node.states:
            state.stale = True
        # A pruned node may stay in states: without children and ends it does nothing there. Too many: start again.
        while node.parent is not None and node.is_bare:
            parent = node.parent
            if node.is_loop:
                parent.loop = None
            elif node.label is not None:
                del parent.children[node.label]
            self._pruned += len(node.states)
            node = parent
        if self._pruned > max(1000, len(self._states)):
            self._reset()

    def _insert(self, path: Linear) -> _Node:
        node = self._root
        for deep, name in path.steps:
            if deep:
                node = self._loop_of(node)
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = _Node(node, name, next(self._serials))
                self._forget(node, name)
            node = child
        return self._loop_of(node) if path.deep else node

    def _loop_of(self, node: _Node) -> _Node:
        if node.loop is None:
            node.loop = _Node(node, None, next(self._serials))
            # States with `node` now lack its loop: make nobody lead to them any more.
            if node.parent is None:
                self.start = self._state_of([self._root])
            elif node.label is not None:
                self._forget(node.parent, node.label)
        return node.loop

    def _find(self, path: Linear) -> _Node:
        node: _Node | None = self._root
        for deep, name in path.steps:
            if deep and node is not None:
                node = node.loop
            node = node.children[name] if node is not None else None
        if path.deep and node is not None:
            node = node.loop
        if node is None:
            raise KeyError(str(path))
        return node

    def _forget(self, node: _Node, name: str) -> None:
        """Transitions by `name` out of states where `node` is active no longer hold."""
        for state in node.states:
            if name.endswith("*"):
                state.next.clear()
            else:
                state.next.pop(name, None)

    # --- documents ---

    def follow(self, state: State, name: str) -> State:
        """The state of a child element, computed now."""
        if len(self._states) >= self.max_states or self.transition_bytes >= self.max_transition_bytes:
            self._reset()
        namespace = name[: name.index("}") + 1] + "*" if name[:1] == "{" else ""
        active: list[_Node] = []
        for node in state.nodes:
            if node.is_loop:
                active.append(node)
            children = node.children
            if children:
                if (child := children.get(name)) is not None:
                    active.append(child)
                if (child := children.get("*")) is not None:
                    active.append(child)
                if namespace and (child := children.get(namespace)) is not None:
                    active.append(child)
        following = self._state_of(active)
        state.next[name] = following
        self.transition_bytes += _TRANSITION_BYTES + len(name)
        return following

    def _state_of(self, active: Iterable[_Node]) -> State:
        reached: dict[int, _Node] = {}
        for node in active:
            reached[node.serial] = node
            if node.loop is not None:
                reached[node.loop.serial] = node.loop
        key = tuple(sorted(reached))
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(tuple(reached.values()))
            for node in state.nodes:
                node.states.append(state)
        return state

    def current(self, state: State) -> State:
        """The state, with what it accepts up to date. Not done when a path comes: it may end in very many states."""
        if state.stale:
            state.stale = False
            self._fill(state)
        return state

    def _fill(self, state: State) -> None:
        elements: list[PathEntry] = []
        texts: list[PathEntry] = []
        attributes: dict[str, list[PathEntry]] = {}
        for node in state.nodes:
            if node.ends is not None:
                elements.append(node.ends)
            if node.texts is not None:
                texts.append(node.texts)
            for name, entry in (node.attributes or {}).items():
                attributes.setdefault(name, []).append(entry)
        state.element = self._accept_of(elements)
        state.texts = self._accept_of(texts)
        wildcard = attributes.pop("*", [])
        state.wildcard_attribute = self._accept_of(wildcard)
        state.attributes = {} if attributes else None
        if state.attributes is not None:
            for name, entries in attributes.items():
                accept = self._accept_of(entries)
                if accept is not None:
                    state.attributes[name] = accept

    def _accept_of(self, entries: list[PathEntry]) -> Accept | None:
        """States that accept the same paths share one Accept, and so its caches."""
        if not entries:
            return None
        key = tuple(sorted(entry.serial for entry in entries))
        accept = self._accepts.get(key)
        if accept is None:
            if len(self._accepts) > _SPARE_ACCEPTS + 4 * len(self._states):
                self._forget_accepts()
            accept = self._accepts[key] = Accept(tuple(entries))
        return accept

    def _forget_accepts(self) -> None:
        """Keep what states accept now: queries that come and go leave sets behind that no state has any more."""
        used: set[Accept] = set()
        for state in self._states.values():
            if not state.stale:
                used.update(state.attributes.values() if state.attributes is not None else ())
                used.update(accept for accept in (state.element, state.texts, state.wildcard_attribute) if accept)
        self._accepts = {key: accept for key, accept in self._accepts.items() if accept in used}
