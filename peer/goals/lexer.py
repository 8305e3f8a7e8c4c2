"""A goal's text as tokens, each with its position."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from peer.goals.errors import GoalError
from peer.goals.units import UNITS


class Token(StrEnum):
    WORD = "word"
    NUMBER = "number"
    UNIT = "unit"
    MARK = "mark"
    END = "end"


class Lexeme(NamedTuple):
    kind: Token
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind is Token.END else repr(self.text)


_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?(?![\d.])")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARK = re.compile(r"<=|>=|!=|[<>(),.+*/-]")
_UNIT = re.compile(
    rf"(?:{'|'.join(re.escape(u) for u in sorted(UNITS, key=len, reverse=True))})(?:\^2)?(?![A-Za-z0-9_])"
)


def lexemes(text: str) -> list[Lexeme]:
    """All of them, and END. A unit is one only right after a number: `s` may be a metric's name elsewhere."""
    found: list[Lexeme] = []
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if at == len(text):
            found.append(Lexeme(Token.END, "", at))
            return found
        after_number = bool(found) and found[-1].kind is Token.NUMBER
        kinds = [(Token.UNIT, _UNIT)] if after_number else []
        for kind, pattern in (*kinds, (Token.NUMBER, _NUMBER), (Token.WORD, _WORD), (Token.MARK, _MARK)):
            match = pattern.match(text, at)
            if match is not None:
                word = match.group().lower() if kind is Token.WORD else match.group()
                found.append(Lexeme(kind, word, at))
                at = match.end()
                break
        else:
            reason = "a number has too many digits or points" if text[at].isdecimal() else f"unexpected {text[at]!r}"
            raise GoalError(reason, text, at)
