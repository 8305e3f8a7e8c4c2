"""The programs that listen to a peer's events, each by a bounded channel: one that does not read harms nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


@dataclass(slots=True)
class _Listener(Generic[T]):
    channel: trio.MemorySendChannel[T]
    statistics_every: float | None
    statistics_at: float = 0.0


class Listeners(Generic[T]):
    def __init__(self, statistics: Callable[[], T]) -> None:
        self._statistics = statistics
        self._all: list[_Listener[T]] = []
        self._added = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, buffer: int, first: T, statistics_every: float | None) -> trio.MemoryReceiveChannel[T]:
        if statistics_every is not None and statistics_every <= 0:
            raise ValueError(f"statistics come every so many seconds, not every {statistics_every}")
        send, receive = trio.open_memory_channel[T](buffer)
        self._all.append(_Listener(send, statistics_every))
        send.send_nowait(first)
        self._added.set()
        return receive

    def tell(self, event: T) -> None:
        for listener in list(self._all):
            self._tell_one(listener, event)

    def _tell_one(self, listener: _Listener[T], event: T) -> None:
        try:
            listener.channel.send_nowait(event)
        except trio.WouldBlock:
            pass  # a listener that does not listen misses events, and harms nobody
        except trio.BrokenResourceError:
            self._all.remove(listener)

    def close(self) -> None:
        """The peer has gone: listeners see the end of their channel."""
        for listener in self._all:
            listener.channel.close()
        self._all.clear()

    async def run_statistics(self) -> None:
        """Snapshots for the listeners that asked for them."""
        while True:
            now = trio.current_time()
            next_at = float("inf")
            for listener in list(self._all):
                if listener.statistics_every is not None:
                    if now >= listener.statistics_at:
                        listener.statistics_at = now + listener.statistics_every
                        self._tell_one(listener, self._statistics())
                    next_at = min(next_at, listener.statistics_at)
            with trio.move_on_at(next_at):
                await self._added.wait()
                self._added = trio.Event()
