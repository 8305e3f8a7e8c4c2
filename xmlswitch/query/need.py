"""A necessary condition in XPath 1.0 of an XPath 2.0+ query: what its parents get, who never run elementpath.

Whenever the query holds, the condition holds; the subscriber finishes the rest itself. What a packet must have is found
from elementpath's tree: `and` joins conditions, `or` and `if` need one of every branch; what gives an empty sequence,
false or an error without a node needs that node. A dynamic error is "no match", so errors need nothing.

A test on a value is attached only to a path that was converted whole (`_Found.whole`): `/a/b/upper-case(.)` needs a
`/a/b`, and says nothing about its text. Numbers become existence: XPath 3.1 reads `3e2`, XPath 1.0 does not.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Empty when their first argument is empty.
_EMPTY_OF_EMPTY = frozenset(
    [
        "data",
        "head",
        "tail",
        "distinct-values",
        "sort",
        "reverse",
        "subsequence",
        "remove",
        "exactly-one",
        "one-or-more",
        "zero-or-one",
        "unordered",
        "max",
        "min",
        "avg",
        "abs",
        "round",
        "floor",
        "ceiling",
        "round-half-to-even",
        "tokenize",
        "string-to-codepoints",
        "index-of",
        "outermost",
        "innermost",
        "node-name",
    ]
)
_PART_OF_DATE = re.compile(r"(year|month|day|hours|minutes|seconds|timezone|days|months|years)-from-\w+")
# The empty string when their first argument is empty.
_TEXTS = frozenset(
    [
        "lower-case",
        "upper-case",
        "string",
        "normalize-space",
        "substring",
        "substring-before",
        "substring-after",
        "translate",
        "replace",
        "normalize-unicode",
    ]
)
_AXES = frozenset(
    [
        "child",
        "descendant",
        "descendant-or-self",
        "parent",
        "ancestor",
        "ancestor-or-self",
        "following",
        "preceding",
        "following-sibling",
        "preceding-sibling",
        "self",
        "attribute",
    ]
)
_EQUAL = frozenset({"=", "eq"})
_ORDERED = frozenset({"<", ">", "<=", ">=", "lt", "gt", "le", "ge"})
_DIFFERENT = frozenset({"!=", "ne", "is", "<<", ">>"})
_SUBSTRINGS = {"starts-with": "starts-with", "ends-with": "contains", "contains": "contains"}
_ARITHMETIC = frozenset({"+", "-", "*", "div", "idiv", "mod"})
_LITERALS = frozenset({"(string)", "(integer)", "(decimal)", "(float)"})
_NUMBERS = frozenset({"(integer)", "(decimal)", "(float)"})
_KINDS = frozenset({"text", "node", "comment"})
_MAX_PATHS = 16  # that `/a/(b|c)/(d|e)` may become
_MAX_DEPTH = 64
_LITERAL_START = re.compile(r"(\^?)([A-Za-z0-9 _-]{2,})(?![*?{+|])")


class _Found(NamedTuple):
    """Paths one of which has a node wherever a sequence has an item. `whole`: the items are such nodes."""

    paths: tuple[str, ...]
    whole: bool = True


class _Unknown(Exception):
    """Nothing can be said about a sequence: it may have items in any document."""


_Variables = Mapping[str, _Found | None]


def needed_condition(token: Any, namespaces: Mapping[str, str]) -> str | None:
    """XPath 1.0 that holds wherever elementpath's `token` does; None where no condition is found."""
    if "" in namespaces:
        return None  # a default namespace, which XPath 1.0 has not: names would mean others
    try:
        return _Needs(namespaces).truth(token, {}, False, 0)
    except RecursionError:
        return None


def _all(*conditions: str | None) -> str | None:
    known = [condition for condition in conditions if condition is not None]
    return " and ".join(f"({condition})" for condition in dict.fromkeys(known)) if known else None


def _any(*conditions: str | None) -> str | None:
    known = [condition for condition in conditions if condition is not None]
    if len(known) < len(conditions):
        return None
    return " or ".join(f"({condition})" for condition in dict.fromkeys(known))


def _quoted(text: str) -> str | None:
    if '"' not in text:
        return f'"{text}"'
    return f"'{text}'" if "'" not in text else None


