"""Many XPath queries, one pass over a packet.

    switch = Switch()
    switch.add_link("child 1")
    switch.subscribe("child 1", Query.parse("/flight/flightleg/altitude > 300"))
    switch.match(b"<flight><flightleg><altitude>310</altitude></flightleg></flight>")   # frozenset({"child 1"})

No I/O, no clock, no threads. XPath 1.0 whole; XPath 2.0 to 3.1 through elementpath, imported when first needed. What is
indexed and what is evaluated: docs/xmlswitch.md, and `python -m xmlswitch explain QUERY`.
"""

from __future__ import annotations

from xmlswitch.document import parse_document
from xmlswitch.errors import (
    LocalQueryError,
    MalformedDocument,
    MalformedQuery,
    QueryError,
    QuerySyntaxError,
    QueryTooExpensiveError,
    Rule,
    SwitchError,
    UnsupportedQueryError,
)
from xmlswitch.limits import DocumentLimits, IndexLimits, QueryLimits
from xmlswitch.members import MemberSlots
from xmlswitch.profile import XPATH, Profile, ProfileIndex, XPathProfile
from xmlswitch.query.algebra import Fuel, covers, disjoin
from xmlswitch.query.explain import Explanation, explain
from xmlswitch.query.interest import Change, Interest, MemberLimits
from xmlswitch.query.member_wire import decode_members_untrusted, digest_of, encode_members
from xmlswitch.query.query import Query
from xmlswitch.query.query_set import QuerySet, is_query_set
from xmlswitch.query.selectivity import Selectivity
from xmlswitch.record_profile import RECORD, RecordProfile, RecordQuery
from xmlswitch.stats import SwitchStats
from xmlswitch.switch import Switch

__all__ = [
    "RECORD",
    "XPATH",
    "Change",
    "DocumentLimits",
    "Explanation",
    "Fuel",
    "IndexLimits",
    "Interest",
    "LocalQueryError",
    "MalformedDocument",
    "MalformedQuery",
    "MemberLimits",
    "MemberSlots",
    "Profile",
    "ProfileIndex",
    "Query",
    "QueryError",
    "QueryLimits",
    "QuerySet",
    "QuerySyntaxError",
    "QueryTooExpensiveError",
    "RecordProfile",
    "RecordQuery",
    "Rule",
    "Selectivity",
    "Switch",
    "SwitchError",
    "SwitchStats",
    "UnsupportedQueryError",
    "XPathProfile",
    "covers",
    "decode_members_untrusted",
    "digest_of",
    "disjoin",
    "encode_members",
    "explain",
    "is_query_set",
    "parse_document",
]
