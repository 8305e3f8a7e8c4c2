"""The values of one document, read when somebody asks and kept for whoever asks next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from xmlswitch.columns import ColumnEntry
    from xmlswitch.paths import PathEntry

Node = TypeVar("Node")


class Values(Generic[Node]):
    """`nodes`: what the document has on each path that has columns, in document order; `read` gives a node's text.

    `counts`: how many nodes each watched path has.
    """

    __slots__ = ("_counts", "_found", "_read", "nodes")

    def __init__(
        self, nodes: Mapping[PathEntry, Sequence[Node]], read: Callable[[Node], str], counts: Mapping[PathEntry, int]
    ) -> None:
        self._counts = counts
        self.nodes = nodes
        self._read = read
        self._found: dict[ColumnEntry, Sequence[str]] = {}

    def texts(self, column: ColumnEntry) -> Sequence[str]:
        """The texts of the nodes that the column looks at, before its functions."""
        nodes = self.nodes[column.path]
        if column.first or len(nodes) == 1:
            return (self._read(nodes[0]),)
        return [self._read(node) for node in nodes]

    def of(self, column: ColumnEntry) -> Sequence[str]:
        found = self._found.get(column)
        if found is None:
            nodes = self.nodes.get(column.path)
            if column.is_count:
                found = (column.value(str(self._counts.get(column.path, 0))),)
            elif nodes is None:
                found = (column.absent,) if column.first else ()
            elif column.first or len(nodes) == 1:
                text = self._read(nodes[0])
                found = (text if column.is_plain else column.value(text),)
            else:
                read = self._read
                found = [column.value(read(node)) for node in nodes]
            self._found[column] = found
        return found
