"""What can go wrong: a query that is refused, a packet that is refused, bytes that are not a query."""

from __future__ import annotations

from enum import StrEnum


class SwitchError(Exception):
    """The root of everything this package raises about other people's input."""


class QueryError(SwitchError):
    """A query that is refused at subscription. `position` is an offset into `text`, `reason` one clear sentence."""

    def __init__(self, reason: str, text: str = "", position: int = 0) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        super().__init__(f"{reason} (at character {position + 1} of {_shortened(text)!r})" if text else reason)


class QuerySyntaxError(QueryError):
    """Not an XPath expression: what stood at `position` is not what the grammar expects there."""


class UnsupportedQueryError(QueryError):
    """A well-formed expression that a switch won't take: it reaches outside the packet, or binds what nobody bound."""


class LocalQueryError(UnsupportedQueryError, ValueError):
    """A query that is evaluated where it was written and is never sent: send `Query.need()`."""


class QueryTooExpensiveError(QueryError):
    """Longer, deeper or costlier than the limits allow."""


class Rule(StrEnum):
    """Which rule of the document parser a packet broke."""

    EMPTY = "empty"
    SIZE = "size"
    DOCTYPE = "doctype"
    ENTITY = "entity"
    ENCODING = "encoding"
    WELL_FORMED = "well-formed"
    DEPTH = "depth"
    ATTRIBUTES = "attributes"
    ATTRIBUTE_SIZE = "attribute-size"
    TEXT_SIZE = "text-size"
    RECORD = "record"


class MalformedDocument(SwitchError):
    """A packet that the hardened parser refuses: `rule`, and `line` and `column` (1-based, 0 when unknown)."""

    def __init__(self, rule: Rule, detail: str, line: int = 0, column: int = 0) -> None:
        self.rule = rule
        self.detail = detail
        self.line = line
        self.column = column
        place = f" at line {line}, column {column}" if line else ""
        super().__init__(f"{rule.value}{place}: {detail}")


class EvaluationCutOff(SwitchError):
    """One query would have cost, or did cost, more than one packet may. The switch counts it and lets the packet by."""


class MalformedQuery(SwitchError):
    """Bytes from the network that are not an encoded query."""


def _shortened(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