class _Needs:
    """`inside`: the context is a node of a predicate, not the root element. None is "nothing is needed"."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self.namespaces = namespaces

    # --- conditions ---

    def truth(self, token: Any, bound: _Variables, inside: bool, depth: int) -> str | None:
        """What must hold for an effective boolean value of true."""
        if depth > _MAX_DEPTH:
            return None
        depth += 1
        token, symbol = _unwrapped(token)

        def truth(part: Any) -> str | None:
            return self.truth(part, bound, inside, depth)

        if symbol in ("and", "or"):
            return (_all if symbol == "and" else _any)(*map(truth, _chain(token)))
        if symbol == "if" and len(token) == 3:
            return _any(_all(truth(token[0]), truth(token[1])), truth(token[2]))
        if symbol == "false":
            return "false()"
        if symbol == "boolean" and len(token) == 1:
            return truth(token[0])
        if symbol in ("some", "let", "for") and len(token) >= 3:
            return self.binding(token, bound, inside, depth)
        if symbol == "not":
            inner, name = _unwrapped(token[0])
            return self.some(inner[0], bound, inside, depth) if name == "empty" else None
        if symbol == "exists":
            return self.some(token[0], bound, inside, depth)
        if symbol in _EQUAL or symbol in _ORDERED or symbol in _DIFFERENT:
            return self.comparison(token, bound, inside, depth)
        if symbol in _SUBSTRINGS or symbol == "matches":
            return self.part_of_text(symbol, token[0], list(token[1:]), bound, inside, depth)
        if symbol == "=>":
            return self.arrow(token, bound, inside, depth)
        if symbol in _TEXTS or symbol == "number":
            return self.text(token, bound, inside, depth)
        if symbol in ("count", "sum") and len(token) == 1:
            return self.some(token[0], bound, inside, depth)
        return self.some(token, bound, inside, depth)

    def binding(self, token: Any, bound: _Variables, inside: bool, depth: int) -> str | None:
        """`some`, `for` and `let`: every variable by the nodes that it can be, and what is said with them."""
        variables = dict(bound)
        conditions: list[str | None] = []
        for at in range(0, len(token) - 1, 2):
            if token[at].symbol != "$":
                return None
            found = self.found(token[at + 1], variables, inside, depth)
            # Of a path from a predicate's node it is not known, further in, from where it starts.
            usable = found is not None and all(path[0] == "/" for path in found.paths)
            variables[token[at][0].value] = found if usable else None
            if token.symbol != "let":
                conditions.append(self.some(token[at + 1], {**variables, token[at][0].value: None}, inside, depth))
        return _all(*conditions, self.truth(token[-1], variables, inside, depth))

    def comparison(self, token: Any, bound: _Variables, inside: bool, depth: int) -> str | None:
        symbol, left, right = token.symbol, token[0], token[1]
        if _literals(left) and not _literals(right):
            left, right = right, left
            if symbol in _ORDERED:
                return self.item(left, bound, inside, depth)
        texts = _literals(right)
        if texts and symbol in _EQUAL and all(part.symbol == "(string)" and part.value for part in texts):
            return self.equal(left, [str(part.value) for part in texts], bound, inside, depth)
        if len(texts) == 1 and texts[0].symbol in _NUMBERS and symbol not in _DIFFERENT:
            counted, name = _unwrapped(left)
            if name in ("count", "sum", "string-length") and len(counted) == 1:
                value = float(texts[0].value)
                positive = (value > 0 and symbol in {"=", "eq", ">", "gt", ">=", "ge"}) or (
                    value == 0 and symbol in {">", "gt"}
                )
                if not positive:
                    return None
                of = self.text if name == "string-length" else self.some
                return of(counted[0], bound, inside, depth)
        either = [self.item(part, bound, inside, depth, symbol) for part in (left, right)]
        return _all(*either)

    def item(self, token: Any, bound: _Variables, inside: bool, depth: int, symbol: str = "<") -> str | None:
        """What an operand of a comparison needs: an item. NaN differs from everything and is equal to nothing."""
        unwrapped, name = _unwrapped(token)
        if name == "number" and symbol not in _DIFFERENT:
            return self.text(unwrapped, bound, inside, depth)
        return self.some(token, bound, inside, depth)

    def equal(self, token: Any, texts: list[str], bound: _Variables, inside: bool, depth: int) -> str | None:
        """Equal to one of some texts, none of them empty."""
        found = self.found(token, bound, inside, depth)
        quoted = [_quoted(text) for text in texts]
        if found is None or not found.whole or None in quoted:
            return self.text(token, bound, inside, depth)
        return _any(*(f"{path} = {text}" for path in found.paths for text in quoted))

    def part_of_text(
        self, name: str, token: Any, args: list[Any], bound: _Variables, inside: bool, depth: int
    ) -> str | None:
        """starts-with(), contains(), ends-with() and matches() of a text that must not be empty."""
        if not args or args[0].symbol != "(string)":
            return None
        part = str(args[0].value)
        if name == "matches":
            if len(args) > 1 or _matches_nothing(part):
                return None
            start = _LITERAL_START.match(part) if "|" not in part else None
            test, part = ("starts-with" if start[1] else "contains", start[2]) if start else ("", "")
        else:
            if not part:
                return None
            test = _SUBSTRINGS[name]
        found = self.found(token, bound, inside, depth)
        quoted = _quoted(part)
        if found is None or not found.whole or not test or quoted is None:
            return self.text(token, bound, inside, depth)
        return _any(*(f"{path}[{test}(., {quoted})]" for path in found.paths))

    def arrow(self, token: Any, bound: _Variables, inside: bool, depth: int) -> str | None:
        """`x => f(y)` is f(x, y)."""
        name, args = token[1].symbol, _sequence(token[2]) if len(token) > 2 and len(token[2]) else []
        if name in _SUBSTRINGS or name == "matches":
            return self.part_of_text(name, token[0], args, bound, inside, depth)
        if name in ("exists", "count", "boolean") or name in _EMPTY_OF_EMPTY:
            return self.some(token[0], bound, inside, depth)
        return self.text(token[0], bound, inside, depth) if name in _TEXTS else None

    def some(self, token: Any, bound: _Variables, inside: bool, depth: int) -> str | None:
        """What a sequence needs to have an item."""
        if depth > _MAX_DEPTH:
            return None
        token, symbol = _unwrapped(token)
        depth += 1
        if symbol in _ARITHMETIC and len(token) == 2:
            return _all(*(self.some(part, bound, inside, depth) for part in token))
        if symbol in ("+", "-") and len(token) == 1:
            return self.some(token[0], bound, inside, depth)
        if symbol == "," and len(token) == 2:
            return _any(*(self.some(part, bound, inside, depth) for part in token))
        if symbol == "if" and len(token) == 3:
            return _any(*(self.some(part, bound, inside, depth) for part in (token[1], token[2])))
        found = self.found(token, bound, inside, depth)
        return None if found is None else _any(*found.paths)

    def text(self, token: Any, bound: _Variables, inside: bool, depth: int) -> str | None:
        """What a text needs to be other than empty, or a number to be other than NaN."""
        if depth > _MAX_DEPTH:
            return None
        token, symbol = _unwrapped(token)
        if symbol in _TEXTS or symbol == "number":
            return self.text(token[0], bound, inside, depth + 1) if len(token) else None
        if symbol == "=>" and (token[1].symbol in _TEXTS or token[1].symbol == "number"):
            return self.text(token[0], bound, inside, depth + 1)
        return self.some(token, bound, inside, depth + 1)

    # --- paths ---

    def found(self, token: Any, bound: _Variables, inside: bool, depth: int) -> _Found | None:
        """The nodes that a sequence needs to have an item; None: nothing is known."""
        try:
            found = self.nodes(token, bound, inside, depth)
        except _Unknown:
            return None
        if inside or found is None:
            return found
        return found._replace(paths=tuple(path if path[0] == "/" else f"/*/{path}" for path in found.paths))

    def nodes(self, token: Any, bound: _Variables, inside: bool, depth: int) -> _Found:
        if depth > _MAX_DEPTH:
            raise _Unknown
        token, symbol = _unwrapped(token)
        depth += 1
        if symbol == "$" and len(token):
            known = bound.get(token[0].value)
            if known is None:
                raise _Unknown
            return known
        if symbol in ("/", "//"):
            return self.path(token, bound, inside, depth)
        if symbol == "[":
            return self.filtered(token, bound, inside, depth)
        if symbol in ("|", "union"):
            left, right = (self.nodes(part, bound, inside, depth) for part in token)
            return _bounded(left.paths + right.paths, left.whole and right.whole)
        if symbol in ("intersect", "except", "treat"):
            return self.nodes(token[0], bound, inside, depth)
        if symbol in ("!", "cast"):
            return self.nodes(token[0], bound, inside, depth)._replace(whole=False)
        if symbol == "for" and token[0].symbol == "$":
            return self.nodes(token[1], bound, inside, depth)._replace(whole=False)
        if symbol == "=>" and token[1].symbol in _EMPTY_OF_EMPTY:
            return self.nodes(token[0], bound, inside, depth)._replace(whole=False)
        if symbol in _EMPTY_OF_EMPTY or _PART_OF_DATE.fullmatch(symbol) or _is_constructor(token):
            if not len(token):
                raise _Unknown
            return self.nodes(token[0], bound, inside, depth)._replace(whole=False)
        return _Found((self.step(token),))

    def path(self, token: Any, bound: _Variables, inside: bool, depth: int) -> _Found:
        slashes = token.symbol
        if len(token) == 0:
            return _Found(("/",))
        if len(token) == 1:
            below = self.below(token[0], bound, depth)
            if below is None:
                return _Found(("/",), whole=False)
            return _Found(tuple(slashes + path for path in below.paths), below.whole)
        above = self.nodes(token[0], bound, inside, depth)
        below = self.below(token[1], bound, depth)
        if below is None or not above.whole:
            return above._replace(whole=False)
        paths = tuple(("" if a == "/" else a) + slashes + b for a in above.paths for b in below.paths)
        return _bounded(paths, below.whole)

    def below(self, token: Any, bound: _Variables, depth: int) -> _Found | None:
        """What stands behind a slash: relative to the nodes before it, or nothing that has a path."""
        try:
            found = self.nodes(token, {}, True, depth)
        except _Unknown:
            return None
        return found if all(path[0] != "/" for path in found.paths) else None

    def filtered(self, token: Any, bound: _Variables, inside: bool, depth: int) -> _Found:
        found = self.nodes(token[0], bound, inside, depth)
        predicate = token[1]
        if not found.whole or any(part.symbol in ("position", "last") for part in predicate.iter()):
            return found
        usable = {name: value for name, value in bound.items() if value is not None}
        condition = self.truth(predicate, usable, True, depth)
        if condition is None:
            return found
        return found._replace(paths=tuple("/" if path == "/" else f"{path}[{condition}]" for path in found.paths))

    def step(self, token: Any) -> str:
        symbol = token.symbol
        if symbol == ".":
            return "self::node()"
        if symbol == "..":
            return "parent::node()"
        if symbol == "@" and len(token) == 1:
            return "@" + self.test(token[0])
        if symbol in _AXES and len(token) == 1:
            return f"{symbol}::{self.test(token[0])}"
        return self.test(token)

    def test(self, token: Any) -> str:
        symbol = token.symbol
        if symbol == "(name)":
            return str(token.value)
        if symbol == "*" and len(token) == 0:
            return "*"
        if symbol in _KINDS and len(token) == 0:
            return f"{symbol}()"
        if symbol == "element" and len(token) < 2:
            return self.test(token[0]) if len(token) else "*"
        if symbol == ":" and len(token) == 2 and token[1].symbol in ("(name)", "*"):
            if token[0].symbol == "*":
                return "*"
            prefix = str(token[0].value)
            if prefix in self.namespaces or prefix == "xml":
                return f"{prefix}:{'*' if token[1].symbol == '*' else token[1].value}"
        raise _Unknown


def _bounded(paths: tuple[str, ...], whole: bool) -> _Found:
    if len(paths) > _MAX_PATHS:
        raise _Unknown
    return _Found(paths, whole)


def _unwrapped(token: Any) -> tuple[Any, str]:
    """Without parentheses and the prefix of a function."""
    while True:
        if token.symbol == "(" and len(token) == 1:
            token = token[0]
        elif token.symbol == ":" and len(token) == 2 and token[1].symbol not in ("(name)", "*"):
            if _is_constructor(token[1]) or token[0].value == "fn":
                token = token[1]
            else:
                return token, str(token.symbol)
        else:
            return token, str(token.symbol)


def _chain(token: Any) -> list[Any]:
    """The operands of a chain of one operator, in order."""
    found, left = [], [token]
    while left:
        part = left.pop()
        if part.symbol == token.symbol and len(part) == 2:
            left += (part[1], part[0])
        else:
            found.append(part)
    return found


def _is_constructor(token: Any) -> bool:
    return getattr(token, "label", "") == "constructor function"


def _sequence(token: Any) -> list[Any]:
    """The items of `(a, b, c)`."""
    token, symbol = _unwrapped(token)
    if symbol != ",":
        return [token]
    return [item for part in token for item in _sequence(part)]


def _literals(token: Any) -> list[Any]:
    """The items of a sequence of literals, none for any other."""
    items = _sequence(token)
    return items if all(item.symbol in _LITERALS for item in items) else []


def _matches_nothing(pattern: str) -> bool:
    """Whether a regular expression may match the empty text: then no text is needed."""
    search: Callable[[str, str], Any] = re.search
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return search(pattern, "") is not None
    except (re.error, Warning, RecursionError, OverflowError):
        return True
