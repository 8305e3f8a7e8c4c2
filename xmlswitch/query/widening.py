"""What a packet needs for a conjunction to hold, in fewer words: one condition, one path, or the root element."""

from __future__ import annotations

from xmlswitch.query.atoms import Atom, Column, Conjunction, Linear
from xmlswitch.query.hulls import as_path
from xmlswitch.query.syntax import TRUE, Binary, Expr, Literal, Number, Path, Step


def most_telling(conjunction: Conjunction, *, tests: bool = True) -> Expr:
    """Its one most telling condition: equality as it is (with `tests`), everything else as existence."""
    atoms = [atom for atom, positive in conjunction.literals if positive and atom.needs_path]
    if not atoms:
        return TRUE
    best = min(atoms, key=lambda atom: (_weakness(atom), str(atom.path)))
    expr: Expr = as_path(best.path)
    if expr == _ANY_ROOT:
        return TRUE
    if tests and best.test is not None and best.column == Column(best.path) and best.test.op in ("=", "n="):
        value: Expr = Number(float(best.test.operand)) if best.test.is_numeric else Literal(str(best.test.operand))
        if not (isinstance(value, Literal) and '"' in value.value and "'" in value.value):
            expr = Binary("=", expr, value)
    return expr


def root_of(conjunction: Conjunction) -> Expr:
    """The first step of one of its paths."""
    paths = [atom.path for atom, positive in conjunction.literals if positive and atom.needs_path]
    steps = next((path.steps[:1] for path in sorted(paths) if path.steps), ())
    return as_path(Linear(steps)) if steps else TRUE


_ANY_ROOT = Path("/", (Step("child", "*"),))


def _weakness(atom: Atom) -> int:
    if atom.test is None:
        return 3
    return {"=": 0, "n=": 0, "starts-with": 1}.get(atom.test.op, 2)
