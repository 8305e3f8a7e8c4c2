"""How the index holds a query, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xmlswitch.query.atoms import Conjunction
    from xmlswitch.query.query import Query

INDEXED, BRANCHING, CONDITIONAL, EVALUATED, EVERYTHING, NOTHING, LATER = (
    "indexed",
    "indexed, node by node where a branch repeats",
    "indexed, evaluated where a branch repeats",
    "evaluated by libxml2 when the index can't rule it out",
    "everything: packets are not even parsed",
    "nothing: no packet can match",
    "evaluated by elementpath (0.3 to 3 ms) when its condition in XPath 1.0 does not rule it out",
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`how` is one of the words above; `conditions` the alternatives in the index, `reasons` why not all is exact."""

    canonical: str
    namespaces: dict[str, str]
    version: str
    how: str
    conditions: tuple[str, ...]
    reasons: tuple[str, ...]
    cost: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "canonical": self.canonical,
            "namespaces": self.namespaces,
            "xpath": self.version,
            "how": self.how,
            "conditions": list(self.conditions),
            "reasons": list(self.reasons),
            "steps_for_100_nodes": self.cost,
        }

    def __str__(self) -> str:
        lines = [f"canonical   {self.canonical}"]
        lines += [f"namespace   {prefix} = {uri}" for prefix, uri in self.namespaces.items()]
        lines += [f"language    XPath {self.version}", f"held        {self.how}"]
        lines += [f"{'or' if number else 'condition':<11} {text}" for number, text in enumerate(self.conditions)]
        lines += [f"because     {reason}" for reason in self.reasons]
        return "\n".join(lines)


def explain(query: Query) -> Explanation:
    plan = query.plan
    if query.matches_everything:
        how = EVERYTHING
    elif query.later is not None:
        how = LATER
    elif not plan.conjunctions:
        how = NOTHING
    elif any(conjunction.verify for conjunction in plan.conjunctions):
        how = EVALUATED
    elif any(conjunction.unique for conjunction in plan.conjunctions):
        how = BRANCHING if query.twigs else CONDITIONAL
    else:
        how = INDEXED
    conditions = tuple(_words(conjunction) for conjunction in plan.conjunctions)
    cost = query.cost.steps(100, 8) if query.expr is not None else 0.0
    return Explanation(query.canonical, dict(query.namespaces), query.version, how, conditions, plan.reasons, cost)


def _words(conjunction: Conjunction) -> str:
    atoms = sorted((str(atom) if positive else f"not({atom})") for atom, positive in conjunction.literals)
    text = " and ".join(atoms) if atoms else "always"
    if conjunction.unique:
        paths = ", ".join(sorted(map(str, conjunction.unique)))
        text += f"; sure where {paths} occurs once"
    return text + "; then evaluated" if conjunction.verify else text
