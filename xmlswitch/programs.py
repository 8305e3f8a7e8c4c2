"""What a packet of a known markup still needs: which columns to look at, where their texts are, which slots are open.

All that structure decides is worked out once for a markup and again when the index changed; a packet then costs one
dictionary lookup and one OR a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xmlswitch.columns import ColumnEntry, Look
    from xmlswitch.index import Index, Structure
    from xmlswitch.paths import PathEntry

# How a column's value is put together: the one slot itself, or pieces of markup text and slot numbers.
Template = int | tuple[str | int, ...]


def filled(template: Template, texts: Sequence[str]) -> str:
    if isinstance(template, int):
        return texts[template]
    return "".join(texts[part] if isinstance(part, int) else part for part in template)


class Program:
    """`singles`: columns of one text that is a slot; `others`: columns of one text put together; `several`: of many."""

    __slots__ = ("doubtful", "linked", "open", "others", "read", "settled", "several", "singles", "structure", "unsure")

    def __init__(self, index: Index, structure: Structure, templates: Mapping[PathEntry, Sequence[Template]]) -> None:
        self.structure = structure
        self.singles: list[tuple[dict[str, Look], ColumnEntry, int]] = []
        self.others: list[tuple[dict[str, Look], ColumnEntry, Template]] = []
        self.several: list[tuple[ColumnEntry, Sequence[Template]]] = []
        for path, nodes in templates.items():
            for column in path.looked_at:
                if len(nodes) > 1 and not column.first:
                    self.several.append((column, nodes))
                elif isinstance(nodes[0], int):
                    self.singles.append((column.looks, column, nodes[0]))
                else:
                    self.others.append((column.looks, column, nodes[0]))
        for column, text in index.given(structure.counts, templates):
            self.others.append((column.looks, column, (text,)))
        self.read = self.linked = -1

    def refresh(self, index: Index) -> None:
        """Work out the masks again: something was added or removed."""
        structure = self.structure
        unsure, negative = index.by_counts(structure.counts)
        base = structure.base
        self.unsure = unsure
        self.open = base & index.value_bits & ~unsure & ~negative
        self.doubtful = base & unsure
        self.settled = index.links_of(base & ~index.value_bits & ~unsure)
        self.read = index.journal.end
        self.linked = index.linking
