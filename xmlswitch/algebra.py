"""Queries against each other: which covers which, and one query for many.

Both stand on the conjunctions of `plan`: a conjunction is a necessary condition of its query's packets, and sufficient
when it has neither `unique` nor `verify`. All answers err on the safe side: `covers` says no when it doesn't know,
`disjoin` asks for more when it must stay small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xmlswitch.atoms import Atom, Column, Conjunction, Linear, Test
from xmlswitch.canonical import joined, write
from xmlswitch.limits import QUERY_LIMITS, QueryLimits
from xmlswitch.query import Query
from xmlswitch.syntax import FALSE, TRUE, Expr, Literal, Number, Path, Step, flattened

MAX_DISJUNCTION_CHARS = 2048  # a query travels in join messages of one datagram
MAX_PAIRS = 40_000  # comparisons that one disjoin may make before it stops looking for savings


def covers(general: Query, special: Query) -> bool:
    """If true, every packet that matches `special` matches `general`. False may also mean: not known."""
    if general == special or general.matches_everything or special.matches_nothing:
        return True
    if general.expr is None or special.expr is None:
        return False
    parts = set(map(write, flattened(general.expr, "or")))
    if all(write(part) in parts for part in flattened(special.expr, "or")):
        return True
    return all(_covered(necessary, general, special) for necessary in special.plan.conjunctions)


def _covered(necessary: Conjunction, general: Query, special: Query) -> bool:
    """Whether a packet that meets a necessary condition of `special` must match `general`."""
    usable = necessary.literals
    if necessary.unique or necessary.verify:
        # Below a repeated branch the negative conditions need not hold: only the positive ones are necessary.
        usable = frozenset(pair for pair in usable if pair[1])
    for sufficient in general.plan.conjunctions:
        if sufficient.verify or sufficient.unique:
            continue
        if all(any(_implies(given, wanted) for given in usable) for wanted in sufficient.literals):
            return True
    return False


def _implies(given: tuple[Atom, bool], wanted: tuple[Atom, bool]) -> bool:
    (atom, positive), (other, other_positive) = given, wanted
    if given == wanted:
        return True
    if positive and other_positive:
        return _stronger(atom, other)
    # not(X) implies not(Y) when Y implies X.
    return not positive and not other_positive and _stronger(other, atom)


def _stronger(atom: Atom, other: Atom) -> bool:
    """Whether a document in which `atom` holds has `other` too."""
    if atom == other:
        return True
    if other.column is None or other.test is None:
        return atom.needs_path and _path_implies(atom.path, other.path)
    if atom.column is None or atom.test is None:
        return False
    if atom.column.chain != other.column.chain:
        return False
    if not _test_implies(atom.test, other.test):
        return False
    if atom.column == other.column:
        return True
    # A first node that passes is a node that passes; the other way round only the same column will do.
    return not other.column.first and atom.needs_path and _same_nodes(atom.path, other.path)


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
    from xmlswitch.numerals import to_string

    return to_string(value)


# --- one query for many ---


def disjoin(
    queries: Iterable[Query], *, max_chars: int = MAX_DISJUNCTION_CHARS, limits: QueryLimits = QUERY_LIMITS
) -> Query:
    """A query that matches whatever one of the given ones matches.

    Exact and without the members that others cover, as long as it fits in `max_chars`; then members are widened to what
    they have in common, step by step, in the end to everything. Never narrower. No queries at all: nothing matches.
    """
    members = list(dict.fromkeys(queries))
    if any(query.matches_everything for query in members):
        return _query(TRUE, limits)
    if any(query.expr is None for query in members):
        # XPath 2.0+ has no place in an XPath 1.0 disjunction.
        return members[0] if len(members) == 1 else _query(TRUE, limits)
    parts: dict[str, Expr] = {}
    for query in members:
        for part in flattened(query.expr, "or") if query.expr is not None else []:
            parts.setdefault(write(part), part)
    parts.pop(write(FALSE), None)
    kept = _without_covered([_query(part, limits) for part in parts.values()])
    if _fits(kept, max_chars):
        whole = joined("or", [query.expr for query in kept if query.expr is not None])
        return _query(whole or FALSE, limits)
    for widen in (_widened_tests, _paths_only, _roots_only):
        kept = _without_covered(list(dict.fromkeys(w for query in kept for w in widen(query, limits))))
        if any(query.matches_everything for query in kept):
            break
        if _fits(kept, max_chars):
            whole = joined("or", [query.expr for query in kept if query.expr is not None])
            return _query(whole or FALSE, limits)
    return _query(TRUE, limits)


def _query(expr: Expr, limits: QueryLimits) -> Query:
    return Query._from_expr(expr, limits)


def _fits(queries: Sequence[Query], max_chars: int) -> bool:
    return sum(len(query.canonical) + 4 for query in queries) <= max_chars + 4


def _without_covered(queries: list[Query]) -> list[Query]:
    if len(queries) ** 2 > MAX_PAIRS:
        return queries
    kept: list[Query] = []
    for query in sorted(queries, key=lambda q: (len(q.canonical), q.canonical)):
        if any(covers(other, query) for other in kept):
            continue
        kept = [other for other in kept if not covers(query, other)]
        kept.append(query)
    return kept


def _widened_tests(query: Query, limits: QueryLimits) -> list[Query]:
    """Each conjunction by its one most telling condition; equalities as they are, everything else as existence."""
    return [_of_conjunction(conjunction, limits, tests=True) for conjunction in query.plan.conjunctions]


def _paths_only(query: Query, limits: QueryLimits) -> list[Query]:
    return [_of_conjunction(conjunction, limits, tests=False) for conjunction in query.plan.conjunctions]


def _roots_only(query: Query, limits: QueryLimits) -> list[Query]:
    found = []
    for conjunction in query.plan.conjunctions:
        paths = [atom.path for atom, positive in conjunction.literals if positive and atom.needs_path]
        steps = next((path.steps[:1] for path in sorted(paths) if path.steps), ())
        found.append(_query(_as_path(Linear(steps)) if steps else TRUE, limits))
    return found


def _of_conjunction(conjunction: Conjunction, limits: QueryLimits, *, tests: bool) -> Query:
    atoms = [atom for atom, positive in conjunction.literals if positive and atom.needs_path]
    if not atoms:
        return _query(TRUE, limits)
    best = min(atoms, key=lambda atom: (_weakness(atom), write(_as_path(atom.path))))
    expr: Expr = _as_path(best.path)
    if tests and best.test is not None and best.column == Column(best.path) and best.test.op in ("=", "n="):
        from xmlswitch.syntax import Binary

        value: Expr = Number(float(best.test.operand)) if best.test.is_numeric else Literal(str(best.test.operand))
        if not (isinstance(value, Literal) and '"' in value.value and "'" in value.value):
            expr = Binary("=", expr, value)
    return _query(expr, limits)


def _weakness(atom: Atom) -> int:
    if atom.test is None:
        return 3
    return {"=": 0, "n=": 0, "starts-with": 1}.get(atom.test.op, 2)


def _as_path(path: Linear) -> Path:
    steps: list[Step] = []
    for deep, name in path.steps:
        if deep:
            steps.append(Step("descendant-or-self", "node()"))
        steps.append(Step("child", name))
    if path.deep:
        steps.append(Step("descendant-or-self", "node()"))
    if path.tail:
        steps.append(Step("child", path.tail) if path.tail == "text()" else Step("attribute", path.tail[1:]))
    return Path("/", tuple(steps))
