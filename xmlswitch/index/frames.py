"""Conditions at nodes, decided node by node while a document is walked.

A *scope* is a path at whose nodes some queries have several conditions at once. When the walk enters such a node it
opens a *frame*; the paths below it that any condition names are noted in the frame; when the walk leaves the node, all
terms of its scopes are decided together, in blocks as everywhere in the index (`scope_sets`). A *term* is the
conditions of one place: either all that a query asks (then it has links), or a condition of a term further up (then it
is a fact for that one, noted in the frame there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xmlswitch.index.automaton import Automaton
from xmlswitch.index.columns import ColumnEntry
from xmlswitch.index.conjunctions import Bound, Needs
from xmlswitch.index.path_table import PathTable
from xmlswitch.index.paths import PathEntry
from xmlswitch.index.scope_sets import FactKey, Ledger, Scope, ScopeSet, Term, TermBlock
from xmlswitch.query.atoms import Column, Linear
from xmlswitch.query.twigs import Condition, Twig

if TYPE_CHECKING:
    from xmlswitch.index.budget import Work
    from xmlswitch.index.paths import Accept
    from xmlswitch.limits import IndexLimits

_NONE: frozenset[PathEntry] = frozenset()
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
        self._sets: dict[Accept, ScopeSet] = {}
        self.version = 0  # changes when a path or a scope comes or goes
        self._ledger = Ledger(work, limits.max_program_bytes, self._forget_programs)
        self._paths = PathTable(self.relative, self._walks_changed)
        self._opening = PathTable(self.openers, self._forget_sets)

    # --- terms come and go ---

    def add(self, twig: Twig, link: int) -> Term:
        """A query's alternative, conditions of the document, for a link."""
        scope, twig = self._where(Linear(()), twig)
        term = self._hold(scope, twig, fact=False)
        term.take(link)
        self._changed(term)
        return term

    def remove(self, term: Term, link: int) -> None:
        term.drop(link)
        self._changed(term)
        if term.owners is None:
            self._release(term, fact=False)

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

    def _forget_sets(self) -> None:
        """Which scopes open together, and what is noted for them, is found out again."""
        if self._sets:
            self._sets.clear()
            for scope in self.scopes.values():
                scope.sets.clear()
        self._walks_changed()

    def _forget_programs(self) -> None:
        for scope_set in self._sets.values():
            scope_set.forget()

    def _walks_changed(self) -> None:
        self.version += 1
        self._on_change()

    def _hold(self, scope: Scope, twig: Twig, fact: bool) -> Term:
        term = scope.terms.get((twig, fact))
        if term is None:
            term = scope.terms[twig, fact] = Term(scope, twig)
            needs, tests, facts = self._bound(term)
            held = scope.facts if fact else scope.wanted
            if not held or held[-1].is_full:
                held.append(TermBlock())
            held[-1].add_term(term, needs, tests, facts)
            self._changed(term)  # a fact's scope, too, must decide again what its frames say
        return term

    def _release(self, term: Term, fact: bool) -> None:
        scope, block = term.scope, term.place
        del scope.terms[term.twig, fact]
        if isinstance(block, TermBlock):
            block.remove(term)
            held = scope.facts if fact else scope.wanted
            if not block.bits:
                held.remove(block)
            elif block.is_sparse:
                for other in block.take_all():
                    block.add_term(other, *self._bound(other, again=True))  # type: ignore[arg-type]
        for condition in term.twig:
            path = self._paths[condition.path]
            if condition.column is not None:
                path.columns[condition.column].searches -= (
                    condition.test is not None and condition.test.op == "contains"
                )
                self._release_column(path.columns[condition.column])
            elif condition.inner is not None:
                inner = self._inner(scope, condition)
                scope.drop_fact((path, inner))
                inner.uses -= 1
                if not inner.uses:
                    self._release(inner, fact=True)
            scope.paths[path] -= 1
            if not scope.paths[path]:
                del scope.paths[path]
            self._paths.release(path)
        self._changed(term)
        if not scope.terms:
            del self.scopes[scope.path]
            del self._by_entry[scope.entry]
            self._opening.release(scope.entry)

    def _inner(self, scope: Scope, condition: Condition) -> Term:
        path = Linear(scope.path.steps + condition.path.steps)
        if condition.inner is None:
            raise ValueError("not a condition with conditions inside")
        return self.scopes[path].terms[condition.inner, True]

    def _bound(self, term: Term, again: bool = False) -> tuple[Needs, list[Bound], list[tuple[FactKey, bool]]]:
        """What a term needs; its paths, columns and facts are held, or (`again`) were held before."""
        facts: list[tuple[FactKey, bool]] = []
        required: set[PathEntry] = set()
        absent: set[PathEntry] = set()
        tests: list[Bound] = []
        for condition in term.twig:
            path = self._paths[condition.path] if again else self._paths.hold(condition.path)
            if not again:
                uses = term.scope.paths[path] = term.scope.paths.get(path, 0) + 1
                if uses == 1:
                    self._forget_sets()
            positive = condition.positive
            if condition.inner is not None:
                if again:
                    inner = self._inner(term.scope, condition)
                else:
                    below = Linear(term.scope.path.steps + condition.path.steps)
                    inner = self._hold(self._scope(below), condition.inner, fact=True)
                    inner.uses += 1
                    term.scope.hold_fact((path, inner))
                facts.append(((path, inner), positive))
                if positive:
                    required.add(path)
            elif condition.column is not None and condition.test is not None:
                column = self._column(path, condition.column, again)
                column.searches += not again and condition.test.op == "contains"
                tests.append(Bound(column, condition.test, positive))
                if positive and not (column.first and condition.test.predicate(column.absent[0])):  # type: ignore[arg-type]
                    required.add(path)
            elif positive:
                required.add(path)
            else:
                absent.add(path)
        return Needs(frozenset(required), frozenset(absent), _NONE, False), tests, facts

    def _changed(self, term: Term) -> None:
        self._ledger.changes += 1
        if term.place is not None:
            term.place.links_changed()
        for scope_set in term.scope.sets:
            scope_set.forget()

    def _column(self, path: PathEntry, column: Column, again: bool) -> ColumnEntry:
        entry = path.columns.get(column)
        if entry is None:
            if not path.columns:
                self._forget_sets()  # from now on its nodes are kept
            entry = path.columns[column] = ColumnEntry(column, path, self._limits.max_value_memo, self.work)
        if not again:
            entry.refs += 1
        return entry

    def _release_column(self, entry: ColumnEntry) -> None:
        entry.refs -= 1
        if not entry.refs:
            del entry.path.columns[entry.column]

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
        scopes = self._sets.get(accept)
        if scopes is None:
            if len(self._sets) >= _MAX_SETS:
                self._forget_sets()
            scopes = self._sets[accept] = ScopeSet([self._by_entry[path] for path in accept.paths], self._ledger)
        return scopes
