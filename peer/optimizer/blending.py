"""What n parents are worth together: the expected first copy (rule O3).

The best parent brings the first copy unless it fails, then the second best does, and so on. The odds of a failure are
the measured loss, but at least `LEAST_ODDS`: with odds of 0 the second parent would be worth nothing, and it ended up
164 ms away instead of 119, 29 hops deep instead of 12.
"""

from __future__ import annotations

from collections.abc import Sequence

LEAST_ODDS = 0.3


def shares(count: int, odds: float = LEAST_ODDS) -> list[float]:
    """How often the parents, best first, bring the first copy."""
    if count == 0:
        return []
    return [(1 - odds) * odds**k for k in range(count - 1)] + [odds ** (count - 1)]


def blend(values: Sequence[float], odds: float = LEAST_ODDS) -> float:
    """The expected value over parents, the lowest first."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        low, high = values if values[0] <= values[1] else (values[1], values[0])
        return low + odds * (high - low)
    return sum(share * value for share, value in zip(shares(len(values), odds), sorted(values), strict=True))
