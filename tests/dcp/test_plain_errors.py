"""Blocks with nurseries behind them: one error comes out as it is, several as a group, and cancelling still works."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

import dcp
from dcp.plain_errors import with_plain_errors


@with_plain_errors
@asynccontextmanager
async def busy(*, breaks: Exception | None = None, refuses: Exception | None = None):
    """Two nurseries deep, with a task that goes on forever, or breaks."""

    async def work():
        if breaks is not None:
            await trio.lowlevel.checkpoint()
            raise breaks
        await trio.sleep_forever()

    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        inner.start_soon(work)
        if refuses is not None:
            raise refuses
        yield "busy"
        outer.cancel_scope.cancel()


async def test_what_the_block_raises_comes_out_as_it_is():
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with busy():
            raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_a_group_that_the_block_raises_stays_whole():
    error = ExceptionGroup("mine", [KeyError("one")])
    with pytest.raises(ExceptionGroup) as caught:
        async with busy():
            raise error
    assert caught.value is error


async def test_what_breaks_behind_the_block_comes_out_as_it_is():
    error = ConnectionError("behind")
    with pytest.raises(ConnectionError) as caught:
        async with busy(breaks=error):
            await trio.sleep_forever()
    assert caught.value is error
    assert error.__context__ is None


async def test_what_is_wrong_at_opening_comes_out_as_it_is():
    error = ConnectionError("refused")
    with pytest.raises(ConnectionError) as caught:
        async with busy(refuses=error):
            pytest.fail("it opened")
    assert caught.value is error


async def test_two_errors_are_a_group():

    async def break_too():
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        async with busy(breaks=ConnectionError("behind")):
            await break_too()
    assert caught.group_contains(KeyError, depth=None)
    assert caught.group_contains(ConnectionError, depth=None)


async def test_cancelling_from_outside_ends_the_block_without_an_error():
    with trio.CancelScope() as scope:
        async with busy():
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    async with busy() as name:
        assert name == "busy"


@pytest.mark.net
async def test_an_endpoint_is_such_a_block():
    with pytest.raises(KeyError):
        async with dcp.open_endpoint():
            raise KeyError
