"""XPath 2.0 to 3.1, through elementpath: what XPath 1.0 can't say, at a hundred times the price.

elementpath is imported when the first such query comes, not before. Only functions of a list are taken: nothing that
reaches outside the packet, nothing whose answer differs from hop to hop, nothing that makes functions out of data. What
remains is bounded by its text (bindings, products, ranges, regular expressions) and, as it runs, by a count of calls.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from xmlswitch.errors import (
    EvaluationCutOff,
    QueryError,
    QuerySyntaxError,
    QueryTooExpensiveError,
    UnsupportedQueryError,
)

MAX_CALLS = 80_000  # Python calls of one evaluation: about 50 ms; an ordinary query takes some hundred
MAX_PARSE_CALLS = 25_000  # of reading one expression, about 12 ms: seventy `or`s of ends-with() take 15,000
MAX_CONSTANT_CALLS = 5_000  # of evaluating it without a document
MAX_DOCUMENT_BYTES = 1 << 16  # larger packets are too expensive for a query of this kind
MAX_BINDINGS = 3  # for, some, every and let variables together
MAX_PRODUCTS = 6  # each `*` can double the length of a number
MAX_RANGE = 10_000
MAX_RANGE_TEXT = 2_000_000  # items of a range times characters of the query: what a join of texts can become
MAX_UNBOUNDED_QUANTIFIERS = 2  # of one regular expression: each may cost a factor of the text's length
MAX_CHOICES = 256  # ways through one regular expression's `?` and `|`: backtracking tries them all
MAX_REPEATS = 1000  # in `{n}`
MAX_GROWTH = 1024  # times that all replace() of a query together can lengthen a text
MAX_PRECISION = 100  # digits in the second argument of round(), which is a power of ten
MAX_CONCAT = 8

_OUTSIDE = frozenset(
    [
        "doc",
        "doc-available",
        "document",
        "collection",
        "uri-collection",
        "unparsed-text",
        "unparsed-text-lines",
        "unparsed-text-available",
        "environment-variable",
        "available-environment-variables",
        "json-doc",
        "load-xquery-module",
        "transform",
        "parse-xml",
        "parse-xml-fragment",
        "parse-json",
        "json-to-xml",
        "static-base-uri",
        "base-uri",
        "document-uri",
        "resolve-uri",
    ]
)
_UNSTEADY = frozenset(
    [
        "current-date",
        "current-dateTime",
        "current-time",
        "implicit-timezone",
        "random-number-generator",
        "generate-id",
        "default-collation",
        "default-language",
        "trace",
    ]
)
_ALLOWED = frozenset(
    [
        "abs",
        "adjust-date-to-timezone",
        "adjust-dateTime-to-timezone",
        "adjust-time-to-timezone",
        "avg",
        "boolean",
        "ceiling",
        "codepoint-equal",
        "codepoints-to-string",
        "compare",
        "concat",
        "contains",
        "count",
        "data",
        "dateTime",
        "day-from-date",
        "day-from-dateTime",
        "days-from-duration",
        "deep-equal",
        "distinct-values",
        "empty",
        "ends-with",
        "exactly-one",
        "exists",
        "false",
        "floor",
        "has-children",
        "head",
        "hours-from-dateTime",
        "hours-from-duration",
        "hours-from-time",
        "in-scope-prefixes",
        "index-of",
        "innermost",
        "insert-before",
        "lang",
        "last",
        "local-name",
        "local-name-from-QName",
        "lower-case",
        "matches",
        "max",
        "min",
        "minutes-from-dateTime",
        "minutes-from-duration",
        "minutes-from-time",
        "month-from-date",
        "month-from-dateTime",
        "months-from-duration",
        "name",
        "namespace-uri",
        "nilled",
        "node-name",
        "normalize-space",
        "normalize-unicode",
        "not",
        "number",
        "one-or-more",
        "outermost",
        "path",
        "position",
        "prefix-from-QName",
        "QName",
        "remove",
        "replace",
        "reverse",
        "root",
        "round",
        "round-half-to-even",
        "seconds-from-dateTime",
        "seconds-from-duration",
        "seconds-from-time",
        "sort",
        "starts-with",
        "string",
        "string-join",
        "string-length",
        "string-to-codepoints",
        "subsequence",
        "substring",
        "substring-after",
        "substring-before",
        "sum",
        "tail",
        "timezone-from-date",
        "timezone-from-dateTime",
        "timezone-from-time",
        "tokenize",
        "translate",
        "true",
        "unordered",
        "upper-case",
        "year-from-date",
        "year-from-dateTime",
        "years-from-duration",
        "zero-or-one",
        "text",
        "node",
        "element",
        "attribute",
        "comment",
        "processing-instruction",
        "document-node",
        "item",
        "schema-element",
        "schema-attribute",
        "namespace-node",
        "empty-sequence",
    ]
)
_MAKES_FUNCTIONS = frozenset({"function", "#"})
_ROUNDING = frozenset({"round", "round-half-to-even"})
_REGEX_FUNCTIONS = frozenset({"matches", "replace", "tokenize"})
# Functions that take the name of a collation after so many arguments. Elementpath sets the process's locale for it, in
# all threads, and other hops may not have that locale.
_BEFORE_COLLATION = {
    "compare": 2,
    "contains": 2,
    "deep-equal": 2,
    "distinct-values": 1,
    "ends-with": 2,
    "index-of": 2,
    "max": 1,
    "min": 1,
    "sort": 1,
    "starts-with": 2,
    "substring-after": 2,
    "substring-before": 2,
}
_NO_CODE = re.compile(r""" "[^"]*" | '[^']*' | \(:.*?:\) """, re.VERBOSE | re.DOTALL)
_CALLED = re.compile(r"([A-Za-z][\w.-]*)\s*[(#]")
# `to` after an operand is the operator; after `/`, `@`, `::` or at the start it is a name.
_RANGE = re.compile(r"(?<=[\w)\]\s])(?<![/@:]\s)\bto\b(?=\s*[\d$(./@\w])")
_ENDS = re.compile(r".*?\b(\d{1,9})\|(\d{1,9})\b.*", re.DOTALL)
_UNBOUNDED = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_REPEATS = re.compile(r"(?<=[{,])(\d+)(?=[},])")
_CLASS = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*\]")
_OPTIONAL = re.compile(r"\?")
_GROUP = re.compile(r"\(([^()]*)\)")
_QUANTIFIED_GROUP = re.compile(r"\)(?:[*+]|\{)")
# By default elementpath takes the process's locale (which Qt sets): hops would differ, or have no such locale at all.
_CODEPOINTS = "http://www.w3.org/2005/xpath-functions/collation/codepoint"


