"""A process that dies in the middle of something, in a test's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Died(BaseException):
    """As sudden as SIGKILL: nothing catches it on the way."""


def dying_after(calls: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wraps functions: together they may be called so often, and the next call dies."""
    left = [calls]

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise Died
            left[0] -= 1
            return real(*args, **options)

        return call

    return dying
