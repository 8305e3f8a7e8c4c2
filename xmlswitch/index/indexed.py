"""What the index needs to know of a query, and no more: the rooms above never import the query object itself."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from xmlswitch.query.plan import Plan
from xmlswitch.query.syntax import Expr
from xmlswitch.query.twigs import Twig


class IndexedQuery(Hashable, Protocol):
    """A query in canonical form; equal ones are the same to the index."""

    @property
    def expr(self) -> Expr | None:
        """Its tree, None for XPath 2.0 or later."""
        ...

    @property
    def plan(self) -> Plan:
        """Conditions that the index can hold."""
        ...

    @property
    def twigs(self) -> tuple[Twig, ...] | None:
        """The same as conditions at nodes, where it has that form."""
        ...

    def holds(self, root: Any) -> bool:
        """Whether it holds in a parsed document, exactly."""
        ...
