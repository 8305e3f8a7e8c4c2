"""From text to a `Goal`. The text may come from a stranger: size, depth and the number of parts are bounded.

goal        minimize | maximize  system  [subject to constraint {, constraint}]  [decided by peers | root]
system      min | max | sum | average | product | variance | std ( cost ) [over routers | clients | peers]
constraint  (system | cost)  < | > | <= | >= | !=  number [unit]
cost        term {+ | - term}
term        factor {* | / factor}
factor      number [unit] | ( cost ) | value | f-or-g ( cost {, cost} )
            | path | children  min | max | sum | average ( cost )
value       link.NAME | node.NAME | NAME, if only one of the two exists
"""

from __future__ import annotations

from peer.goals.errors import GoalError
from peer.goals.lexer import Lexeme, Token, lexemes
from peer.goals.syntax import (
    NODE_FUNCTIONS,
    Along,
    Arithmetic,
    Call,
    Comparison,
    Constraint,
    Cost,
    Decider,
    Function,
    Goal,
    NodeAggregate,
    Number,
    Over,
    Scope,
    Sense,
    SystemCost,
    Value,
    parts,
)
from peer.goals.units import NUMBER, OPEN, Dimension, unit_named, units_of
from peer.goals.vocabulary import VOCABULARY, Vocabulary

MAX_GOAL_BYTES = 512
MAX_DEPTH = 12
"""Parentheses, calls and aggregates within each other."""
MAX_CONSTRAINTS = 8
_SETS = {"routers": Over.ROUTERS, "brokers": Over.ROUTERS, "clients": Over.CLIENTS, "peers": Over.PEERS}


def parse_goal_untrusted(data: bytes, vocabulary: Vocabulary | None = None) -> Goal:
    """A goal that came over the network. Raises `GoalError` and nothing else."""
    if len(data) > MAX_GOAL_BYTES:
        raise GoalError(f"a goal has at most {MAX_GOAL_BYTES} bytes, got {len(data)}")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise GoalError("a goal is ASCII text") from None
    return parse_goal(text, vocabulary)


def parse_goal(text: str, vocabulary: Vocabulary | None = None) -> Goal:
    """Raises `GoalError` with the position of what is wrong and what was expected there."""
    if not text.isascii():
        at = next(k for k, letter in enumerate(text) if not letter.isascii())
        raise GoalError(f"a goal is ASCII text, got {text[at]!r}", text, at)
    if len(text) > MAX_GOAL_BYTES:
        raise GoalError(f"a goal has at most {MAX_GOAL_BYTES} bytes, got {len(text)}")
    return _Parser(text, vocabulary or VOCABULARY).goal()


