"""JSON lines over a socket pair between the demo and each of its processes.

The pair is also the lifeline: a process whose other end is gone ends itself.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import trio

MAX_LINE = 4 << 20
"""A line is a batch of what came in a tenth of a second; one longer than this is a bug, not a message."""
MAX_UNSENT = 16 << 20
"""What waits for a process that does not read, because it is frozen: beyond it orders are refused."""


class Channel:
    """Both ends are the same. `post` never waits; `run_writer` must be running."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._unsent = bytearray()
        self._wake = trio.Event()

    def post(self, message: dict[str, Any]) -> None:
        """Queue a message; ValueError when the other side has not read for very long."""
        if len(self._unsent) > MAX_UNSENT:
            raise ValueError("the process accepts no more commands")
        self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self._wake.set()

    async def run_writer(self) -> None:
        """Until cancelled, or the other side is gone."""
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._unsent:
                    data = bytes(self._unsent)
                    self._unsent.clear()
                    await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Until the other side is gone."""
        buffer = bytearray()
        while True:
            try:
                chunk = await self._stream.receive_some(65_536)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not chunk:
                return
            buffer += chunk
            if b"\n" not in chunk:
                if len(buffer) > MAX_LINE:
                    raise ValueError("line is longer than 4 MB")
                continue
            lines = buffer.split(b"\n")
            buffer = lines.pop()
            for line in lines:
                yield json.loads(line)

    async def aclose(self) -> None:
        await self._stream.aclose()
