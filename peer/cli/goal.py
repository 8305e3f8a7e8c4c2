"""`goal check`: whether the mesh understands a goal, and what it means and costs."""

from __future__ import annotations

import json

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.goals import VOCABULARY, GoalError, explain_goal, parse_goal
from peer.optimizer.course import Course


def check(settings: Settings, text: str) -> int:
    try:
        goal = parse_goal(text)
    except GoalError as error:
        if settings["json"]:
            print(
                json.dumps(
                    {
                        "accepted": False,
                        "reason": error.reason,
                        "position": error.position + 1,
                        "expected": list(error.expected),
                    }
                )
            )
            return ExitCode.BAD_GOAL
        raise CliError(pointed(text, error), ExitCode.BAD_GOAL) from None
    explanation, problem = explain_goal(goal), Course(goal, VOCABULARY).problem
    if settings["json"]:
        print(json.dumps({"accepted": True} | explanation.as_dict() | {"problem": problem or None}))
        return ExitCode.OK
    print(f"accepted\n{explanation}")
    print(f"peers       {f'place themselves as without a goal: {problem}' if problem else 'follow it'}")
    return ExitCode.OK


def pointed(text: str, error: GoalError) -> str:
    """The reason, and a caret under the character it is about."""
    if not error.text or "\n" in text:
        return f"this goal is refused: {error}"
    return f"this goal is refused: {error}\n  {text}\n  {' ' * error.position}^"
