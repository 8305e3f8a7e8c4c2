"""XPath over XML as a profile index: one parse, one walk, one look into the index, few evaluations."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from xmlswitch.document import parse_document
from xmlswitch.errors import EvaluationCutOff
from xmlswitch.index.answers import answer_for, bits_of
from xmlswitch.index.index import Index
from xmlswitch.limits import DOCUMENT_LIMITS, INDEX_LIMITS, DocumentLimits, IndexLimits
from xmlswitch.match.evaluation import Evaluation, KnownBounds
from xmlswitch.match.matching import DocumentTexts, Structure, Texts, match_walked
from xmlswitch.match.shapes import ShapeBook
from xmlswitch.match.walk import walk

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.indexed import IndexedQuery


class XPathIndex:
    """Standing queries of links; `match` gives the links (by slot, as a mask) that want a packet."""

    def __init__(
        self,
        documents: DocumentLimits = DOCUMENT_LIMITS,
        limits: IndexLimits = INDEX_LIMITS,
        *,
        strict: bool = False,
        clock: Callable[[], float] | None = None,
        exact: bool = False,
    ) -> None:
        """`strict`: a query that raises while it is evaluated raises, and does not pass. `clock`: watch real time."""
        self._documents = documents
        self._exact = exact
        self._evaluation = Evaluation(strict=strict, clock=clock, exact=exact)
        self._index = Index(limits)
        self._shapes = ShapeBook(limits.max_shapes, limits.max_shape_chars)
        self.by_shape = 0

    @property
    def cut_offs(self) -> Counter[int]:
        """By link, how often a packet passed because a query would have cost too much."""
        return self._evaluation.cut_offs

    def forget(self, link: int) -> None:
        """The link is gone, with its counters."""
        self._evaluation.forget(link)

    def add(self, query: IndexedQuery, link: int) -> None:
        self._index.add(query, link)

    def remove(self, query: IndexedQuery, link: int) -> None:
        self._index.remove(query, link)

    def match(self, packet: bytes, wanted: int) -> int:
        """The links among `wanted` that have a query which matches, or which costs too much to find out."""
        answer = answer_for(wanted)
        self._index.work.begin(sys.maxsize if self._exact else len(packet))
        try:
            self._match(packet, answer)
        except EvaluationCutOff:
            return answer.found | self._match_the_others(packet, wanted & ~answer.found)
        return answer.found

    def _match_the_others(self, packet: bytes, wanted: int) -> int:
        """The index read too much: links that ask for the most expensive columns get it; match the others again."""
        work = self._index.work
        links, muted = self._index.links_asking_for({column.column for column in work.most_expensive()})
        cut = links & wanted
        self._evaluation.cut(bits_of(cut))
        answer = answer_for(wanted & ~cut)
        if answer.done:
            return cut
        for column in muted:
            column.is_muted = True
            column.looks.clear()
        work.begin(len(packet))
        try:
            self._match(packet, answer)
        except EvaluationCutOff:
            self._evaluation.cut(bits_of(wanted & ~cut & ~answer.found))
            return wanted
        finally:
            for column in muted:
                column.is_muted = False
        return cut | answer.found

    def _match(self, packet: bytes, answer: Answer) -> None:
        index = self._index
        known = self._shapes.find(packet)
        root = program = bounds = None
        if known is not None:
            shape, texts = known
            program = shape.current(index)
            bounds = shape.bounds = shape.bounds or KnownBounds()
        if program is not None:
            self.by_shape += 1
            pending = program.run(index, texts, answer)
            structure = program.structure
        else:
            root = parse_document(packet, self._documents)
            if known is None:
                self._shapes.notice(packet)
            findings = walk(root, index, answer)
            if answer.done:
                return
            for accept in findings.ends:
                answer.mask(accept.links(index.journal))
            structure = Structure(findings)
            texts_of = DocumentTexts(index.work)
            pending = match_walked(index, structure, Texts(findings.nodes(), texts_of.text, structure), answer)
        if pending:
            if root is None:
                root = parse_document(packet, self._documents)
            self._evaluation.settle(pending, packet, root, answer, bounds)
        if structure.plural:
            index.to_frames(structure.plural)

    def snapshot(self) -> dict[str, int]:
        index = self._index
        return {
            "by_shape": self.by_shape,
            "evaluated": self._evaluation.evaluated,
            "cut_off": self._evaluation.cut_off,
            "failures": self._evaluation.failures,
            "conjunctions": len(index.entries),
            "states": index.automaton.states,
            "automaton_resets": index.automaton.resets,
            "shapes": self._shapes.number,
        }
