"""What passes between a peer's thread and the program: bounded, many items at a time, for threads and asyncio.

One producer under trio, any number of consumers. An item costs a consumer one `popleft`; locks are taken only to wait.
Who is about to wait says so before it looks a last time, and who brings something looks afterwards whether anybody
waits: so nobody sleeps through what came.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Ended(Exception):
    """Nothing is left, and nothing will come."""


class Mailbox(Generic[T]):
    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a mailbox holds 1 item or more, not {limit}")
        self._limit = limit
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._futures: set[asyncio.Future[None]] = set()
        self._room: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_closed = False
        self._error: BaseException | None = None

    # --- the producer, under trio -------------------------------------------------------------------------------------

    async def put(self, items: Iterable[T]) -> None:
        """Everything at once, as soon as there are fewer than `limit`: so at most `limit` and one batch wait."""
        self._token = trio.lowlevel.current_trio_token()
        while len(self._items) >= self._limit:
            self._room = trio.Event()
            if len(self._items) < self._limit:  # taken meanwhile
                break
            await self._room.wait()
        self._room = None
        self._items.extend(items)
        self._notify()

    def put_or_drop(self, item: T) -> bool:
        """For news that may be missed: False when it was dropped."""
        if len(self._items) >= self._limit:
            return False
        self._items.append(item)
        self._notify()
        return True

    def close(self, error: BaseException | None = None) -> None:
        """No more will come. What is there is still handed out, then the error is raised, if there is one."""
        self._error = error
        self._is_closed = True
        self._notify()

    def _notify(self) -> None:
        if not self._waiting:
            return
        with self._changed:
            self._changed.notify_all()
            for future in self._futures:
                with contextlib.suppress(RuntimeError):  # that loop has been closed
                    future.get_loop().call_soon_threadsafe(_wake, future)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def take(self) -> T | None:
        """The next item if it is there; None when it is not. Ended, or the producer's error, at the end."""
        try:
            item = self._items.popleft()
        except IndexError:
            if self._is_closed and not self._items:
                raise self._error or Ended from None
            return None
        if self._room is not None and len(self._items) <= self._limit // 2:
            self._make_room()
        return item

    def get(self, timeout: float | None = None) -> T:
        """The next item, waited for in this thread. TimeoutError; Ended or the producer's error at the end."""
        item = self.take()
        if item is not None:
            return item
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            try:
                while (item := self.take()) is None:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise TimeoutError(f"nothing came in {timeout:g} s")
                    self._changed.wait(left)
            finally:
                self._waiting -= 1
        return item

    async def get_in_asyncio(self) -> T:
        """The same for a task of asyncio, which may be cancelled at any moment."""
        while (item := self.take()) is None:
            future = asyncio.get_running_loop().create_future()
            with self._changed:
                self._waiting += 1
                self._futures.add(future)
            try:
                if (item := self.take()) is not None:
                    return item
                await future
            finally:
                with self._changed:
                    self._waiting -= 1
                    self._futures.discard(future)
        return item

    def _make_room(self) -> None:
        room, token = self._room, self._token
        if room is not None and token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(room.set)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
