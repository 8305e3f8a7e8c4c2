"""The paths of the index, each once, and when each comes and goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from xmlswitch.index.automaton import Automaton
from xmlswitch.index.paths import PathEntry
from xmlswitch.query.atoms import Linear


class PathTable:
    """The paths that somebody holds, each once, and an automaton that finds them in documents."""

    __slots__ = ("_automaton", "_entries", "_on_change", "_serials", "loose", "names")

    def __init__(self, automaton: Automaton, on_change: Callable[[], None]) -> None:
        self._automaton = automaton
        self._on_change = on_change
        self._entries: dict[Linear, PathEntry] = {}
        self._serials = itertools.count(1)
        self.names: dict[str, int] = {}  # that paths have, and how often
        self.loose = 0  # paths that lead through, or end at, elements of any name

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PathEntry]:
        return iter(self._entries.values())

    def get(self, path: Linear) -> PathEntry | None:
        return self._entries.get(path)

    def __getitem__(self, path: Linear) -> PathEntry:
        return self._entries[path]

    def hold(self, path: Linear) -> PathEntry:
        entry = self._entries.get(path)
        if entry is None:
            entry = self._entries[path] = PathEntry(path, next(self._serials))
            self._automaton.add(entry)
            self._count(path, 1)
            self._on_change()
        entry.refs += 1
        return entry

    def release(self, entry: PathEntry) -> None:
        entry.refs -= 1
        if not entry.refs:
            del self._entries[entry.path]
            self._automaton.remove(entry)
            self._count(entry.path, -1)
            self._on_change()

    def _count(self, path: Linear, by: int) -> None:
        if path.deep or any(name.endswith("*") for _, name in path.steps):
            self.loose += by
        for _, name in path.steps:
            number = self.names.get(name, 0) + by
            if number:
                self.names[name] = number
            else:
                del self.names[name]
