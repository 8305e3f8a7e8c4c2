"""XPath over XML as a profile index: one parse, one walk, one look into the index, few evaluations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from xmlswitch.answers import answer_for
from xmlswitch.document import parse_document
from xmlswitch.errors import EvaluationCutOff
from xmlswitch.evaluate import string_value
from xmlswitch.index import Index
from xmlswitch.limits import DOCUMENT_LIMITS, INDEX_LIMITS, DocumentLimits, IndexLimits
from xmlswitch.matching import Structure, Texts, match_walked
from xmlswitch.shapes import ShapeBook
from xmlswitch.walk import walk

if TYPE_CHECKING:
    from xmlswitch.answers import Answer
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
        answer = answer_for(wanted)
        known = self._shapes.find(packet)
        root = program = None
        if known is not None:
            shape, texts = known
            program = shape.program if shape.version == index.version else None
            if program is None:
                program = shape.study(index)
        if program is not None and not program.framed:
            self.by_shape += 1
            pending = program.run(index, texts, answer)
            structure = program.structure
        else:
            root = parse_document(packet, self._documents)
            if known is None:
                self._shapes.notice(packet)
            findings = walk(root, index, answer)
            if answer.done:
                return answer.found
            for accept in findings.hits:
                answer.mask(accept.links(index.journal))
            structure = Structure(findings)
            pending = match_walked(index, structure, Texts(findings.nodes(), string_value, structure), answer)
        if pending:
            if root is None:
                root = parse_document(packet, self._documents)
            self._evaluate(pending, packet, root, answer)
        if structure.plural:
            index.to_frames(structure.plural)
        return answer.found

    def _evaluate(self, pending: list[Entry], packet: bytes, root: Any, answer: Answer) -> None:
        """Settle the entries that the index left open, each query once, until no wanted link is left."""
        answers: dict[Query, bool] = {}
        left: float = pending[0].query.limits.max_packet_steps if pending[0].query else 0
        nodes = packet.count(b"<")
        for entry in pending:
            query = entry.query
            if query is None or not answer.misses(entry.links):
                continue
            holds = answers.get(query)
            if holds is None:
                steps = query.cost.steps(nodes, _LIKELY_DEPTH) if query.expr is not None else _LATER_STEPS
                left -= steps
                holds = answers[query] = self._holds(query, packet, root, steps, left)
            if holds:
                answer.all_of(entry.links)

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
            "shapes": self._shapes.number,
        }
