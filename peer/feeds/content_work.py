"""What the tasks of a root share whose feed carries no numbers: one reads the feed, one finds the numbers."""

from __future__ import annotations

import trio

from peer.feeds.sequencer import ContentSequencer, Numbered
from peer.feeds.stamp import strip_stamp


class ContentWork:
    """The lock keeps what both let out in order."""

    def __init__(self, sequencer: ContentSequencer, out: trio.MemorySendChannel[Numbered | None]) -> None:
        self.sequencer = sequencer
        self.out = out
        self._lock = trio.Lock()
        self._unknown = trio.Event()
        self._unknown.set()
        self._readable = trio.Event()
        self._all_read = False

    async def wait_readable(self) -> None:
        """Until what is read can be numbered, or is needed to find the numbers."""
        await self._readable.wait()

    def let_read(self) -> None:
        self._readable.set()

    async def number(self, payload: bytes) -> None:
        async with self._lock:
            await self._let_out(self.sequencer.number(payload))

    async def heard(self, an: int, payload: bytes) -> None:
        async with self._lock:
            await self._let_out(self.sequencer.heard(an, strip_stamp(payload)))

    async def count_alone(self) -> None:
        async with self._lock:
            await self.out.send(None)  # open, even while the feed is silent
            await self._let_out(self.sequencer.count_alone())
        self.let_read()

    async def _let_out(self, packets: list[Numbered]) -> None:
        for packet in packets:
            await self.out.send(packet)

    def broke(self) -> int:
        """How many packets that had no number yet were lost by it."""
        was_listening, before = self.sequencer.listening, self.sequencer.dropped
        self.sequencer.broke()
        if not was_listening:
            self._readable = trio.Event()
        self._unknown.set()
        return self.sequencer.dropped - before

    def read_all(self) -> None:
        self._all_read = True
        self._unknown.set()

    async def wait_unknown(self) -> bool:
        """Until numbers are wanted; False when they never will be again."""
        while True:
            await self._unknown.wait()
            self._unknown = trio.Event()
            if self.sequencer.listening:
                return True
            if self._all_read:
                return False
