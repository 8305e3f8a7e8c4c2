"""XPath 1.0 by recursive descent: tokens to the tree of `syntax`, or one refusal with the place and what was expected.

elementpath parses XPath too, twenty times slower and only after an import of a tenth of a second; a peer that starts
within 300 ms and takes a hundred thousand subscriptions wants neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from xmlswitch.errors import QuerySyntaxError, QueryTooExpensiveError, UnsupportedQueryError
from xmlswitch.lexer import Token, tokens
from xmlswitch.limits import QUERY_LIMITS, QueryLimits
from xmlswitch.syntax import (
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
        self.tokens = tokens(text)
        self.at = 0
        self.nesting = 0
        self.nodes = 0

    def parse(self) -> Expr:
        expr = self.expression()
        token = self.tokens[self.at]
        if token.kind != "end":
            raise self.unexpected("an operator or the end of the query")
        if depth_of(expr) > self.limits.max_depth:
            raise QueryTooExpensiveError(f"operators nested more than {self.limits.max_depth} deep", self.text)
        return expr

    # --- operators ---

    def expression(self) -> Expr:
        self.nesting += 1
        if self.nesting > self.limits.max_nesting:
            token = self.tokens[self.at]
            reason = f"expressions nested more than {self.limits.max_nesting} deep"
            raise QueryTooExpensiveError(reason, self.text, token.position)
        expr = self.binary(0)
        self.nesting -= 1
        return expr

    def binary(self, level: int) -> Expr:
        """Precedence climbing: one call for a plain operand, where a function a level would make eight."""
        left = self.unary()
        links = 0
        while True:
            token = self.tokens[self.at]
            if token.kind != "operator":
                return left
            strength = _STRENGTH.get(token.text, -1)
            if strength < level:
                return left
            self.at += 1
            self.count(token)
            if token.text in ASSOCIATIVE:
                left = self.chain(token.text, left, strength)
                continue
            links += 1
            if links > self.limits.max_chain:
                reason = f"more than {self.limits.max_chain} operators in one chain"
                raise QueryTooExpensiveError(reason, self.text, token.position)
            left = Binary(token.text, left, self.binary(strength + 1))

    def chain(self, op: str, first: Expr, strength: int) -> Expr:
        """All operands of `and` or `or`, the first operator read already, as one flat tree."""
        parts = [first, self.binary(strength + 1)]
        while (token := self.tokens[self.at]).kind == "operator" and token.text == op:
            self.at += 1
            self.count(token)
            parts.append(self.binary(strength + 1))
        return balanced(op, parts)

    def unary(self) -> Expr:
        signs = 0
        while self.tokens[self.at].text == "-" and self.tokens[self.at].kind == "operator":
            self.count(self.tokens[self.at])
            self.at += 1
            signs += 1
        expr = self.union()
        if signs:
            # --x is number(x): an even number of signs still converts.
            expr = Negate(expr) if signs % 2 else Negate(Negate(expr))
        return expr

    def union(self) -> Expr:
        first = self.path()
        if self.tokens[self.at].text != "|" or self.tokens[self.at].kind != "operator":
            return first
        self.require_nodes(first, self.tokens[self.at], "'|'")
        parts = [first]
        while self.tokens[self.at].text == "|" and self.tokens[self.at].kind == "operator":
            bar = self.tokens[self.at]
            self.at += 1
            parts.append(self.path())
            self.require_nodes(parts[-1], bar, "'|'")
            self.count(bar)
        return balanced("|", parts)

    # --- paths ---

    def path(self) -> Expr:
        token = self.tokens[self.at]
        self.count(token)
        if token.kind in ("number", "literal") or token.text in ("(", "$") or self.is_call(token):
            return self.filtered()
        steps: list[Step] = []
        start = HERE
        if token.kind == "symbol" and token.text in ("/", "//"):
            start = ROOT
            self.at += 1
            if token.text == "//":
                steps.append(ANY_DEEPER)
            elif not self.step_begins():
                return Path(ROOT, ())
        self.steps(steps)
        return Path(start, tuple(steps))

    def filtered(self) -> Expr:
        opening = self.tokens[self.at]
        expr = self.primary()
        predicates = self.predicates()
        if predicates:
            self.require_nodes(expr, opening, "a predicate")
            expr = Filter(expr, predicates)
        token = self.tokens[self.at]
        if token.kind == "symbol" and token.text in ("/", "//"):
            self.require_nodes(expr, opening, repr(token.text))
            self.at += 1
            steps = [ANY_DEEPER] if token.text == "//" else []
            self.steps(steps)
            expr = Path(expr, tuple(steps))
        return expr

    def steps(self, steps: list[Step]) -> None:
        steps.append(self.step())
        while True:
            token = self.tokens[self.at]
            if token.kind != "symbol" or token.text not in ("/", "//"):
                return
            self.at += 1
            if token.text == "//":
                self.count(token)
                steps.append(ANY_DEEPER)
            steps.append(self.step())

    def step_begins(self) -> bool:
        token = self.tokens[self.at]
        return token.kind == "name" or (token.kind == "symbol" and token.text in (".", "..", "@"))

    def step(self) -> Step:
        token = self.tokens[self.at]
        self.count(token)
        if token.kind == "symbol" and token.text in (".", ".."):
            self.at += 1
            return Step("self" if token.text == "." else "parent", "node()")
        axis = "child"
        if token.kind == "symbol" and token.text == "@":
            axis = "attribute"
            self.at += 1
        elif token.kind == "name" and self.tokens[self.at + 1].text == "::":
            if token.text not in AXES:
                raise QuerySyntaxError(f"expected an axis, found {token.text!r}", self.text, token.position)
            axis = token.text
            self.at += 2
        test = self.node_test(axis)
        return Step(axis, test, self.predicates())

    def node_test(self, axis: str) -> str:
        token = self.tokens[self.at]
        if token.kind != "name":
            raise self.unexpected("a name, '*' or a node test")
        self.at += 1
        if self.tokens[self.at].text == "(" and token.text in KIND_TESTS:
            self.at += 1
            target = ""
            if token.text == "processing-instruction" and self.tokens[self.at].kind == "literal":
                target = self.tokens[self.at].text
                self.at += 1
            self.expect(")")
            return f"{token.text}({target})"
        if axis == "namespace":
            return token.text  # namespace nodes have no namespace themselves
        return self.expanded(token)

    def expanded(self, token: Token) -> str:
        prefix, colon, local = token.text.partition(":")
        if not colon:
            return token.text
        uri = XML_NAMESPACE if prefix == "xml" else self.namespaces.get(prefix)
        if uri is None:
            raise UnsupportedQueryError(f"the prefix {prefix!r} is bound to no namespace", self.text, token.position)
        return f"{{{uri}}}{local}"

    def predicates(self) -> tuple[Expr, ...]:
        found: list[Expr] = []
        while self.tokens[self.at].text == "[" and self.tokens[self.at].kind == "symbol":
            self.at += 1
            found.append(self.expression())
            self.expect("]")
        return tuple(found)

    # --- primaries ---

    def is_call(self, token: Token) -> bool:
        return token.kind == "name" and self.tokens[self.at + 1].text == "(" and token.text not in KIND_TESTS

    def primary(self) -> Expr:
        token = self.tokens[self.at]
        self.at += 1
        if token.kind == "number":
            return Number(float(token.text))
        if token.kind == "literal":
            return Literal(token.text[1:-1])
        if token.text == "$":
            raise UnsupportedQueryError("no variable is bound in a standing query", self.text, token.position)
        if token.text == "(":
            expr = self.expression()
            self.expect(")")
            return expr
        return self.call(token)

    def call(self, token: Token) -> Expr:
        signature = FUNCTIONS.get(token.text)
        if signature is None:
            raise UnknownFunctionError(f"XPath 1.0 has no function {token.text!r}", self.text, token.position)
        self.at += 1
        args: list[Expr] = []
        if self.tokens[self.at].text != ")":
            args.append(self.expression())
            while self.tokens[self.at].text == ",":
                self.at += 1
                args.append(self.expression())
        self.expect(")")
        least, most, _, wanted = signature
        if not least <= len(args) <= most:
            span = str(least) if least == most else f"{least} to {most}"
            reason = f"{token.text}() takes {span} arguments, found {len(args)}"
            raise QuerySyntaxError(reason, self.text, token.position)
        for arg, kind in zip(args, wanted, strict=False):
            if kind == NODES:
                self.require_nodes(arg, token, f"{token.text}()")
        return Call(token.text, tuple(args))

    # --- tokens ---

    def expect(self, symbol: str) -> None:
        token = self.tokens[self.at]
        if token.text != symbol or token.kind == "literal":
            raise self.unexpected(repr(symbol))
        self.at += 1

    def unexpected(self, expected: str) -> QuerySyntaxError:
        token = self.tokens[self.at]
        found = "the end of the query" if token.kind == "end" else repr(token.text)
        return QuerySyntaxError(f"expected {expected}, found {found}", self.text, token.position)

    def require_nodes(self, expr: Expr, token: Token, what: str) -> None:
        if type_of(expr) != NODES:
            raise QuerySyntaxError(f"{what} needs a node-set here, not a {type_of(expr)}", self.text, token.position)

    def count(self, token: Token) -> None:
        self.nodes += 1
        if self.nodes > self.limits.max_nodes:
            reason = f"more than {self.limits.max_nodes} parts in one query"
            raise QueryTooExpensiveError(reason, self.text, token.position)


_STRENGTH = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
