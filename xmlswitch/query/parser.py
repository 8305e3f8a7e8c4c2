"""XPath 1.0 by recursive descent: tokens to the tree of `syntax`, or one refusal with the place and what was expected.

elementpath parses XPath too, twenty times slower and only after an import of a tenth of a second; a peer that starts
within 300 ms and takes a hundred thousand subscriptions wants neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from xmlswitch.errors import QuerySyntaxError, QueryTooExpensiveError, UnsupportedQueryError
from xmlswitch.limits import QUERY_LIMITS, QueryLimits
from xmlswitch.query.lexer import tokens
from xmlswitch.query.syntax import (
    ANY_DEEPER,
    ASSOCIATIVE,
    AXES,
    FUNCTIONS,
    HERE,
    KIND_TESTS,
    NODES,
    ROOT,
    Binary,
    Call,
    Expr,
    Filter,
    Literal,
    Negate,
    Number,
    Path,
    Step,
    balanced,
    depth_of,
    type_of,
)

XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
_LEVELS = (("or",), ("and",), ("=", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "div", "mod"))


class UnknownFunctionError(QuerySyntaxError):
    """Not in XPath 1.0's library: a later version may have it."""


def parse_xpath(text: str, namespaces: Mapping[str, str], limits: QueryLimits = QUERY_LIMITS) -> Expr:
    return _Parser(text, namespaces, limits).parse()


