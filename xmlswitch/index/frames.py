"""Conditions at nodes, decided node by node while a document is walked.

A *scope* is a path at whose nodes some queries have several conditions at once. When the walk enters such a node it
opens a *frame*; the paths below it that any condition names are noted in the frame; when the walk leaves the node, all
terms of its scopes are decided together, in blocks as everywhere in the index. A *term* is the conditions of one place:
either all that a query asks (then it has links), or a condition of a term further up (then it is a fact for that one).

What a frame's structure settles is remembered by what was noted in it: most nodes of a document are like others before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from xmlswitch.index.answers import bits_of, mask_of
from xmlswitch.index.automaton import Automaton
from xmlswitch.index.budget import FEW_LOOKS, LOOK_WORK, NODE_WORK
from xmlswitch.index.columns import ColumnEntry
from xmlswitch.index.conjunctions import Block, Bound, Entry, Job, Needs, left, run
from xmlswitch.index.looks import Look, look_of
from xmlswitch.index.path_table import PathTable
from xmlswitch.index.paths import PathEntry
from xmlswitch.query.atoms import Column, Linear, Test
from xmlswitch.query.evaluate import string_value
from xmlswitch.query.twigs import Condition, Twig

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.budget import Work
    from xmlswitch.index.paths import Accept
    from xmlswitch.limits import IndexLimits

_NONE: frozenset[PathEntry] = frozenset()
_YES = look_of("1")
_NO = look_of("")
_HOLDS = Test("nonempty", "")
_MAX_PROGRAMS = 512  # a scope set
_MAX_SETS = 4096  # of scopes that open together

# What a frame has noted: where paths ended, and the nodes there with their place in the document.
Frame = dict["Accept", list[tuple[int, Any]]]
# Which terms hold at which places.
Facts = dict["Term", set[int]]
# The string-values of elements, by place.
Texts = dict[int, str]


class Term(Entry):
    """Conditions of one place. `uses`: how many terms further up have it as a condition."""

    __slots__ = ("scope", "twig", "uses")

    def __init__(self, scope: Scope, twig: Twig) -> None:
        self.scope = scope
        self.twig = twig
        self.uses = 0
        self.owners = None
        self.bucket = None
        self.place = None
        self.slot = -1


class Scope:
    """The terms at one path: those of links, and those that are facts."""

    __slots__ = ("entry", "facts", "path", "paths", "sets", "terms", "wanted")

    def __init__(self, path: Linear, entry: PathEntry) -> None:
        self.path = path
        self.entry = entry
        self.paths: dict[PathEntry, int] = {}  # below it that its terms name, and how many do
        self.terms: dict[tuple[Twig, bool], Term] = {}
        self.wanted: list[Block] = []
        self.facts: list[Block] = []
        self.sets: list[ScopeSet] = []


class _Program:
    """What is left to do for a frame that noted these paths."""

    __slots__ = ("fact_jobs", "facts", "jobs", "links", "nodes")

    def __init__(self) -> None:
        self.links = 0
        self.facts: list[Term] = []
        self.jobs: list[Job] = []
        self.fact_jobs: list[Job] = []
        self.nodes: dict[PathEntry, list[Accept]] = {}  # where a path ended


class ScopeSet:
    """The scopes that one and the same node opens a frame for."""

    __slots__ = ("programs", "relevant", "scopes")

    def __init__(self, scopes: Iterable[Scope]) -> None:
        self.scopes = tuple(scopes)
        self.relevant = {path for scope in self.scopes for path in scope.paths}
        self.programs: dict[frozenset[Accept], _Program] = {}
        for scope in self.scopes:
            scope.sets.append(self)

    def program(self, noted: frozenset[Accept]) -> _Program:
        program = _Program()
        nodes = program.nodes
        for accept in noted:
            for path in self.relevant.intersection(accept.paths):
                if path in nodes:
                    nodes[path].append(accept)
                else:
                    nodes[path] = [accept]
        present = set(nodes)
        links: list[int] = []
        for scope in self.scopes:
            for held, facts in ((scope.wanted, False), (scope.facts, True)):
                for block in held:
                    slots, _ = block.allowed(present, _NONE)
                    if not slots:
                        continue
                    job, settled = block.job(slots)
                    if job is not None:
                        (program.fact_jobs if facts else program.jobs).append(job)
                    if facts:
                        program.facts += [block.entries[slot] for slot in bits_of(settled)]  # type: ignore[misc]
                    else:
                        links += block.links(settled)
        program.links = mask_of(links)
        if len(self.programs) >= _MAX_PROGRAMS:
            self.programs.clear()
        self.programs[noted] = program
        return program


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

    def _walks_changed(self) -> None:
        self.version += 1
        self._on_change()

    def _hold(self, scope: Scope, twig: Twig, fact: bool) -> Term:
        term = scope.terms.get((twig, fact))
        if term is None:
            term = scope.terms[twig, fact] = Term(scope, twig)
            needs, tests = self._bound(term)
            held = scope.facts if fact else scope.wanted
            if not held or held[-1].is_full:
                held.append(Block())
            held[-1].add(term, needs, tests)
            self._changed(term)  # a fact's scope, too, must decide again what its frames say
        return term

    def _release(self, term: Term, fact: bool) -> None:
        scope, block = term.scope, term.place
        del scope.terms[term.twig, fact]
        if block is not None:
            block.remove(term)
            held = scope.facts if fact else scope.wanted
            if not block.bits:
                held.remove(block)
            elif block.is_sparse:
                for other in block.take_all():
                    block.add(other, *self._bound(other, again=True))  # type: ignore[arg-type]
        for condition in term.twig:
            path = self._paths[condition.path]
            if condition.column is not None:
                self._release_column(path.columns[condition.column])
            elif condition.inner is not None:
                inner = self._inner(scope, condition)
                self._release_column(path.columns[_fact_column(condition.path, inner)])
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

    def _bound(self, term: Term, again: bool = False) -> tuple[Needs, list[Bound]]:
        """What a term needs; its paths, columns and facts are held, or (`again`) were held before."""
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
                column = self._column(path, _fact_column(condition.path, inner), again)
                tests.append(Bound(column, _HOLDS, positive))
                if positive:
                    required.add(path)
            elif condition.column is not None and condition.test is not None:
                column = self._column(path, condition.column, again)
                tests.append(Bound(column, condition.test, positive))
                if positive and not (column.first and condition.test.predicate(column.absent[0])):  # type: ignore[arg-type]
                    required.add(path)
            elif positive:
                required.add(path)
            else:
                absent.add(path)
        return Needs(frozenset(required), frozenset(absent), _NONE, False), tests

    def _changed(self, term: Term) -> None:
        if term.place is not None:
            term.place.links_changed()
        for scope_set in term.scope.sets:
            scope_set.programs.clear()

    def _column(self, path: PathEntry, column: Column, again: bool) -> ColumnEntry:
        entry = path.columns.get(column)
        if entry is None:
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
            scopes = self._sets[accept] = ScopeSet(self._by_entry[path] for path in accept.paths)
        return scopes

    def close(self, scopes: ScopeSet, frame: Frame, place: int, facts: Facts, texts: Texts, answer: Answer) -> None:
        """The walk leaves a node: decide the terms of its scopes."""
        noted = frozenset(frame)
        program = scopes.programs.get(noted)
        if program is None:
            program = scopes.program(noted)
        if program.links:
            answer.mask(program.links)
        for term in program.facts:
            facts.setdefault(term, set()).add(place)
        if not program.jobs and not program.fact_jobs:
            return
        values = _Values(program.nodes, frame, facts, texts, self.work)
        for job in program.fact_jobs:
            for slot in bits_of(left(job, values)):
                term = job.block.entries[slot]  # type: ignore[assignment]
                facts.setdefault(term, set()).add(place)
        run(program.jobs, values, answer)


class _Values(dict[ColumnEntry, "Look | list[Look]"]):
    """The values of a frame. `nodes`: where a path ended."""

    __slots__ = ("_facts", "_frame", "_nodes", "_texts", "_work")

    def __init__(
        self, nodes: dict[PathEntry, list[Accept]], frame: Frame, facts: Facts, texts: Texts, work: Work
    ) -> None:
        self._work = work
        self._nodes = nodes
        self._frame = frame
        self._facts = facts
        self._texts = texts

    def __missing__(self, column: ColumnEntry) -> Look | list[Look]:
        accepts = self._nodes.get(column.path)
        found = self[column] = _read(column, accepts, self._frame, self._facts, self._texts, self._work)
        return found


def _text(place: int, node: Any, texts: Texts, work: Work) -> str:
    """A node's string-value; an element's, which can be long to put together, only once per document."""
    if isinstance(node, str):
        return node
    text = texts.get(place)
    if text is None:
        text = texts[place] = string_value(node)
        work.charge(len(text) + NODE_WORK)
    return text


def _read(
    column: ColumnEntry, accepts: list[Accept] | None, frame: Frame, facts: Facts, texts: Texts, work: Work
) -> Look | list[Look]:
    if accepts is None or column.is_muted:
        return column.absent
    term = column.fact
    if term is not None:
        places = facts.get(term)
        if places and any(place in places for accept in accepts for place, _ in frame[accept]):
            return _YES
        return _NO
    if column.first:
        text = _text(*min((frame[accept][0] for accept in accepts), key=lambda pair: pair[0]), texts, work)
        return column.looks.get(text) or column.look(text)
    found: list[Look] = []
    for accept in accepts:
        if len(frame[accept]) > FEW_LOOKS:
            work.charge_column(column, LOOK_WORK * len(frame[accept]))
        for place, node in frame[accept]:
            text = _text(place, node, texts, work)
            found.append(column.looks.get(text) or column.look(text))
    return found[0] if len(found) == 1 else found


def _fact_column(path: Linear, term: Term) -> Column:
    """The column of nodes at which a term holds."""
    return Column(path, False, fact=term)