class _Parser:
    def __init__(self, text: str, words: Vocabulary) -> None:
        self._text, self._words = text, words
        self._lexemes = lexemes(text)
        self._at = 0
        self._depth = 0

    # Tokens

    @property
    def _next(self) -> Lexeme:
        return self._lexemes[self._at]

    def _take(self) -> Lexeme:
        taken = self._next
        self._at = min(self._at + 1, len(self._lexemes) - 1)
        return taken

    def _is(self, *texts: str) -> bool:
        return self._next.text in texts and self._next.kind in (Token.WORD, Token.MARK)

    def _is_a(self, kind: Token) -> bool:
        return self._next.kind is kind

    def _followed_by(self, text: str) -> bool:
        return self._at + 1 < len(self._lexemes) and self._lexemes[self._at + 1].text == text

    def _expect(self, *texts: str) -> Lexeme:
        if not self._is(*texts):
            raise self._unexpected(*(f"'{text}'" for text in texts))
        return self._take()

    def _unexpected(self, *expected: str) -> GoalError:
        return GoalError(f"unexpected {self._next}", self._text, self._next.position, expected)

    def _error(self, reason: str, at: int, *expected: str) -> GoalError:
        return GoalError(reason, self._text, at, expected)

    # The grammar

    def goal(self) -> Goal:
        sense = Sense(self._expect(*Sense).text)
        cost = self._system()
        constraints: list[Constraint] = []
        if self._is("subject"):
            self._take()
            self._expect("to")
            constraints.append(self._constraint())
            while self._is(","):
                at = self._take().position
                if len(constraints) == MAX_CONSTRAINTS:
                    raise self._error(f"a goal has at most {MAX_CONSTRAINTS} constraints", at)
                constraints.append(self._constraint())
        by = Decider.PEERS
        is_decided = self._is("decided")
        if is_decided:
            self._take()
            self._expect("by")
            by = Decider(self._expect(*Decider).text)
        if not self._is_a(Token.END):
            after = () if is_decided else (("','",) if constraints else ("'subject to'",)) + ("'decided by'",)
            raise self._unexpected(*after, "the end")
        return Goal(sense, cost, tuple(constraints), by)

    def _system(self) -> SystemCost:
        function = Function(self._expect(*Function).text)
        self._expect("(")
        cost = self._cost(along=None)
        self._expect(")")
        over = Over.PEERS
        if self._is("over"):
            self._take()
            over = _SETS[self._expect(*_SETS).text]
        dimension = cost.dimension
        if function is Function.VARIANCE:
            dimension = dimension.squared()
        elif function is Function.PRODUCT and dimension != NUMBER:
            dimension = OPEN
        return SystemCost(function, cost, over, dimension)

    def _constraint(self) -> Constraint:
        at = self._next.position
        is_system = self._next.text in list(Function) and self._followed_by("(")
        metric: SystemCost | Cost = self._system() if is_system else self._cost(along=None)
        comparison = Comparison(self._expect(*Comparison).text)
        number_at = self._next.position
        threshold = self._number()
        if not is_system and not any(isinstance(part, Value) for part in parts(metric)):  # type: ignore[arg-type]
            raise self._error("a constraint needs a metric", at, "a value such as node.fanout")
        wanted = metric.dimension
        if threshold.dimension != wanted and not (wanted.is_open and threshold.dimension == NUMBER):
            if wanted == NUMBER or wanted.is_open:
                raise self._error(f"{metric} has no unit", number_at, "a number without a unit")
            raise self._error(f"the unit of {metric} does not fit {threshold}", number_at, *_as_units(wanted))
        return Constraint(metric, comparison, threshold)

    def _number(self) -> Number:
        if not self._is_a(Token.NUMBER):
            raise self._unexpected("a number")
        taken = self._take()
        written = _shortest(taken.text)
        if not self._is_a(Token.UNIT):
            if self._is_a(Token.WORD) and self._next.text not in ("subject", "over", "decided"):
                raise self._error(f"unknown unit {self._next}", self._next.position, "a unit such as ms or KB/s")
            return Number(float(taken.text), "", written)
        unit = self._take().text
        factor, dimension = unit_named(unit)
        return Number(float(taken.text) * factor, unit, written, dimension)

    # Costs

    def _cost(self, along: Along | None) -> Cost:
        self._deeper()
        left = self._term(along)
        while self._is("+", "-"):
            operator = self._take()
            right = self._term(along)
            if left.dimension != right.dimension:
                raise self._error(f"{left} and {right} have different units", operator.position)
            left = Arithmetic(operator.text, left, right, left.dimension)
        self._depth -= 1
        return left

    def _term(self, along: Along | None) -> Cost:
        left = self._factor(along)
        while self._is("*", "/"):
            operator = self._take().text
            right = self._factor(along)
            join = left.dimension.times if operator == "*" else left.dimension.per
            left = Arithmetic(operator, left, right, join(right.dimension))
        return left

    def _factor(self, along: Along | None) -> Cost:
        token = self._next
        if token.kind is Token.NUMBER:
            return self._number()
        if self._is("("):
            self._take()
            inner = self._cost(along)
            self._expect(")")
            return inner
        if token.kind is not Token.WORD:
            raise self._unexpected("a metric", "'path'", "'children'", "a number", "'('")
        if token.text in list(Along):
            return self._aggregate(along)
        if token.text in list(Scope):
            return self._value()
        if self._followed_by("("):
            return self._call(along)
        return self._short_value()

    def _aggregate(self, along: Along | None) -> NodeAggregate:
        token = self._take()
        if along is not None:
            raise self._error("an aggregate cannot be inside an aggregate", token.position)
        function = Function(self._expect(*NODE_FUNCTIONS).text)
        self._expect("(")
        value = self._cost(Along(token.text))
        self._expect(")")
        if not any(isinstance(part, Value) for part in parts(value)):
            raise self._error("an aggregate needs a metric", token.position, "a value such as link.latency")
        return NodeAggregate(function, value, Along(token.text), value.dimension)

    def _value(self) -> Value:
        scope = Scope(self._take().text)
        self._expect(".")
        if not self._is_a(Token.WORD):
            raise self._unexpected(*self._metrics(scope))
        name = self._take()
        metric = self._words.metrics.get((scope, name.text))
        if metric is None:
            raise self._error(f"unknown metric {scope}.{name.text}", name.position, *self._metrics(scope))
        return Value(scope, metric.name, metric.dimension)

    def _short_value(self) -> Value:
        name = self._take()
        scopes = self._words.scopes(name.text)
        if len(scopes) == 1:
            metric = self._words.metrics[scopes[0], name.text]
            return Value(metric.scope, metric.name, metric.dimension)
        if scopes:
            raise self._error(f"{name.text} is a metric of links and of nodes", name.position,
                              *(f"{scope}.{name.text}" for scope in scopes))  # fmt: skip
        if name.text in list(Function):
            raise self._error(f"{name} aggregates over a path or children here", name.position, f"'path {name.text}('")
        raise self._error(f"unknown word {name}", name.position, "a metric", "'path'", "'children'")

    def _call(self, along: Along | None) -> Call:
        name = self._take()
        function = self._words.functions.get(name.text)
        if function is None:
            if name.text in list(Function):
                raise self._error(f"{name} needs something to aggregate over", name.position,
                                  f"'path {name.text}('", f"'children {name.text}('")  # fmt: skip
            raise self._error(f"unknown function {name}", name.position, *sorted(self._words.functions))
        self._expect("(")
        arguments = [self._cost(along)]
        while self._is(","):
            self._take()
            arguments.append(self._cost(along))
        self._expect(")")
        if function.arity is not None and len(arguments) != function.arity:
            raise self._error(f"{function.name} takes {function.arity} arguments, got {len(arguments)}", name.position)
        is_of_costs = any(isinstance(part, NodeAggregate) for argument in arguments for part in parts(argument))
        if is_of_costs and not function.of_costs:
            raise self._error(f"{function.name} is a function of local values, not of node costs", name.position)
        if not is_of_costs and not function.of_local:
            raise self._error(f"{function.name} combines node costs, not local values", name.position)
        try:
            dimension = function.dimension(*(argument.dimension for argument in arguments))
        except ValueError as error:
            raise self._error(f"{function.name}: {error}", name.position) from None
        return Call(function.name, tuple(arguments), dimension)

    def _metrics(self, scope: Scope) -> tuple[str, ...]:
        return tuple(name for of, name in self._words.metrics if of is scope)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"a goal is nested at most {MAX_DEPTH} deep", self._next.position)


def _as_units(dimension: Dimension) -> tuple[str, ...]:
    return tuple(f"a number of {name}" for name in units_of(dimension)) or ("another unit",)


def _shortest(written: str) -> str:
    """A number without superfluous zeros, so that equal goals have equal texts."""
    whole, point, fraction = written.partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    return f"{whole}{point}{fraction}" if fraction else whole
