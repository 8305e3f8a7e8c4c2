"""A query: text from a subscriber, checked once, in canonical form, and ready for the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgpack
from lxml import etree

from xmlswitch.document import parse_document
from xmlswitch.errors import (
    EvaluationCutOff,
    LocalQueryError,
    MalformedQuery,
    QueryError,
    QuerySyntaxError,
    QueryTooExpensiveError,
    UnsupportedQueryError,
)
from xmlswitch.limits import QUERY_LIMITS, IndexLimits, QueryLimits
from xmlswitch.query import admission
from xmlswitch.query.admission import WIRE_VERSION, XPATH_1
from xmlswitch.query.canonical import canonical_form, joined
from xmlswitch.query.cost import Cost, cost_of
from xmlswitch.query.evaluate import Evaluator
from xmlswitch.query.measure import why_too_large
from xmlswitch.query.need import needed_condition
from xmlswitch.query.parser import XML_NAMESPACE, UnknownFunctionError, parse_xpath
from xmlswitch.query.plan import Plan, plan_before, plan_of
from xmlswitch.query.syntax import ANY_DEEPER, FALSE, ROOT, TRUE, Expr, Path, Step, flattened
from xmlswitch.query.twigs import Twig, twigs_of
from xmlswitch.query.widening import most_telling
from xmlswitch.query.writing import namespaces_of, write

if TYPE_CHECKING:
    from xmlswitch.match.engine import XPathIndex
    from xmlswitch.query.xpath2 import Expression

_NO_NAMESPACES: Mapping[str, str] = {}
_PLAIN_PATH = re.compile(r"(?:/{1,2}(?:[A-Za-z_][A-Za-z_0-9.-]*|\*))+(?:/@[A-Za-z_][A-Za-z_0-9.-]*)?")
_MAX_PLAIN = 256
_SURELY_SHORT, _SURELY_FLAT = 512, 80  # characters of a canonical form, and of a text, that break no limit of parts
_OWN_INDEX = IndexLimits(  # there may be many of these
    max_states=2000,
    max_shapes=16,
    max_value_memo=256,
    max_transition_bytes=1 << 18,
    max_waypoint_bytes=1 << 18,
    max_look_bytes=1 << 18,
)
_WEIGHT, _WEIGHT_OF_CHAR = 2048, 64  # bytes, an estimate: tree, plan, text for libxml2


@lru_cache(maxsize=4096)
def _step(name: str) -> Step:
    return Step("attribute", name[1:]) if name[0] == "@" else Step("child", name)


class Query:
    """Immutable. Two queries with the same canonical form are equal, whatever their text was.

    `canonical` with `namespaces` says the same as the subscriber's text. XPath 1.0 when the text is XPath 1.0, else
    XPath 3.1 (`version`).
    """

    __slots__ = ("__dict__", "_hash", "canonical", "expr", "limits", "namespaces", "text", "version")

    _hash: int
    canonical: str
    expr: Expr | None
    limits: QueryLimits
    namespaces: Mapping[str, str]
    text: str
    version: str

    def __init__(self) -> None:
        raise TypeError("use Query.parse to create a query")

    @classmethod
    def parse(
        cls, text: str, namespaces: Mapping[str, str] | None = None, *, limits: QueryLimits = QUERY_LIMITS
    ) -> Query:
        """Check a subscriber's text; `QueryError` says at which character it fails and what was expected there.

        An empty text asks for everything.
        """
        if not text.strip():
            return cls._from_expr(TRUE, limits)
        bound = namespaces or _NO_NAMESPACES
        if len(text) <= _MAX_PLAIN and _PLAIN_PATH.fullmatch(text) and text != "/*":
            return cls._plain_path(text, limits)
        try:
            return cls._parse_first_version(text, bound, limits)
        except QuerySyntaxError as error:
            return cls._parse_later_version(text, bound, limits, error)

    @classmethod
    def _parse_first_version(cls, text: str, namespaces: Mapping[str, str], limits: QueryLimits) -> Query:
        if len(text) > limits.max_chars:
            raise QueryTooExpensiveError(f"the query has {len(text)} characters; the limit is {limits.max_chars}")
        admission.check_text(text)
        admission.check_namespaces(namespaces)
        query = cls._from_expr(parse_xpath(text, namespaces, limits), limits, text)
        if query.canonical != text and (len(query.canonical) > _SURELY_SHORT or len(text) > _SURELY_FLAT):
            cls._check_canonical(query, limits)
        if not admission.surely_compiles(query.canonical, limits):
            query._compile()
        return query

    @staticmethod
    def _check_canonical(query: Query, limits: QueryLimits) -> None:
        """The canonical text is what other peers read: it must be within the limits too, and it can be the longer."""
        if len(query.canonical) > limits.max_chars:
            length = f"the canonical form has {len(query.canonical)} characters; the limit is {limits.max_chars}"
            raise QueryTooExpensiveError(length, query.text)
        if query.expr is not None and (reason := why_too_large(query.expr, limits)) is not None:
            raise QueryTooExpensiveError(f"in canonical form: {reason}", query.text)

    @classmethod
    def _plain_path(cls, text: str, limits: QueryLimits) -> Query:
        """A path of names alone is its own canonical form, and by far the most frequent query: no need to parse it."""
        query = object.__new__(cls)
        query.expr = Path(ROOT, tuple([_step(name) if name else ANY_DEEPER for name in text.split("/")[1:]]))
        query.canonical = query.text = text
        query.namespaces = _NO_NAMESPACES
        query.version = XPATH_1
        query.limits = limits
        query._hash = hash((text, ()))
        return query

    @classmethod
    def _from_expr(cls, expr: Expr, limits: QueryLimits, text: str | None = None) -> Query:
        query = object.__new__(cls)
        expr, plain = canonical_form(expr)
        uris = namespaces_of(expr) if text is None or ":" in text else set()
        prefixes = {uri: f"n{number}" for number, uri in enumerate(sorted(uris - {XML_NAMESPACE}), 1)}
        if XML_NAMESPACE in uris:
            prefixes[XML_NAMESPACE] = "xml"
        query.expr = expr
        query.canonical = write(expr, prefixes) if prefixes else plain
        query.namespaces = (
            {prefix: uri for uri, prefix in prefixes.items() if prefix != "xml"} if prefixes else _NO_NAMESPACES
        )
        query.text = query.canonical if text is None else text
        query.version = XPATH_1
        query.limits = limits
        query._hash = hash((query.canonical, tuple(prefixes)))
        if query.cost.degree > limits.max_cost_degree:
            raise QueryTooExpensiveError("too many nested walks over the whole document", query.text)
        return query

    def _compile(self) -> None:
        """Have libxml2 read it now, so that it never fails later."""
        try:
            self.evaluator.compile()
        except QueryError as error:
            raise QueryTooExpensiveError(error.reason, self.text) from None
        except (etree.XPathError, ValueError) as error:
            raise QueryTooExpensiveError(f"libxml2 can't compile it: {error}", self.text) from None

    def _admitted(self) -> Query:
        """Itself, after everything that a stranger's XPath 1.0 still has to pass; afterwards its plan exists."""
        if not self.travels:
            raise UnsupportedQueryError("the namespace axis is not accepted from the network", self.text)
        self._compile()
        _ = self.plan
        return self

    def _parts(self) -> list[Query]:
        """Its alternatives as queries: parts of a canonical tree are canonical, and need no look but for prefixes."""
        if len(self.alternatives) == 1:
            return [self]
        return [Query._of_canonical(part, text, self.limits) for text, part in self.alternatives.items()]

    @classmethod
    def _of_canonical(cls, expr: Expr, text: str, limits: QueryLimits) -> Query:
        """Of a tree that is canonical, with what `write` makes of it."""
        if "{" in text:
            return cls._from_expr(expr, limits)  # a namespace, most likely: it needs a prefix
        query = object.__new__(cls)
        query.expr = expr
        query.canonical = query.text = text
        query.namespaces = _NO_NAMESPACES
        query.version = XPATH_1
        query.limits = limits
        query._hash = hash((text, ()))
        return query

    @classmethod
    def _parse_later_version(
        cls, text: str, namespaces: Mapping[str, str], limits: QueryLimits, first: QuerySyntaxError
    ) -> Query:
        from xmlswitch.query.xpath2 import Expression

        query = object.__new__(cls)
        query.text = text
        query.expr = None
        query.canonical = text.strip()
        query.namespaces = dict(sorted(namespaces.items()))
        query.version = "3.1"
        query.limits = limits
        query._hash = hash((query.canonical, tuple(query.namespaces.items())))
        try:
            query.__dict__["later"] = Expression(query.canonical, query.namespaces)
        except QuerySyntaxError as second:
            # Wrong by both grammars: XPath 1.0 has the better words, unless only the function is unknown.
            raise (second if isinstance(first, UnknownFunctionError) else first) from None
        return query

    # --- what it is ---

    @property
    def matches_everything(self) -> bool:
        return self.expr == TRUE

    @property
    def matches_nothing(self) -> bool:
        return self.expr == FALSE

    @cached_property
    def travels(self) -> bool:
        """Whether other peers accept it: XPath 1.0 without the namespace axis. If not, they get `need()`."""
        return self.expr is not None and not (
            "namespace" in self.canonical and admission.uses_namespace_axis(self.expr)
        )

    @property
    def weight(self) -> int:
        """About how many bytes it takes in memory with all that is derived from it, for caches of queries."""
        return _WEIGHT + _WEIGHT_OF_CHAR * len(self.canonical) + sum(map(len, self.namespaces.values()))

    @cached_property
    def later(self) -> Expression | None:
        """The elementpath expression of an XPath 2.0+ query, None for XPath 1.0."""
        return None

    @cached_property
    def cost(self) -> Cost:
        return Cost(()) if self.expr is None else cost_of(self.expr)

    @cached_property
    def evaluator(self) -> Evaluator:
        if self.expr is None:
            raise TypeError("an XPath 2.0+ query is evaluated by elementpath")
        prefixes = {uri: prefix for prefix, uri in self.namespaces.items()}
        return Evaluator(self.expr, prefixes | {XML_NAMESPACE: "xml"}, self.limits.max_evaluator_chars)

    @cached_property
    def plan(self) -> Plan:
        """How the index holds this query."""
        if self.expr is None:
            return plan_before(self._condition.plan, "XPath 2.0 or later: elementpath evaluates what is left")
        return plan_of(self.expr, self.limits)

    @cached_property
    def alternatives(self) -> Mapping[str, Expr]:
        """The operands of its outermost `or`, by their text, which is a key and no XPath where there are namespaces."""
        if self.expr is None:
            return {}
        parts = flattened(self.expr, "or")
        if len(parts) == 1 and not self.namespaces:
            return {self.canonical: self.expr}
        return {write(part): part for part in parts}

    @cached_property
    def twigs(self) -> tuple[Twig, ...] | None:
        """The query as conditions at nodes, where it has that form."""
        return twigs_of(self.expr, self.limits)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Query)
            and self.canonical == other.canonical
            and self.namespaces == other.namespaces
            and self.version == other.version
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return (
            f"Query({self.canonical!r})" if not self.namespaces else f"Query({self.canonical!r}, {self.namespaces!r})"
        )

    # --- what it says about one packet ---

    def passes(self, packet: bytes) -> bool:
        """Whether a switch passes the packet to a link with this query: bounded, and true where that costs too much.

        For other peers' queries and for logged packets. Raises `MalformedDocument` for a packet that is not XML.
        """
        if self.matches_everything:
            return True
        return bool(self._index.match(packet, 1))

    @cached_property
    def _index(self) -> XPathIndex:
        """A switch of its own: what `passes` says is what any switch says, and it learns from packet to packet."""
        from xmlswitch.match.engine import XPathIndex

        index = XPathIndex(limits=_OWN_INDEX)
        index.add(self, 0)
        return index

    def matches(self, packet: bytes) -> bool:
        """Whether one packet matches, exactly, whatever that costs: for a subscriber's own query.

        Raises `MalformedDocument` for a packet that is not XML. An XPath 2.0+ query that takes too long matches.
        """
        if self.matches_everything:
            return True
        try:
            return self.holds(parse_document(packet))
        except EvaluationCutOff:
            return True  # as the switch decides: a packet too many is safe, a lost one is not

    def holds(self, root: Any) -> bool:
        """The same for a document that `parse_document` gave."""
        if self.later is not None:  # first what costs a thousandth, and is what a switch asks first
            return self._condition.holds(root) and self.later.holds(root)
        return self.evaluator.holds(root)

    # --- the wire ---

    def need(self) -> Query:
        """A query that others accept and that holds whenever this one does; itself if they accept it.

        Of XPath 2.0+ it is a necessary condition in XPath 1.0, in the worst case everything: send it, and filter what
        comes with `matches`.
        """
        return self if self.travels else self._condition

    @cached_property
    def _condition(self) -> Query:
        found = self._need()
        return found if found is not None and found.travels else Query._from_expr(TRUE, self.limits)

    def _need(self) -> Query | None:
        if self.later is None:  # what the index asks for before it evaluates
            parts = dict.fromkeys(map(most_telling, self.plan.conjunctions))
            return Query._from_expr(joined("or", list(parts)) or FALSE, self.limits)
        condition = needed_condition(self.later.token, self.namespaces)
        try:
            return None if condition is None else Query.parse(condition, self.namespaces, limits=self.limits)
        except QueryError:
            return None

    def encode(self) -> bytes:
        """The query for the network, which carries XPath 1.0 only: `LocalQueryError` for what only `need()` may say."""
        if not self.travels:
            what = f"XPath {self.version}" if self.expr is None else "the namespace axis"
            raise LocalQueryError(f"{what} is not sent to other peers; send need() and filter what arrives", self.text)
        return bytes(msgpack.packb([WIRE_VERSION, self.version, self.canonical, dict(self.namespaces)]))

    @classmethod
    def decode_untrusted(cls, data: bytes, *, limits: QueryLimits = QUERY_LIMITS) -> Query:
        """The query that `encode` wrote; `MalformedQuery` for any other bytes, `QueryError` for a query we refuse.

        Whatever the bytes are, it takes bounded time and memory; what it returns compiles, encodes and never raises.
        """
        text, namespaces = admission.read_wire(data)
        return cls.parse_untrusted(text, namespaces, limits=limits)

    @classmethod
    def parse_untrusted(
        cls, text: str, namespaces: Mapping[str, str] | None = None, *, limits: QueryLimits = QUERY_LIMITS
    ) -> Query:
        """A stranger's XPath 1.0, by the same rules as `decode_untrusted`."""
        try:
            if len(text) <= _MAX_PLAIN and _PLAIN_PATH.fullmatch(text) and text != "/*":
                return cls._plain_path(text, limits)
            return cls._parse_first_version(text, namespaces or _NO_NAMESPACES, limits)._admitted()
        except QueryError:
            raise
        except Exception as error:  # a stranger must not find the one text that we did not think of
            raise MalformedQuery(f"the query can't be read: {type(error).__name__}: {error}") from None
