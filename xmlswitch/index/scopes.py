"""What is decided at a node: the terms of all scopes that open a frame there, in a few operations on integers.

Each condition of a term is a bit. A frame is one integer in which the walk sets the bits of what it comes by, so what
a node costs depends on what is there, not on all that somebody asks for. The bits of a term stand side by side, with a
*guard* above them: when one is added at the lowest, the carry comes to the guard if all are set. So one addition
decides all terms of a frame. A condition that says what must not be there has its bit flipped before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xmlswitch.index.answers import bits_of
from xmlswitch.index.budget import SPOT_WORK
from xmlswitch.index.conjunctions import Owned
from xmlswitch.index.ladders import LARGEST, Ladder
from xmlswitch.index.value_tests import ValueTests
from xmlswitch.query.atoms import Test

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.budget import Work
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.looks import Look
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.query.atoms import Linear
    from xmlswitch.query.twigs import Twig

_RELATIONAL = frozenset({"n<", "n<=", "n>", "n>="})
_PAGE = 2048  # bits of a ladder: each of its rows has a bit for each test
_PAGE_FULL = (1 << _PAGE) - 1
_MAX_MEANINGS = 512  # sets of paths of which a set of scopes knows what they mean
_MIN_WASTE = 256  # bits of terms that are gone, before the others are put together again
# What a node of a path means to a scope: what every node does; tests on its value; the same for its first node, which
# is told by the flag.
Meaning = tuple[int, "dict[ColumnEntry, Tests]", int, "dict[ColumnEntry, Tests]"]


class Held(NamedTuple):
    """A condition of a term, bound: a path, and a test on a column's value there, or a term that holds there."""

    path: PathEntry
    positive: bool
    column: ColumnEntry | None
    test: Test | None
    inner: Term | None


class Term(Owned):
    """Conditions of one place: all that a query asks (then it has owners), or a *fact* for terms further up."""

    __slots__ = ("asking", "conditions", "end", "is_fact", "scope", "start", "twig")

    def __init__(self, scope: Scope, twig: Twig, is_fact: bool) -> None:
        self.owners = None
        self.scope = scope
        self.twig = twig
        self.is_fact = is_fact
        self.conditions: tuple[Held, ...] = ()
        self.asking: dict[PathEntry, tuple[Scope, int]] = {}  # scopes further up, by the path; and how many terms
        self.start = self.end = 0  # of its bits


class Tests:
    """Tests on one column: the bits of those that a value passes."""

    __slots__ = ("_inverted", "_ladders", "_others", "_values")

    def __init__(self) -> None:
        self._values: ValueTests | None = None
        self._others: ValueTests | None = None  # that a value passes unless it is that one
        self._ladders: dict[int, tuple[Ladder, int]] = {}  # by page; with its bits
        self._inverted = 0  # of tests that a value must fail

    def add(self, place: int, test: Test, wanted: bool) -> None:
        if not wanted:
            self._inverted |= 1 << place
        if test.op in _RELATIONAL and abs(float(test.operand)) < LARGEST:
            page, at = divmod(place, _PAGE)
            ladder, bits = self._ladders.get(page) or (Ladder(), 0)
            ladder.add(at, test.op, float(test.operand), True)
            self._ladders[page] = ladder, bits | 1 << at
        elif test.op in ("!=", "n!="):
            self._others = self._others or ValueTests(unless=False, every=True)
            self._others.add(place, test)
        else:
            self._values = self._values or ValueTests(unless=True, every=False)
            self._values.add(place, test)

    @property
    def plain(self) -> dict[str, int] | None:
        """The bits of texts, when all tests are equality with texts."""
        if self._values is None or self._others is not None or self._ladders or self._inverted:
            return None
        kind = self._values.one_kind
        return None if kind is None or kind[0] is not None else kind[1]

    def passed(self, look: Look) -> int:
        found = self._inverted
        if self._values is not None:
            found ^= self._values.hit(look[0], look[1])
        if self._others is not None:
            found ^= self._others.all ^ self._others.hit(look[0], look[1])
        for page, (ladder, bits) in self._ladders.items():
            ladder.settle(_PAGE_FULL)
            row = ladder.rows[bisect_right(ladder.keys, look[3])] & bits
            found ^= row << page * _PAGE if page else row
        return found


