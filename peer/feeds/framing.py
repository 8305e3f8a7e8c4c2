"""Where one packet ends and the next begins on a stream of bytes. Pure; any bytes do; bounded.

A splitter is fed chunks as they come and gives back whole packets. How the bytes are cut into chunks never matters: a
splitter's answer is a function of the bytes alone. What can't be a packet is counted in `errors` by a short word, and
the splitter finds its way back by itself. A packet that is too long is passed over to its end and noted in `skipped`.
`finish` says that the stream has ended.

    xml      documents back to back, with or without declaration and white space between
    length   u32 in network order, then that many bytes
    nul      each document ends with a zero byte
    lines    each line is a packet
    csv      each row becomes a JSON object, by the names in the first one (`framing_csv.py`)

A document ends where its root element ends; comments and processing instructions after it go to the next one. Bytes
must be in an encoding in which markup is ASCII (UTF-8, Latin-1): UTF-16 is garbage here.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from peer.feeds.framing_csv import CsvSplitter
from peer.feeds.framing_xml import MAX_DOCUMENT_BYTES, Skipped, XmlSplitter
from peer.feeds.options import FRAMINGS

MAX_SKIP_BYTES: Final = 64 << 20
"""A length prefix above this can't be right: the stream is out of step, and only a new connection helps."""


class Splitter(Protocol):
    """The face of all five."""

    errors: Counter[str]
    is_broken: bool
    """No packet can come any more: hang up."""
    skipped: list[Skipped]
    """Packets above the limit, in the order of the stream; the reader clears the list."""

    def feed(self, data: bytes) -> list[bytes]: ...
    def finish(self) -> list[bytes]: ...


def make_splitter(kind: str, *, max_document: int = MAX_DOCUMENT_BYTES, exact: bool = False) -> Splitter:
    """`exact` lines keep the blanks around them."""
    match kind:
        case "xml":
            return XmlSplitter(max_document=max_document)
        case "length":
            return LengthSplitter(max_document=max_document)
        case "nul":
            return SeparatorSplitter(b"\0", max_document=max_document)
        case "lines":
            return SeparatorSplitter(b"\n", max_document=max_document, exact=exact)
        case "csv":
            return CsvSplitter(max_document=max_document)
    raise ValueError(f"framing is one of {', '.join(FRAMINGS)}, not {kind!r}")


class SeparatorSplitter:
    """Packets that end with one byte. White space around them and empty ones are dropped; too long ones are counted."""

    def __init__(self, separator: bytes, *, max_document: int = MAX_DOCUMENT_BYTES, exact: bool = False) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
        self.skipped: list[Skipped] = []
        self._separator = separator
        self._exact = exact
        self._max = max_document
        self._rest = b""
        self._skipping = 0  # bytes of a packet that is too long, as far as it has come

    def feed(self, data: bytes) -> list[bytes]:
        *ended, rest = data.split(self._separator)
        if ended:
            ended[0] = self._rest + ended[0]
            self._rest = b""
        found: list[bytes] = []
        for part in ended:
            if self._skipping:
                self.skipped.append(Skipped(len(found), self._skipping + len(part)))
                self._skipping = 0
            elif len(part) > self._max:
                self.errors["too_large"] += 1
                self.skipped.append(Skipped(len(found), len(part)))
            elif stripped := part.strip():
                found.append(part.removesuffix(b"\r") if self._exact else stripped)
        if self._skipping:
            self._skipping += len(rest)
            return found
        self._rest += rest
        if len(self._rest) > self._max:
            self.errors["too_large"] += 1
            self._skipping = len(self._rest)
            self._rest = b""
        return found

    def finish(self) -> list[bytes]:
        """The last packet needs no separator."""
        return self.feed(self._separator)


class LengthSplitter:
    """A length, then that many bytes. A packet that is too long is skipped; an absurd length ends the stream."""

    def __init__(self, *, max_document: int = MAX_DOCUMENT_BYTES) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
        self.skipped: list[Skipped] = []
        self._max = max_document
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[bytes]:
        if self.is_broken:
            return []
        if self._skip:
            taken = min(self._skip, len(data))
            self._skip -= taken
            data = data[taken:]
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        at = 0
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if size > MAX_SKIP_BYTES:
                self.errors["bad_length"] += 1
                self.is_broken = True
                buffer.clear()
                return found
            if size > self._max:
                self.errors["too_large"] += 1
                self.skipped.append(Skipped(len(found), size))
                there = min(size, len(buffer) - at - 4)
                self._skip = size - there
                at += 4 + there
                continue
            if len(buffer) - at - 4 < size:
                break
            if size:
                found.append(bytes(buffer[at + 4 : at + 4 + size]))
            at += 4 + size
        del buffer[:at]
        return found

    def finish(self) -> list[bytes]:
        if (self._buffer or self._skip) and not self.is_broken:
            self.errors["cut_off"] += 1
        self._buffer.clear()
        self._skip = 0
        return []


__all__ = [
    "MAX_DOCUMENT_BYTES", "LengthSplitter", "SeparatorSplitter", "Skipped", "Splitter", "XmlSplitter",
    "make_splitter",
]  # fmt: skip