class _Parser:
    def __init__(self, text: str, namespaces: Mapping[str, str], limits: QueryLimits) -> None:
        self.text = text
        self.namespaces = namespaces
        self.limits = limits
        self.kinds, self.texts, self.positions = tokens(text)
        self.at = 0
        self.nesting = 0
        self.nodes = 0

    def parse(self) -> Expr:
        expr = self.expression()
        if self.kinds[self.at] != "end":
            raise self.unexpected("an operator or the end of the query")
        if depth_of(expr) > self.limits.max_depth:
            raise QueryTooExpensiveError(f"operators nested more than {self.limits.max_depth} deep", self.text)
        return expr

    # --- operators ---

    def expression(self) -> Expr:
        self.nesting += 1
        if self.nesting > self.limits.max_nesting:
            raise self.too_expensive(f"expressions nested more than {self.limits.max_nesting} deep")
        expr = self.binary(0)
        self.nesting -= 1
        return expr

    def binary(self, level: int) -> Expr:
        """Precedence climbing: one call for a plain operand, where a function per level would make eight."""
        left = self.unary()
        links = 0
        while self.kinds[self.at] == "operator":
            op = self.texts[self.at]
            strength = _STRENGTH.get(op, -1)
            if strength < level:
                return left
            self.count()
            if op in ASSOCIATIVE:
                self.at += 1
                left = self.chain(op, left, strength)
                continue
            links += 1
            if links > self.limits.max_chain:
                raise self.too_expensive(f"more than {self.limits.max_chain} operators in one chain")
            self.at += 1
            left = Binary(op, left, self.binary(strength + 1))
        return left

    def chain(self, op: str, first: Expr, strength: int) -> Expr:
        """All operands of `and` or `or`, the first operator read already, as one flat tree."""
        parts = [first, self.binary(strength + 1)]
        while self.is_operator(op):
            self.count()
            self.at += 1
            parts.append(self.binary(strength + 1))
        return balanced(op, parts)

    def unary(self) -> Expr:
        if self.kinds[self.at] != "operator":
            return self.union()
        signs = 0
        while self.is_operator("-"):
            self.count()
            self.at += 1
            signs += 1
        expr = self.union()
        if signs:
            # --x is number(x): an even number of signs still converts.
            expr = Negate(expr) if signs % 2 else Negate(Negate(expr))
        return expr

    def union(self) -> Expr:
        first = self.path()
        if not self.is_operator("|"):
            return first
        self.require_nodes(first, self.at, "'|'")
        parts = [first]
        while self.is_operator("|"):
            bar = self.at
            self.count()
            self.at += 1
            parts.append(self.path())
            self.require_nodes(parts[-1], bar, "'|'")
        return balanced("|", parts)

    # --- paths ---

    def path(self) -> Expr:
        self.count()
        kind, text = self.kinds[self.at], self.texts[self.at]
        steps: list[Step] = []
        start = HERE
        if kind == "symbol":
            if text in ("/", "//"):
                start = ROOT
                self.at += 1
                if text == "//":
                    steps.append(ANY_DEEPER)
                elif not self.step_begins():
                    return Path(ROOT, ())
            elif text in ("(", "$"):
                return self.filtered()
        elif kind in ("number", "literal") or self.call_begins():
            return self.filtered()
        self.steps(steps)
        return Path(start, tuple(steps))

    def filtered(self) -> Expr:
        opening = self.at
        expr = self.primary()
        predicates = self.predicates()
        if predicates:
            self.require_nodes(expr, opening, "a predicate")
            expr = Filter(expr, predicates)
        slashes = self.texts[self.at]
        if self.kinds[self.at] == "symbol" and slashes in ("/", "//"):
            self.require_nodes(expr, opening, repr(slashes))
            self.at += 1
            steps = [ANY_DEEPER] if slashes == "//" else []
            self.steps(steps)
            expr = Path(expr, tuple(steps))
        return expr

    def steps(self, steps: list[Step]) -> None:
        steps.append(self.step())
        while self.kinds[self.at] == "symbol":
            slashes = self.texts[self.at]
            if slashes == "//":
                self.count()
                steps.append(ANY_DEEPER)
            elif slashes != "/":
                return
            self.at += 1
            steps.append(self.step())

    def step_begins(self) -> bool:
        kind = self.kinds[self.at]
        return kind == "name" or (kind == "symbol" and self.texts[self.at] in (".", "..", "@"))

    def step(self) -> Step:
        self.count()
        kind, text = self.kinds[self.at], self.texts[self.at]
        axis = "child"
        if kind == "symbol":
            if text in (".", ".."):
                self.at += 1
                return Step("self" if text == "." else "parent", "node()")
            if text == "@":
                axis = "attribute"
                self.at += 1
        elif kind == "name":
            following = self.texts[self.at + 1]
            if following == "::":
                if text not in AXES:
                    raise self.error(f"expected an axis, found {text!r}", self.at)
                axis = text
                self.at += 2
            elif following not in ("[", "(") and ":" not in text:  # most steps are a name and no more
                self.at += 1
                return Step("child", text)
        test = self.node_test(axis)
        return Step(axis, test, self.predicates())

    def node_test(self, axis: str) -> str:
        name = self.texts[self.at]
        if self.kinds[self.at] != "name":
            raise self.unexpected("a name, '*' or a node test")
        self.at += 1
        if self.texts[self.at] == "(" and name in KIND_TESTS:
            self.at += 1
            target = ""
            if name == "processing-instruction" and self.kinds[self.at] == "literal":
                target = self.texts[self.at]
                self.at += 1
            self.expect(")")
            return f"{name}({target})"
        if axis == "namespace" or ":" not in name:  # namespace nodes have no namespace themselves
            return name
        return self.expanded(name)

    def expanded(self, name: str) -> str:
        prefix, _, local = name.partition(":")
        uri = XML_NAMESPACE if prefix == "xml" else self.namespaces.get(prefix)
        if uri is None:
            reason = f"prefix {prefix!r} is not bound to a namespace"
            raise UnsupportedQueryError(reason, self.text, self.positions[self.at - 1])
        return f"{{{uri}}}{local}"

    def predicates(self) -> tuple[Expr, ...]:
        if self.texts[self.at] != "[":  # a literal has its quotes
            return ()
        found: list[Expr] = []
        while self.texts[self.at] == "[":
            self.at += 1
            found.append(self.expression())
            self.expect("]")
        return tuple(found)

    # --- primaries ---

    def call_begins(self) -> bool:
        at = self.at
        return self.kinds[at] == "name" and self.texts[at + 1] == "(" and self.texts[at] not in KIND_TESTS

    def primary(self) -> Expr:
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == "name":
            return self.call(text)
        self.at += 1
        if kind == "number":
            return Number(float(text))
        if kind == "literal":
            return Literal(text[1:-1])
        if text == "$":
            reason = "variables are not supported in queries"
            raise UnsupportedQueryError(reason, self.text, self.positions[self.at - 1])
        expr = self.expression()
        self.expect(")")
        return expr

    def call(self, name: str) -> Expr:
        opening = self.at
        signature = FUNCTIONS.get(name)
        if signature is None:
            raise UnknownFunctionError(f"XPath 1.0 has no function {name!r}", self.text, self.positions[opening])
        self.at += 2
        args: list[Expr] = []
        if self.texts[self.at] != ")":
            args.append(self.expression())
            while self.texts[self.at] == ",":
                self.at += 1
                args.append(self.expression())
        self.expect(")")
        least, most, _, wanted = signature
        if not least <= len(args) <= most:
            span = str(least) if least == most else f"{least} to {most}"
            raise self.error(f"{name}() takes {span} arguments, found {len(args)}", opening)
        for arg, kind in zip(args, wanted, strict=False):
            if kind == NODES:
                self.require_nodes(arg, opening, f"{name}()")
        return Call(name, tuple(args))

    # --- tokens ---

    def is_operator(self, op: str) -> bool:
        return self.texts[self.at] == op and self.kinds[self.at] == "operator"

    def expect(self, symbol: str) -> None:
        if self.texts[self.at] != symbol:
            raise self.unexpected(repr(symbol))
        self.at += 1

    def error(self, reason: str, at: int) -> QuerySyntaxError:
        return QuerySyntaxError(reason, self.text, self.positions[at])

    def unexpected(self, expected: str) -> QuerySyntaxError:
        found = "the end of the query" if self.kinds[self.at] == "end" else repr(self.texts[self.at])
        return self.error(f"expected {expected}, found {found}", self.at)

    def too_expensive(self, reason: str) -> QueryTooExpensiveError:
        return QueryTooExpensiveError(reason, self.text, self.positions[self.at])

    def require_nodes(self, expr: Expr, at: int, what: str) -> None:
        if type_of(expr) != NODES:
            raise self.error(f"{what} needs a node-set here, not a {type_of(expr)}", at)

    def count(self) -> None:
        self.nodes += 1
        if self.nodes > self.limits.max_nodes:
            raise self.too_expensive(f"more than {self.limits.max_nodes} parts in one query")


_STRENGTH = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
