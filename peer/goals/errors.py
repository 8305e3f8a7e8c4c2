"""What is wrong with a goal, and where."""

from __future__ import annotations


class GoalError(ValueError):
    """A goal that is refused: `reason` is one sentence, `position` an offset in `text`, `expected` what fits there."""

    def __init__(self, reason: str, text: str = "", position: int = 0, expected: tuple[str, ...] = ()) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        self.expected = expected
        wanted = f"; expected {either(expected)}" if expected else ""
        super().__init__(f"{reason}{wanted} (at character {position + 1})" if text else f"{reason}{wanted}")


def either(words: tuple[str, ...]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