class Expression:
    """A parsed XPath 2.0+ expression that passed every check."""

    def __init__(self, text: str, namespaces: Mapping[str, str]) -> None:
        from elementpath import ElementPathError

        _refuse_outside(text)
        try:
            parser = _parser(namespaces)
            with _bounded_calls(MAX_PARSE_CALLS):
                self.token = _parsed(text, parser)
            _check(self.token, text)
            with _bounded_calls(MAX_CONSTANT_CALLS):
                _evaluate_constants(self.token)
        except ElementPathError as error:
            raise _refusal(error, text) from None
        except EvaluationCutOff:
            raise QueryTooExpensiveError("reading this expression takes too long", text) from None
        except (RecursionError, OverflowError, ValueError, ArithmeticError, TypeError, AttributeError) as error:
            raise QueryTooExpensiveError(f"the expression can't be read: {error}", text) from None

    def holds(self, root: Any, *, calls: int = MAX_CALLS) -> bool:
        """The effective boolean value with the root element as context. A dynamic error counts as false."""
        from elementpath import ElementPathError, XPathContext

        try:
            with _bounded_calls(calls):
                context = XPathContext(root.getroottree(), item=root)
                return bool(self.token.boolean_value(self.token.select(context)))
        except (ElementPathError, ArithmeticError, ValueError, TypeError, RecursionError):
            return False


def _parser(namespaces: Mapping[str, str]) -> Any:
    from elementpath.xpath31 import XPath31Parser

    parser = XPath31Parser(namespaces=dict(namespaces), default_collation=_CODEPOINTS)
    if parser.tokenizer is None:
        parser.tokenizer = parser.create_tokenizer(parser.symbol_table)
    return parser


def _parsed(text: str, parser: Any) -> Any:
    """Elementpath's tree, and no more: its own `parse` evaluates all constants before anybody could look at them."""
    from elementpath.tdop import Parser

    token: Any = Parser.parse(parser, text)
    if token.label in ("sequence type", "function test"):
        raise token.error("XPST0003", "not allowed in XPath expression")
    return token


def _evaluate_constants(token: Any) -> None:
    """What is wrong without any document is wrong at once, as elementpath itself would say. After all checks."""
    from elementpath import MissingContextError

    with suppress(MissingContextError):
        token.evaluate()


@contextmanager
def _bounded_calls(most: int) -> Iterator[None]:
    """`EvaluationCutOff` after so many calls, whatever is called."""
    previous = sys.getprofile()
    sys.setprofile(_CallCounter(most))
    try:
        yield
    finally:
        sys.setprofile(previous)


