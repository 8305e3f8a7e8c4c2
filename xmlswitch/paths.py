"""Paths, groups and masks: which slots of the index a document's structure lets through.

A *slot* is the bit of one conjunction in every mask. A *group* is the conjunctions that require the same set of paths:
a document that has all the paths lets the whole group through. Masks over many groups are cached; each cache is brought
up to date from a journal of what changed since, and never cleared for a change elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xmlswitch.atoms import Column, Linear
    from xmlswitch.columns import ColumnEntry
    from xmlswitch.entries import Entry

_MAX_JOURNAL = 8192  # beyond it a cache that is so far behind is computed anew


class Group:
    """`bits`: slots of members held in masks. `direct`: the few members that are checked one by one."""

    __slots__ = ("bits", "direct", "paths", "spilled")

    def __init__(self, paths: frozenset[PathEntry] = frozenset()) -> None:
        self.paths = paths
        self.bits = 0
        self.direct: list[Entry] = []
        self.spilled = False

    @property
    def is_empty(self) -> bool:
        return not self.bits and not self.direct


class PathEntry:
    """A linear path in the index."""

    __slots__ = (
        "_journal",
        "columns",
        "count_columns",
        "group",
        "looked_at",
        "many",
        "negative_bits",
        "path",
        "refs",
        "serial",
        "unique_bits",
        "watched",
    )

    def __init__(self, path: Linear, serial: int, journal: Journal) -> None:
        self.path = path
        self._journal = journal
        self.serial = serial
        self.refs = 0
        self.group = Group()  # of the conjunctions that require this path alone
        self.many = 0  # groups of several paths that this one is in
        self.watched = 0  # conjunctions that need to know how many nodes it has
        self.unique_bits = 0  # slots that are sure only where the path has one node
        self.negative_bits = 0  # slots that want it not to be there
        self.columns: dict[Column, ColumnEntry] = {}
        self.count_columns: tuple[ColumnEntry, ...] = ()  # those of count()
        self.looked_at: tuple[ColumnEntry, ...] = ()  # those with tables or anchors

    def sort_columns(self) -> None:
        """Put the columns where a document looks for them."""
        columns = self.columns.values()
        self.count_columns = tuple(column for column in columns if column.is_count)
        self.looked_at = tuple(c for c in columns if (c.tables or c.has_anchors) and not c.is_count)
        self._journal.columns += 1

    @property
    def order(self) -> tuple[int, int]:
        """Rarest first, as far as the path itself tells: many names, few wildcards and descendant steps."""
        steps = self.path.steps
        loose = sum(deep + (name == "*") for deep, name in steps)
        return 2 * loose - 3 * len(steps) - bool(self.path.tail), self.serial

    @property
    def is_live(self) -> bool:
        """Whether a document that has the path must look further than the masks."""
        return self.many > 0 or bool(self.group.direct)


class Journal:
    """What changed in groups' bits, in order; caches remember how far they have read."""

    __slots__ = ("base", "columns", "entries")

    def __init__(self) -> None:
        self.base = 0
        self.columns = 0  # changes when a column is looked at for other things than before
        self.entries: list[tuple[Group, int, bool]] = []

    @property
    def end(self) -> int:
        return self.base + len(self.entries)

    def note(self, group: Group, slot: int, on: bool) -> None:
        if len(self.entries) >= _MAX_JOURNAL:
            self.base += len(self.entries)
            self.entries.clear()
        self.entries.append((group, slot, on))


class GroupMask:
    """The union of some groups' bits: `known`, as far as the journal was `read`."""

    __slots__ = ("groups", "known", "read")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = set(groups)
        self.known = 0
        self.read = -1

    def include(self, group: Group) -> None:
        """One more group. What the journal still holds of it is applied again by `bits`, with the same outcome."""
        self.groups.add(group)
        self.known |= group.bits

    def bits(self, journal: Journal) -> int:
        end = journal.base + len(journal.entries)
        if self.read != end:
            if self.read < journal.base:
                self.known = 0
                for group in self.groups:
                    self.known |= group.bits
            else:
                for group, slot, on in journal.entries[self.read - journal.base :]:
                    if group in self.groups:
                        self.known = self.known | 1 << slot if on else self.known & ~(1 << slot)
            self.read = end
        return self.known


class Accept:
    """The paths that end at one place of a document, with all that a walk wants to know about them together."""

    __slots__ = ("_layout", "linking", "live", "mask", "paths", "settled", "standing", "valued", "watched")

    def __init__(self, paths: tuple[PathEntry, ...]) -> None:
        self.paths = paths
        self.mask = GroupMask(path.group for path in paths)
        self._layout = self.standing = self.linking = -1
        self.settled = 0  # links that a node here settles, as of `linking`
        self.valued: tuple[PathEntry, ...] = ()
        self.watched: tuple[PathEntry, ...] = ()
        self.live: tuple[PathEntry, ...] = ()

    def look(self, layout: int) -> None:
        """Find out again, when the layout changed, which paths' values and counts somebody may ask for."""
        if self._layout != layout:
            self._layout = layout
            self.valued = tuple(p for p in self.paths if len(p.columns) > len(p.count_columns))
            self.watched = tuple(path for path in self.paths if path.watched)

    def look_for_lists(self, standing: int) -> None:
        """Find out again, when groups changed, which paths have more than their masks."""
        if self.standing != standing:
            self.standing = standing
            self.live = tuple(path for path in self.paths if path.is_live)


class GroupTree:
    """Groups of several paths as a set-trie, rarest path first: finds the groups whose paths a document has."""

    __slots__ = ("_root", "groups")

    def __init__(self) -> None:
        self._root = _TreeNode()
        self.groups: dict[frozenset[PathEntry], Group] = {}

    def add(self, group: Group) -> None:
        self.groups[group.paths] = group
        node = self._root
        for path in sorted(group.paths, key=lambda entry: entry.order):
            node = node.children.setdefault(path, _TreeNode())
        node.group = group

    def remove(self, group: Group) -> None:
        del self.groups[group.paths]
        self._remove(self._root, sorted(group.paths, key=lambda entry: entry.order), 0)

    def _remove(self, node: _TreeNode, paths: list[PathEntry], depth: int) -> bool:
        if depth == len(paths):
            node.group = None
        elif self._remove(node.children[paths[depth]], paths, depth + 1):
            del node.children[paths[depth]]
        return not node.children and node.group is None

    def satisfied(self, present: set[PathEntry]) -> list[Group]:
        found: list[Group] = []
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if node.group is not None:
                found.append(node.group)
            if node.children:
                nodes += [node.children[path] for path in node.children.keys() & present]
        return found


class _TreeNode:
    __slots__ = ("children", "group")

    def __init__(self) -> None:
        self.children: dict[PathEntry, _TreeNode] = {}
        self.group: Group | None = None
