"""Goals: what a mesh should be good at, as text that the owner of a stream writes and every peer understands.

    goal = parse_goal("minimize average(path sum(link.latency)) over clients subject to fanout <= 6")
    print(explain_goal(goal))

The language is in docs/optimizer.md. Pure: nothing here knows links, peers or time.
"""

from peer.goals.errors import GoalError
from peer.goals.explain import GoalExplanation, explain_goal
from peer.goals.parser import MAX_GOAL_BYTES, parse_goal, parse_goal_untrusted
from peer.goals.syntax import Goal
from peer.goals.vocabulary import VOCABULARY, Vocabulary, register_combination, register_local, register_metric

__all__ = [
    "MAX_GOAL_BYTES",
    "VOCABULARY",
    "Goal",
    "GoalError",
    "GoalExplanation",
    "Vocabulary",
    "explain_goal",
    "parse_goal",
    "parse_goal_untrusted",
    "register_combination",
    "register_local",
    "register_metric",
]