class _CallCounter:
    """A profile function: the one deterministic way to stop a pure Python evaluation from outside."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise EvaluationCutOff


def _refusal(error: Any, text: str) -> QueryError:
    token = getattr(error, "token", None)
    position = token.span[0] if token is not None else 0
    return QuerySyntaxError(re.sub(r"^.*?\[err:\w+\] ", "", str(error)), text, min(position, len(text)))


def _refuse_outside(text: str) -> None:
    """Before elementpath sees the text: it calls functions with constant arguments while it parses."""
    code = _NO_CODE.sub(lambda match: " " * len(match[0]), text)
    for match in _CALLED.finditer(code):
        if match[1] in _OUTSIDE or match[1] in _UNSTEADY:
            raise UnsupportedQueryError(f"{match[1]}() {_why(match[1])}", text, match.start(1))
        most = _BEFORE_COLLATION.get(match[1])
        if most is not None and _arguments(code, match.end()) > most - ("=>" in code):
            reason = f"{match[1]}() does not accept a collation: answers would differ between peers"
            raise UnsupportedQueryError(reason, text, match.start(1))
    for match in _RANGE.finditer(code):
        ends = _ENDS.fullmatch(code[: match.start()].rstrip()[-12:] + "|" + code[match.end() :].lstrip()[:12])
        if ends is None or int(ends[2]) - int(ends[1]) > MAX_RANGE:
            reason = f"a range needs two literal ends at most {MAX_RANGE} apart"
            raise QueryTooExpensiveError(reason, text, match.start())
        if (int(ends[2]) - int(ends[1])) * len(text) > MAX_RANGE_TEXT:
            raise QueryTooExpensiveError("a range this long needs a shorter query", text, match.start())


def _arguments(code: str, at: int) -> int:
    """How many arguments a call has, whose first begins here; strings and comments are blank already."""
    depth = commas = 0
    for mark in code[at:]:
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            if depth == 0:
                break
            depth -= 1
        elif mark == "," and depth == 0:
            commas += 1
    return commas + 1


def _check(token: Any, text: str) -> None:
    from elementpath.xpath_tokens import XPathFunction

    bindings = products = 0
    growth = 1
    for part in token.iter():
        symbol = part.symbol
        position = part.span[0]
        if symbol in _MAKES_FUNCTIONS:
            raise UnsupportedQueryError("function items are not supported in queries", text, position)
        if isinstance(part, XPathFunction) and symbol not in _ALLOWED and part.label != "constructor function":
            raise UnsupportedQueryError(f"{symbol}() {_why(symbol)}", text, position)
        if symbol == "$":
            bindings += 1
        elif symbol == "*" and len(part) == 2:
            products += 1
        elif symbol in _REGEX_FUNCTIONS:
            _check_regex(part, text)
            growth *= _growth(part, text) if symbol == "replace" else 1
        elif symbol in _ROUNDING and len(part) > 1:
            _check_precision(part, text)
        elif symbol in ("concat", "string-join") and len(part) > MAX_CONCAT:
            raise QueryTooExpensiveError(f"{symbol}() of more than {MAX_CONCAT} parts", text, position)
    if growth > MAX_GROWTH:
        raise QueryTooExpensiveError("replace() could make texts too long; use shorter replacements, or fewer", text)
    names = {part[0].value for part in token.iter() if part.symbol == "$" and len(part)}
    if len(names) > MAX_BINDINGS or bindings > 4 * MAX_BINDINGS:
        raise QueryTooExpensiveError(f"more than {MAX_BINDINGS} variables in one query", text)
    if products > MAX_PRODUCTS:
        raise QueryTooExpensiveError(f"more than {MAX_PRODUCTS} multiplications in one query", text)


def _why(name: str) -> str:
    if name in _OUTSIDE:
        return "reaches outside the packet"
    if name in _UNSTEADY:
        return "gives different answers on different peers"
    return "is not supported in queries"


def _check_regex(part: Any, text: str) -> None:
    """Backtracking is exponential in nested repetition and a power of the text in repeated repetition."""
    pattern = part[1] if len(part) > 1 else None
    if pattern is None:
        return
    if pattern.symbol != "(string)":
        raise QueryTooExpensiveError("a regular expression must be a literal", text, part.span[0])
    value = pattern.value
    too_long = _QUANTIFIED_GROUP.search(value) or len(_UNBOUNDED.findall(value)) > MAX_UNBOUNDED_QUANTIFIERS
    repeats = (int(number) for number in _REPEATS.findall(value))
    if too_long or _choices(value) > MAX_CHOICES or any(number > MAX_REPEATS for number in repeats):
        raise QueryTooExpensiveError("this regular expression could take too long", text, pattern.span[0])


def _choices(pattern: str) -> int:
    """In how many ways it could go through `?` and `|`, at most."""
    plain = _CLASS.sub("c", pattern)
    choices = 1 << min(len(_OPTIONAL.findall(plain)), 64)
    for group in _GROUP.findall(plain):
        choices *= 1 + group.count("|")
    return choices * (1 + plain.count("|"))


def _growth(part: Any, text: str) -> int:
    """How many times longer a text can become."""
    replacement = part[2] if len(part) > 2 else None
    if replacement is None or replacement.symbol != "(string)":
        raise QueryTooExpensiveError("a replacement must be a literal", text, part.span[0])
    return 1 + len(replacement.value)


def _check_precision(part: Any, text: str) -> None:
    precision = part[1]
    if precision.symbol in ("-", "+") and len(precision) == 1:
        precision = precision[0]
    if precision.symbol != "(integer)" or precision.value > MAX_PRECISION:
        reason = f"{part.symbol}() takes a literal precision of at most {MAX_PRECISION} digits here"
        raise QueryTooExpensiveError(reason, text, part.span[0])
