"""`async with` blocks that run tasks of their own: what is raised inside comes out as it is, in no exception group.

That there are nurseries behind such a block is nobody's business, and `except ConnectionError` around it should do what
it says. Several errors at once are a group all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def with_plain_errors(
    opened: Callable[P, AbstractAsyncContextManager[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """For functions that `asynccontextmanager` made."""

    @wraps(opened)
    def open_plain(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _PlainErrors(opened(*args, **kwargs))

    return open_plain


class _PlainErrors(AbstractAsyncContextManager[T], Generic[T]):
    def __init__(self, block: AbstractAsyncContextManager[T]) -> None:
        self._block = block

    async def __aenter__(self) -> T:
        try:
            return await self._block.__aenter__()
        except BaseExceptionGroup as group:
            _raise_if_alone(group)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await self._block.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if error is not None and set(map(id, _leaves(group))) == set(map(id, _leaves(error))):
                return False  # what the block raised goes on as it was
            _raise_if_alone(group)
            raise


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside groups: nurseries wrap what happens in them."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _raise_if_alone(group: BaseException) -> None:
    error, *others = _leaves(group)
    if others:
        return
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # the group that it lay in says nothing more, and would hold on to it
        del error, group, context
