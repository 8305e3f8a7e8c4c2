"""Every bound of the switch, with its reason. What hits one is refused or cut off, and counted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """What a packet may be. An ATC packet has 1 KB and depth 6; FAA messages were seen of 100 KB."""

    max_bytes: int = 1 << 20
    max_depth: int = 128  # libxml2 itself stops at 256 or 2048, by version; deeper walks cost a Python stack entry each
    max_attributes: int = 256  # on one element
    max_attribute_chars: int = 1 << 16
    max_text_chars: int = 1 << 18  # of one text node


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may be. The sizes bound parsing; what one packet can be made to cost is in `budget`."""

    max_chars: int = 8192
    max_nesting: int = 48  # parentheses, predicates and function calls inside each other
    max_nodes: int = 2000  # of the syntax tree
    max_chain: int = 64  # arithmetic or comparisons in a row: each is one level deeper. `and`, `or`, `|` are not
    max_depth: int = 128  # of the syntax tree: everything recurses on it, and Python's stack has 1,000 levels
    max_evaluator_chars: int = 1 << 16  # of what libxml2 gets to compile, which is longer than the query
    max_conjunctions: int = 512  # of the disjunctive form in the index; a query with more is checked by evaluation
    max_product: int = 32  # of these, what `and` may make of several disjunctions
    max_literals: int = 48  # in one conjunction of the index
    max_conditions: int = 400  # of a query that is decided node by node where documents branch: each costs more to add
    max_plan_size: int = 800  # paths and their steps, of all conjunctions together: what adding to an index may take
    max_cost_degree: int = 3  # nested walks over the whole document, as in //a[//b[//c]]


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """What the index may keep to be fast. All of it is cache: a smaller limit costs time, never an answer."""

    max_states: int = 50_000  # of the lazy automaton; at the limit it is dropped and built again
    max_transition_bytes: int = 4 << 20  # of one automaton; at the limit it is dropped, too. Packets choose the names
    max_waypoint_bytes: int = 32 << 20  # places in documents that walks remember, and what values mean there
    max_look_bytes: int = 32 << 20  # texts whose meaning is remembered, of all columns together
    max_shapes: int = 512  # markup shapes that are matched without a parse
    max_shape_chars: int = 4096  # a longer packet is always parsed
    max_value_memo: int = 8192  # texts of one column whose meaning is remembered
    max_compiled_bytes: int = 32 << 20  # compiled XPath expressions, of all switches of the process together


DOCUMENT_LIMITS = DocumentLimits()
QUERY_LIMITS = QueryLimits()
INDEX_LIMITS = IndexLimits()
