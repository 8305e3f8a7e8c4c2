"""Packets and gaps as text on standard output."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterable

import trio

from dcp import Gap, Omitted, Packet
from peer.cli.errors import OutputClosed
from peer.cli.running import note
from peer.disputes import as_json
from peer.feeds.stamp import stamp_of
from peer.items import Content
from peer.mesh.events import Disputed, Starved, Uncovered
from peer.node import Peer
from peer.plaintext import text_of


class Printer:
    """xml: a document per line (gaps on stderr); jsonl: an object per line, gaps too; raw: the bytes alone; none.

    Writing goes on in a thread: a slow reader of ours must not keep the peer from answering its parents and children.
    """

    def __init__(self, form: str, stream: str, descriptor: int = 1) -> None:
        self.packets = 0
        self.gaps = 0
        self._form = form
        self._stream = stream
        self._descriptor = descriptor
        self._turn = trio.Lock()

    def of(self, stream: str) -> None:
        """The stream that what is written next belongs to."""
        self._stream = stream

    async def write(self, items: Iterable[Content], most: int | None = None) -> None:
        """Write what is content, up to `most` packets in all. OutputClosed when nobody reads any more."""
        await self.put(self.render(items, time.time(), most))

    async def write_trouble(self, peer: Peer) -> None:
        """With jsonl, a line for each dispute, each time of starving and each find of an audit, until the peer goes."""
        if self._form != "jsonl":
            return  # the log says it
        async for event in peer.events():
            if isinstance(event, Disputed | Starved | Uncovered):
                await self.put(json.dumps(as_json(event)).encode() + b"\n")

    async def put(self, data: bytes) -> None:
        """Write what `render` made."""
        if not data:
            return
        async with self._turn:  # a line is written in several calls if the reader is slow
            try:
                await trio.to_thread.run_sync(_write_all, self._descriptor, data, abandon_on_cancel=True)
            except BrokenPipeError:
                raise OutputClosed from None

    def render(self, items: Iterable[Content], now: float, most: int | None = None) -> bytes:
        """The text for items that were received at `now`."""
        lines: list[bytes] = []
        for item in items:
            if isinstance(item, Packet | Omitted):
                if most is not None and self.packets >= most:
                    break
                self.packets += 1
                lines.append(self._packet(item, now))
            elif isinstance(item, Gap):
                self.gaps += 1
                lines.append(self._gap(item))
        return b"".join(lines)

    def _packet(self, packet: Packet | Omitted, now: float) -> bytes:
        is_late = isinstance(packet, Omitted)
        if is_late and self._form in ("xml", "raw"):
            note(f"packet {packet.an} is late: a parent had said that it is not there")
        match self._form:
            case "xml":
                return packet.payload + b"\n"
            case "raw":
                return packet.payload
            case "jsonl":
                line: dict[str, object] = {"an": packet.an, "stream": self._stream, "received": round(now, 6)}
                if is_late:
                    line["omitted"] = True
                sent = stamp_of(packet.payload)
                if sent is not None:
                    line["latency_ms"] = round((now - sent) * 1_000, 3)
                text = text_of(packet.payload)
                if text is not None:
                    line["xml"] = text
                else:
                    line["payload_base64"] = base64.b64encode(packet.payload).decode("ascii")
                return json.dumps(line).encode() + b"\n"
        return b""

    def _gap(self, gap: Gap) -> bytes:
        if self._form == "jsonl":
            return json.dumps({"gap": [gap.after, gap.until]}).encode() + b"\n"
        if self._form != "none" or not sys.stderr.isatty():
            note(f"gap: packets after {gap.after} up to {gap.until} could not be had from anybody")
        return b""


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
