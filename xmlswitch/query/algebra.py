"""Queries against each other: which covers which, and one query for many.

Both stand on the conjunctions of `plan`: a conjunction is a necessary condition of its query's packets, and sufficient
when it has neither `unique` nor `verify`. All answers err on the safe side: `covers` says no when it doesn't know,
`disjoin` asks for more when it must stay small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from xmlswitch.errors import QueryTooExpensiveError
from xmlswitch.limits import QUERY_LIMITS, QueryLimits
from xmlswitch.query.atoms import Atom, Conjunction, Linear, Test
from xmlswitch.query.canonical import joined
from xmlswitch.query.query import Query
from xmlswitch.query.syntax import FALSE, TRUE, Expr
from xmlswitch.query.widening import most_telling, root_of
from xmlswitch.query.writing import write

MAX_DISJUNCTION_CHARS = 2048  # a query travels in join messages of one datagram
MAX_EXCESS = 8  # times the wanted length: beyond it leaving out what others cover is not tried, it would not suffice
# Units of `Fuel`, each about a microsecond.
COVERS_FUEL = 5_000
DISJOIN_FUEL = 15_000
WIDEN_FUEL = 30_000  # kept for making members smaller, when looking for savings took all the rest
_CHARS_A_UNIT = 16  # that are written again
_PLAN_FUEL, _PART_FUEL, _WIDEN_FUEL = 40, 4, 15  # a plan of 64 characters, a query of a part, a conjunction widened


class Fuel:
    """Work that may still be done, in units of about a microsecond: one counter through all of an operation.

    What runs out of it gives the safe answer: not covered, or everything.
    """

    __slots__ = ("left",)

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            raise _OutOfFuel


class _OutOfFuel(Exception):
    """The safe answer will have to do."""


def covers(general: Query, special: Query, *, fuel: Fuel | None = None) -> bool:
    """If true, every packet that matches `special` matches `general`. False may also mean: not known, or no fuel."""
    if general == special or general.matches_everything or special.matches_nothing:
        return True
    if general.expr is None or special.expr is None:
        return False
    try:
        return _covers(general, special, fuel or Fuel(COVERS_FUEL))
    except _OutOfFuel:
        return False


def _covers(general: Query, special: Query, fuel: Fuel) -> bool:
    fuel.spend(1)
    if special.alternatives.keys() <= general.alternatives.keys():
        return True
    sufficient = _sides(general, fuel).sufficient
    return bool(sufficient) and all(_covered(part, sufficient, fuel) for part in _sides(special, fuel).necessary)


class _Side:
    """One conjunction, made ready to be compared.

    `names`: what the other side must have, too, for this one to be implied, or what it has itself: names of elements
    and attributes, and texts that values are equal to. Most pairs differ in these.
    """

    __slots__ = ("literals", "names")

    def __init__(self, literals: Iterable[tuple[Atom, bool]]) -> None:
        self.literals = [(atom, positive, atom.needs_path) for atom, positive in literals]
        names: set[object] = set()
        for atom, positive, _ in self.literals:
            if positive:
                names.update(name for _, name in atom.path.steps if name[-1] != "*")
                if atom.path.tail[:1] == "@" and atom.path.tail != "@*":
                    names.add(atom.path.tail)
                if atom.test is not None and atom.test.op == "=":
                    names.add(("=", atom.test.operand))
        self.names = names


class _Sides:
    """A query's conjunctions: as what a packet must meet, and as what is enough."""

    __slots__ = ("necessary", "sufficient")

    def __init__(self, conjunctions: Sequence[Conjunction]) -> None:
        self.necessary: list[_Side] = []
        self.sufficient: list[_Side] = []
        for conjunction in conjunctions:
            exact = not (conjunction.unique or conjunction.verify)
            # Below a repeated branch the negative conditions need not hold: only the positive ones are necessary.
            self.necessary.append(_Side(conjunction.literals if exact else [p for p in conjunction.literals if p[1]]))
            if exact:
                self.sufficient.append(self.necessary[-1])


def names_of(query: Query) -> frozenset[object]:
    """What any query must have that this one covers or is covered by: see `_Side`. None alone: no name at all."""
    known: frozenset[object] | None = query.__dict__.get("names")
    if known is None:
        sides = [_Side(conjunction.literals).names for conjunction in query.plan.conjunctions]
        common = frozenset[object](set.intersection(*sides)) if sides else frozenset()
        known = query.__dict__["names"] = common or frozenset({None})
    return known


def _sides(query: Query, fuel: Fuel) -> _Sides:
    known: _Sides | None = query.__dict__.get("sides")
    if known is None:
        _spend_on_plan(query, fuel)
        known = query.__dict__["sides"] = _Sides(query.plan.conjunctions)
    return known


