"""XPath over XML as a profile index: one parse, one walk, one look into the index, few evaluations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from xmlswitch.document import parse_document
from xmlswitch.errors import EvaluationCutOff
from xmlswitch.evaluate import string_value
from xmlswitch.index import Index
from xmlswitch.limits import DOCUMENT_LIMITS, INDEX_LIMITS, DocumentLimits, IndexLimits
from xmlswitch.shapes import ShapeBook
from xmlswitch.values import Values
from xmlswitch.walk import walk

if TYPE_CHECKING:
    from xmlswitch.entries import Entry
    from xmlswitch.query import Query

_LIKELY_DEPTH = 32
_LATER_STEPS = 200_000  # what an elementpath evaluation counts for


class XPathIndex:
    """Standing queries of links; `match` gives the links (by slot, as a mask) that want a packet."""

    def __init__(self, documents: DocumentLimits = DOCUMENT_LIMITS, limits: IndexLimits = INDEX_LIMITS) -> None:
        self._documents = documents
        self._index = Index(limits)
        self._shapes = ShapeBook(limits.max_shapes, limits.max_shape_chars)
        self.by_shape = 0
        self.counters: Counter[str] = Counter()

    def add(self, query: Query, link: int) -> None:
        self._index.add(query, link)

    def remove(self, query: Query, link: int) -> None:
        self._index.remove(query, link)

    def match(self, packet: bytes, wanted: int) -> int:
        """The links among `wanted` that have a query which matches."""
        index = self._index
        known = self._shapes.find(packet)
        root = None
        if known is not None:
            shape, slots = known
            program = shape.program(index)
            self.by_shape += 1
            matched, pending = index.candidates_known(program, slots, lambda: shape.values(slots), wanted)
        else:
            root = parse_document(packet, self._documents)
            self._shapes.notice(packet)
            findings = walk(root, index, wanted)
            if findings.settled & wanted == wanted:
                return wanted
            structure = index.structure(findings)
            values: Values[Any] = Values(findings.nodes(), string_value, structure.counts)
            matched, pending = index.candidates(structure, values, wanted & ~findings.settled)
            matched |= findings.settled & wanted
        if not pending:
            return matched
        if root is None:
            root = parse_document(packet, self._documents)
        return matched | self._evaluate(pending, packet, root, wanted & ~matched)

    def _evaluate(self, pending: list[Entry], packet: bytes, root: Any, wanted: int) -> int:
        """Settle the entries that the index left open, each query once, until no wanted link is left."""
        matched = 0
        answers: dict[Query, bool] = {}
        left: float = pending[0].query.limits.max_packet_steps if pending[0].query else 0
        nodes = packet.count(b"<")
        for entry in pending:
            query = entry.query
            if query is None or not entry.links & wanted & ~matched:
                continue
            answer = answers.get(query)
            if answer is None:
                steps = query.cost.steps(nodes, _LIKELY_DEPTH) if query.expr is not None else _LATER_STEPS
                left -= steps
                answer = answers[query] = self._holds(query, packet, root, steps, left)
            if answer:
                matched |= entry.links
        return matched & wanted

    def _holds(self, query: Query, packet: bytes, root: Any, steps: float, left: float) -> bool:
        try:
            if steps > query.limits.max_steps or left < 0:
                raise EvaluationCutOff(f"{query.canonical} is too dear for a packet of {len(packet)} bytes")
            self.counters["evaluated"] += 1
            return query.holds(root)
        except EvaluationCutOff:
            # Passing on a packet too many is safe; losing one is not.
            self.counters["cut_off"] += 1
            return True

    def snapshot(self) -> dict[str, int]:
        index = self._index
        return {
            "by_shape": self.by_shape,
            "evaluated": self.counters["evaluated"],
            "cut_off": self.counters["cut_off"],
            "conjunctions": len(index.entries),
            "states": index.automaton.states,
            "automaton_resets": index.automaton.resets,
            "row_bytes": index.budget.used,
            "row_evictions": index.budget.evictions,
            "shapes": self._shapes.number,
        }