class Scope:
    """The terms at one path. A bit is used again only when so many terms are gone that the others are moved."""

    __slots__ = (
        "_firsts",
        "_flags",
        "_nodes",
        "_tests",
        "_waste",
        "at",
        "entry",
        "fact_bits",
        "facts",
        "flips",
        "guards",
        "low",
        "path",
        "size",
        "terms",
        "wanted",
    )

    def __init__(self, path: Linear, entry: PathEntry) -> None:
        self.path = path
        self.entry = entry
        self.terms: dict[tuple[Twig, bool], Term] = {}
        self._clear()

    def _clear(self) -> None:
        self.size = 0  # bits
        self.low = self.guards = self.flips = 0
        self.wanted = self.facts = 0  # guards of terms that have owners, and of those that are facts
        self.at: dict[int, Term] = {}  # by guard
        self.fact_bits: dict[tuple[PathEntry, Term], int] = {}
        self._nodes: dict[PathEntry, int] = {}
        self._flags: dict[PathEntry, int] = {}
        self._tests: dict[PathEntry, dict[ColumnEntry, Tests]] = {}
        self._firsts: dict[PathEntry, dict[ColumnEntry, Tests]] = {}
        self._waste = 0

    def add(self, term: Term) -> None:
        for held in term.conditions:
            if held.column is not None and held.column.first and held.path not in self._flags:
                self._flags[held.path] = 1 << self.size
                self.size += 1
        place = term.start = self.size
        for at, held in enumerate(term.conditions, place):
            self._add(at, held)
        term.end = term.start + len(term.conditions)
        self.size = term.end + 1
        self.at[term.end] = term
        self.low |= 1 << term.start
        self.guards |= 1 << term.end
        if term.is_fact:
            self.facts |= 1 << term.end
        else:
            self.wanted |= 1 << term.end

    def _add(self, place: int, held: Held) -> None:
        path, positive, column, test, inner = held
        flipped = not positive
        if inner is not None:
            self.fact_bits[path, inner] = self.fact_bits.get((path, inner), 0) | 1 << place
        elif column is None or test is None:
            self._nodes[path] = self._nodes.get(path, 0) | 1 << place
        elif not column.first:
            self._tests.setdefault(path, {}).setdefault(column, Tests()).add(place, test, True)
        else:  # one value, that of the first node; another one where there is no node
            flipped = test.predicate(column.absent[0]) == positive  # type: ignore[arg-type]
            self._firsts.setdefault(path, {}).setdefault(column, Tests()).add(place, test, positive != flipped)
        if flipped:
            self.flips |= 1 << place

    def remove(self, term: Term) -> None:
        guard = ~(1 << term.end)
        self.low &= ~(1 << term.start)
        self.guards &= guard
        self.wanted &= guard
        self.facts &= guard
        del self.at[term.end]
        self._waste += 1 + len(term.conditions)
        if self._waste > max(_MIN_WASTE, self.size // 2):
            self._clear()
            for other in self.terms.values():
                self.add(other)

    def meaning(self, path: PathEntry) -> Meaning | None:
        """What a node where a path ends means."""
        found = (
            self._nodes.get(path, 0),
            self._tests.get(path, {}),
            self._flags.get(path, 0),
            self._firsts.get(path, {}),
        )
        return found if any(found) else None


class ScopeSet:
    """The scopes that one and the same node opens a frame for, as they are now: one after the other in one integer."""

    __slots__ = (
        "_bases",
        "_meanings",
        "_scopes",
        "_terms",
        "_work",
        "at",
        "facts",
        "flips",
        "guards",
        "idle",
        "low",
        "size",
        "wanted",
    )

    def __init__(self, scopes: Sequence[Scope], work: Work) -> None:
        self._scopes = scopes
        self._work = work
        work.charge(SPOT_WORK * len(scopes))
        self._meanings: dict[Accept, list[tuple[int, Meaning]]] = {}
        self._bases: list[int] = []
        self._terms: dict[int, Term] = {}  # by guard, as far as they were asked for
        self.at: dict[Scope, int] = {}  # where its bits begin
        self.size = self.low = self.guards = self.flips = self.wanted = self.facts = 0
        for scope in scopes:
            base = self.size
            self._bases.append(base)
            self.at[scope] = base
            self.low |= scope.low << base
            self.guards |= scope.guards << base
            self.flips |= scope.flips << base
            self.wanted |= scope.wanted << base
            self.facts |= scope.facts << base
            self.size += scope.size
        self.idle = (self.flips + self.low) & self.guards  # what holds where nothing was noted

    def terms(self, guards: int) -> list[Term]:
        """The terms with these guards."""
        known = self._terms
        return [known.get(at) or self._term(at) for at in bits_of(guards)]

    def _term(self, at: int) -> Term:
        number = bisect_right(self._bases, at) - 1
        term = self._terms[at] = self._scopes[number].at[at - self._bases[number]]
        return term

    def meanings(self, accept: Accept) -> list[tuple[int, Meaning]]:
        """What a node where these paths end means, and where the bits of that begin."""
        found = self._meanings.get(accept)
        if found is None:
            if len(self._meanings) >= _MAX_MEANINGS:
                self._meanings.clear()
            self._work.charge(SPOT_WORK * len(self.at) * len(accept.paths))
            found = self._meanings[accept] = []
            for scope, base in self.at.items():
                for path in accept.paths:
                    meaning = scope.meaning(path)
                    if meaning is not None:
                        found.append((base, meaning))
        return found

    def report(self, guards: int, answer: Answer) -> None:
        found: list[int] = []
        for term in self.terms(guards):
            if isinstance(term.owners, int):
                found.append(term.owners)
            elif term.owners is not None:
                found += term.owners
        answer.all_of(found)

    def raised(self, paths: Iterable[PathEntry], terms: Iterable[Term]) -> int:
        """The bits of terms here that ask for one of these terms at a node where these paths end."""
        bits = 0
        for term in terms:
            for path in paths:
                asking = term.asking.get(path)
                if asking is not None and (base := self.at.get(asking[0])) is not None:
                    bits |= asking[0].fact_bits[path, term] << base
        return bits
