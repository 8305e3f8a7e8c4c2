"""Conditions at nodes, decided node by node while a document is walked.

A *scope* is a path at whose nodes some queries have several conditions at once. When the walk enters such a node it
opens a *frame*; what the conditions ask for is noted in the frame as the walk comes by it (`waypoints`); when the walk
leaves the node, all terms of its scopes are decided together (`scopes`). A *term* is the conditions of one place:
either all that a query asks (then it has links), or a condition of a term further up (then it is a fact for that one,
noted in the frame there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xmlswitch.index.automaton import Automaton
from xmlswitch.index.columns import ColumnEntry
from xmlswitch.index.path_table import PathTable
from xmlswitch.index.paths import PathEntry
from xmlswitch.index.scopes import Held, Scope, ScopeSet, Term
from xmlswitch.query.atoms import Column, Linear
from xmlswitch.query.twigs import Condition, Twig

if TYPE_CHECKING:
    from xmlswitch.index.budget import Work
    from xmlswitch.index.paths import Accept
    from xmlswitch.limits import IndexLimits

_MAX_SETS = 4096  # of scopes that open together


class Frames:
    """All scopes. `relative` is the automaton that runs from every frame's node downwards."""

    def __init__(self, limits: IndexLimits, on_change: Callable[[], None], work: Work) -> None:
        self.work = work
        self._limits = limits
        self._on_change = on_change
        self.relative = Automaton(limits.max_states, limits.max_transition_bytes)
        self.openers = Automaton(limits.max_states, limits.max_transition_bytes)  # over the paths of scopes
        self.scopes: dict[Linear, Scope] = {}
        self._by_entry: dict[PathEntry, Scope] = {}
        self._sets: dict[tuple[PathEntry, ...], ScopeSet] = {}
        self.version = 0  # changes when a term comes or goes
        self._paths = PathTable(self.relative, on_change)
        self._opening = PathTable(self.openers, on_change)

    # --- terms come and go ---

    def add(self, twig: Twig, link: int) -> Term:
        """A query's alternative, conditions of the document, for a link."""
        scope, twig = self._where(Linear(()), twig)
        term = self._hold(scope, twig, is_fact=False)
        term.take(link)
        return term

    def remove(self, term: Term, link: int) -> None:
        term.drop(link)
        if term.owners is None:
            self._release(term)

    def _where(self, path: Linear, twig: Twig) -> tuple[Scope, Twig]:
        """The scope of a twig: one condition that is a node with conditions is a term there."""
        while len(twig) == 1:
            (only,) = twig
            if only.inner is None or not only.positive:
                break
            path = Linear(path.steps + only.path.steps)
            twig = only.inner
        return self._scope(path), twig

    def _scope(self, path: Linear) -> Scope:
        scope = self.scopes.get(path)
        if scope is None:
            entry = self._opening.hold(path)
            scope = self.scopes[path] = self._by_entry[entry] = Scope(path, entry)
        return scope

    def _hold(self, scope: Scope, twig: Twig, is_fact: bool) -> Term:
        term = scope.terms.get((twig, is_fact))
        if term is None:
            term = scope.terms[twig, is_fact] = Term(scope, twig, is_fact)
            term.conditions = tuple([self._bound(scope, condition) for condition in twig])
            scope.add(term)
            self._changed()
        return term

    def _bound(self, scope: Scope, condition: Condition) -> Held:
        path, test = self._paths.hold(condition.path), condition.test
        column = inner = None
        if condition.inner is not None:
            below = self._scope(Linear(scope.path.steps + condition.path.steps))
            inner = self._hold(below, condition.inner, is_fact=True)
            inner.asking[path] = scope, inner.asking.get(path, (scope, 0))[1] + 1
        elif condition.column is not None:
            column = self._column(path, condition.column)
            column.refs += 1
            column.searches += test is not None and test.op == "contains"
        return Held(path, condition.positive, column, test, inner)

    def _release(self, term: Term) -> None:
        scope = term.scope
        del scope.terms[term.twig, term.is_fact]
        scope.remove(term)
        for path, _, column, test, inner in term.conditions:
            if column is not None:
                column.searches -= test is not None and test.op == "contains"
                column.refs -= 1
                if not column.refs:
                    del path.columns[column.column]
            elif inner is not None:
                uses = inner.asking[path][1] - 1
                if uses:
                    inner.asking[path] = scope, uses
                else:
                    del inner.asking[path]
                    if not inner.asking:
                        self._release(inner)
            self._paths.release(path)
        self._changed()
        if not scope.terms:
            del self.scopes[scope.path]
            del self._by_entry[scope.entry]
            self._opening.release(scope.entry)

    def _changed(self) -> None:
        self.version += 1
        self._sets.clear()

    def _column(self, path: PathEntry, column: Column) -> ColumnEntry:
        entry = path.columns.get(column)
        if entry is None:
            entry = path.columns[column] = ColumnEntry(column, path, self._limits.max_value_memo, self.work)
        return entry

    @property
    def paths(self) -> PathTable:
        """The paths below scopes that conditions name."""
        return self._paths

    @property
    def tables(self) -> tuple[PathTable, PathTable]:
        """All paths that a walk follows for frames."""
        return self._opening, self._paths

    def forget_looks(self) -> None:
        for path in self._paths:
            for column in path.columns.values():
                column.looks.clear()

    # --- documents ---

    def opened_by(self, accept: Accept | None) -> ScopeSet | None:
        """The scopes of the paths that end at a node."""
        if accept is None:
            return None
        key = tuple(accept.paths)
        scopes = self._sets.get(key)
        if scopes is None:
            if len(self._sets) >= _MAX_SETS:
                self._sets.clear()
            scopes = self._sets[key] = ScopeSet([self._by_entry[path] for path in key], self.work)
        return scopes