def _spend_on_plan(query: Query, fuel: Fuel) -> None:
    if "plan" not in query.__dict__:
        fuel.spend(_PLAN_FUEL * (1 + len(query.canonical) // 64))


def _covered(necessary: _Side, sufficient: list[_Side], fuel: Fuel) -> bool:
    """Whether a packet that meets a necessary condition of one query must match another."""
    fuel.spend(len(sufficient) // 4)
    return any(
        side.names <= necessary.names
        and all(any(_implies(given, wanted, fuel) for given in necessary.literals) for wanted in side.literals)
        for side in sufficient
    )


_Ready = tuple[Atom, bool, bool]  # an atom, whether it is positive, whether it needs its path


def _implies(given: _Ready, wanted: _Ready, fuel: Fuel) -> bool:
    (atom, positive, needs_path), (other, other_positive, other_needs_path) = given, wanted
    if positive != other_positive:
        return False
    if atom == other:
        return True
    fuel.spend(1 + len(atom.path.steps) * len(other.path.steps) // 8)
    if positive:
        return _stronger(atom, needs_path, other)
    # not(X) implies not(Y) when Y implies X.
    return _stronger(other, other_needs_path, atom)


def _stronger(atom: Atom, needs_path: bool, other: Atom) -> bool:
    """Whether a document in which `atom` holds has `other` too."""
    if other.column is None or other.test is None:
        return needs_path and _path_implies(atom.path, other.path)
    if atom.column is None or atom.test is None:
        return False
    if atom.column.chain != other.column.chain:
        return False
    if not _test_implies(atom.test, other.test):
        return False
    if atom.column == other.column:
        return True
    # A first node that passes is a node that passes; the other way round only the same column will do.
    return not other.column.first and needs_path and _same_nodes(atom.path, other.path)


def _same_nodes(path: Linear, wider: Linear) -> bool:
    """Whether every node of `path` is a node of `wider`."""
    if path == wider:
        return True
    if path.tail != wider.tail and not (wider.tail == "@*" and path.tail[:1] == "@"):
        return False
    if path.deep and not wider.deep:
        return False
    return _steps_within(path.steps, wider.steps, free_end=wider.deep)


def _path_implies(path: Linear, other: Linear) -> bool:
    """Whether a document with a node on `path` has one on `other`."""
    if _same_nodes(path, other):
        return True
    if other.tail:
        return False
    # An ancestor of the node will do: try `other` on every prefix of the path.
    return any(_steps_within(path.steps[:depth], other.steps) for depth in range(1, len(path.steps) + 1))


Steps = tuple[tuple[bool, str], ...]


def _steps_within(steps: Steps, wider: Steps, free_end: bool = False) -> bool:
    """Whether any element reached by `steps` is reached by `wider` (`free_end`: or lies below one).

    Sound, not complete: each step of `wider` is mapped to a step of `steps` in order. A child step must map right after
    the one before, through a child step; a descendant step may skip.
    """
    if not wider:
        return free_end or not steps
    # reachable: how many of `steps` may be used up by what of `wider` was mapped so far.
    reachable = {0}
    for deep, name in wider:
        following: set[int] = set()
        for used in reachable:
            candidates = range(used, len(steps)) if deep else range(used, min(used + 1, len(steps)))
            for at in candidates:
                own_deep, own_name = steps[at]
                if (deep or not own_deep) and _name_within(own_name, name):
                    following.add(at + 1)
        reachable = following
    return bool(reachable) if free_end else len(steps) in reachable


def _name_within(name: str, wider: str) -> bool:
    if wider in ("*", name):
        return True
    return wider.endswith("}*") and name.startswith(wider[:-1])


def _test_implies(test: Test, other: Test) -> bool:
    """Whether any value that passes `test` passes `other`."""
    if test == other:
        return True
    if test.op == "=":
        return other.predicate(str(test.operand))
    if test.is_numeric and other.is_numeric:
        return _range_implies(test.op[1:], float(test.operand), other.op[1:], float(other.operand))
    if other.op == "nonempty":
        return (test.is_numeric and test.op != "n!=") or test.op in ("starts-with", "contains")
    text, part = str(test.operand), str(other.operand)
    if test.op == "starts-with":
        if other.op == "!=":
            return not part.startswith(text)
        return text.startswith(part) if other.op == "starts-with" else other.op == "contains" and part in text
    if test.op == "contains":
        return part in text if other.op == "contains" else other.op == "!=" and text not in part
    return test.op == "nonempty" and other.op == "!=" and part == ""


def _range_implies(op: str, value: float, other: str, bound: float) -> bool:
    if op == "=":
        return Test("n" + other, bound).predicate(_numeral(value))
    if op in (">", ">="):
        if other == ">":
            return value > bound or (value == bound and op == ">")
        if other == ">=":
            return value >= bound
        return other == "!=" and (value > bound or (value == bound and op == ">"))
    if op in ("<", "<="):
        if other == "<":
            return value < bound or (value == bound and op == "<")
        if other == "<=":
            return value <= bound
        return other == "!=" and (value < bound or (value == bound and op == "<"))
    return False


def _numeral(value: float) -> str:
    from xmlswitch.query.numerals import to_string

    return to_string(value)


# --- one query for many ---


def disjoin(
    queries: Iterable[Query],
    *,
    max_chars: int = MAX_DISJUNCTION_CHARS,
    limits: QueryLimits = QUERY_LIMITS,
    fuel: Fuel | None = None,
) -> Query:
    """A query that matches whatever one of the given ones matches.

    Exact and without the members that others cover, as long as it fits in `max_chars`; then members are widened to what
    they have in common, step by step, in the end to everything. Never narrower. No queries at all: nothing matches.
    Without fuel nothing is left out, and what then does not fit is everything.
    """
    fuel = fuel or Fuel(DISJOIN_FUEL)
    members = list(dict.fromkeys(queries))
    if any(query.matches_everything for query in members):
        return _query(TRUE, limits)
    if any(query.expr is None for query in members):
        # XPath 2.0+ has no place in an XPath 1.0 disjunction.
        return members[0] if len(members) == 1 else _query(TRUE, limits)
    try:
        return _disjoined(members, max_chars, limits, fuel)
    except (_OutOfFuel, QueryTooExpensiveError):
        return _query(TRUE, limits)


def _disjoined(members: list[Query], max_chars: int, limits: QueryLimits, fuel: Fuel) -> Query:
    kept = _alternatives(members, fuel)
    if sum(len(query.canonical) for query in kept) <= MAX_EXCESS * max_chars:
        kept = _without_covered(kept, fuel)
    if _fits(kept, max_chars):
        return _joined(kept, limits)
    fuel.left = max(fuel.left, WIDEN_FUEL)
    for widen in (_widened_tests, _paths_only, _roots_only):
        widened: dict[Query, None] = {}
        for query in kept:
            _spend_on_plan(query, fuel)
            fuel.spend(_WIDEN_FUEL * len(query.plan.conjunctions))
            widened.update(dict.fromkeys(widen(query, limits)))
        if any(query.matches_everything for query in widened):
            break
        kept = _without_covered(list(widened), fuel)
        if _fits(kept, max_chars):
            return _joined(kept, limits)
    return _query(TRUE, limits)


def _alternatives(members: list[Query], fuel: Fuel) -> list[Query]:
    """The members of all the disjunctions, each once."""
    found: dict[Query, None] = {}
    for query in members:
        if query.matches_nothing:
            continue
        fuel.spend(len(query.canonical) // _CHARS_A_UNIT)
        parts = query._parts()
        fuel.spend(_PART_FUEL * len(parts))
        found.update(dict.fromkeys(parts))
    return list(found)


def _joined(kept: list[Query], limits: QueryLimits) -> Query:
    if len(kept) == 1:
        return kept[0]
    return _query(joined("or", [query.expr for query in kept if query.expr is not None]) or FALSE, limits)


def _query(expr: Expr, limits: QueryLimits) -> Query:
    return Query._from_expr(expr, limits)


def _fits(queries: Sequence[Query], max_chars: int) -> bool:
    return sum(len(query.canonical) + 4 for query in queries) <= max_chars + 4


def _without_covered(queries: list[Query], fuel: Fuel) -> list[Query]:
    """The same without those that others cover, the longest first; as many as the fuel allows.

    A query can cover only those that have all its names: it is looked for under the rarest of them.
    """
    ordered = sorted(queries, key=lambda q: (len(q.canonical), q.canonical))
    left = dict.fromkeys(ordered)
    try:
        common = Counter(
            name for query in ordered for side in _sides(query, fuel).sufficient for name in side.names or (None,)
        )
        places: dict[object, dict[Query, None]] = {}
        for query in ordered:
            for side in _sides(query, fuel).sufficient:
                rarest = min(side.names, key=lambda name: (common[name], str(name)), default=None)
                places.setdefault(rarest, {})[query] = None
        for query in reversed(ordered):
            necessary = _sides(query, fuel).necessary
            if not necessary:
                del left[query]  # no packet matches it
                continue
            names = [None, *sorted(necessary[0].names, key=str)]
            candidates = dict.fromkeys(other for name in names for other in places.get(name, ()))
            if any(other in left and other is not query and _covers(other, query, fuel) for other in candidates):
                del left[query]
    except _OutOfFuel:
        pass
    return list(left)


def _widened_tests(query: Query, limits: QueryLimits) -> list[Query]:
    """Each conjunction by its one most telling condition; equalities as they are, everything else as existence."""
    return [_of_canonical(most_telling(conjunction), limits) for conjunction in query.plan.conjunctions]


def _paths_only(query: Query, limits: QueryLimits) -> list[Query]:
    return [_of_canonical(most_telling(conjunction, tests=False), limits) for conjunction in query.plan.conjunctions]


def _roots_only(query: Query, limits: QueryLimits) -> list[Query]:
    return [_query(root_of(conjunction), limits) for conjunction in query.plan.conjunctions]


def _of_canonical(expr: Expr, limits: QueryLimits) -> Query:
    return Query._of_canonical(expr, write(expr), limits)
