"""Where one packet ends and the next begins on a stream of bytes. Pure; any bytes do; bounded.

A splitter is fed chunks as they come and gives back whole packets. How the bytes are cut into chunks never matters: a
splitter's answer is a function of the bytes alone. What can't be a packet is counted in `errors` by a short word, and
the splitter finds its way back by itself. `finish` says that the stream has ended.

    xml      documents back to back, with or without declaration and white space between
    length   u32 in network order, then so many bytes
    nul      each document ends with a zero byte
    lines    each line is a packet

A document ends where its root element ends; comments and processing instructions after it go to the next one. Bytes
must be in an encoding in which markup is ASCII (UTF-8, Latin-1): UTF-16 is garbage here.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, Protocol

MAX_DOCUMENT_BYTES: Final = 1 << 20
"""What dcp carries at most; a longer packet is dropped and counted."""
MAX_NAME_BYTES: Final = 1_024
MAX_ROOT_NAMES: Final = 64
"""Root elements remembered to find the way back after garbage; the policy beyond it is not to learn more."""
MAX_SKIP_BYTES: Final = 64 << 20
"""A length prefix above this is no length: the stream is out of step, and only a new connection helps."""

KINDS: Final = ("xml", "length", "nul", "lines")


class Splitter(Protocol):
    """The face of all four."""

    errors: Counter[str]
    is_broken: bool
    """No packet can come any more: hang up."""

    def feed(self, data: bytes) -> list[bytes]: ...
    def finish(self) -> list[bytes]: ...


def make_splitter(kind: str, *, max_document: int = MAX_DOCUMENT_BYTES) -> Splitter:
    match kind:
        case "xml":
            return XmlSplitter(max_document=max_document)
        case "length":
            return LengthSplitter(max_document=max_document)
        case "nul":
            return SeparatorSplitter(b"\0", max_document=max_document)
        case "lines":
            return SeparatorSplitter(b"\n", max_document=max_document)
    raise ValueError(f"framing is one of {', '.join(KINDS)}, not {kind!r}")


class SeparatorSplitter:
    """Packets that end with one byte. White space around them and empty ones are dropped; too long ones are counted."""

    def __init__(self, separator: bytes, *, max_document: int = MAX_DOCUMENT_BYTES) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
        self._separator = separator
        self._max = max_document
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        *ended, rest = data.split(self._separator)
        if ended:
            ended[0] = self._rest + ended[0]
            self._rest = b""
        found = []
        for part in ended:
            if self._skipping:
                self._skipping = False
            elif len(part) > self._max:
                self.errors["too_large"] += 1
            elif stripped := part.strip():
                found.append(stripped)
        self._rest = b"" if self._skipping else self._rest + rest
        if len(self._rest) > self._max:
            self.errors["too_large"] += 1
            self._skipping = True
            self._rest = b""
        return found

    def finish(self) -> list[bytes]:
        """The last packet needs no separator."""
        return self.feed(self._separator)


class LengthSplitter:
    """A length, then so many bytes. A packet that is too long is skipped without being kept; an absurd length ends."""

    def __init__(self, *, max_document: int = MAX_DOCUMENT_BYTES) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
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


# --- XML --------------------------------------------------------------------------------------------------------------
_BLANK = re.compile(rb"(?:[ \t\r\n]|\xef\xbb\xbf)*")
# A name as far as framing needs it: what a start tag begins with, up to what ends it.
_NAME = re.compile(rb"[A-Za-z_:\x80-\xff][^\s/>\"'<=\x00]*")
_MARK = re.compile(rb"[\"'<>]")
_BOM = b"\xef\xbb\xbf"
_DECLARATION = re.compile(rb"<\?xml[ \t\r\n]")


class _Bad(Exception):
    """The bytes at the present place can't be part of a document."""


class XmlSplitter:
    """XML documents back to back.

    It knows markup, not XML: names must match and nest, quotes, comments, CDATA, instructions and a DOCTYPE are
    understood, and everything else is the parser's business.

    After something broken it looks for the next declaration, or the next start tag with the name of a root element
    seen before (any start tag when it knows none, or has skipped a whole document's length).
    """

    def __init__(self, *, max_document: int = MAX_DOCUMENT_BYTES) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
        self._max = max_document
        self._buffer = bytearray()
        self._at = 0  # what lies before is understood
        self._look = 0  # where the search for the end of the present piece of markup goes on
        self._quote = b""
        self._nesting = 0  # of angle brackets inside a DOCTYPE
        self._start: int | None = None  # where the present document begins
        self._open: list[bytes] = []
        self._is_whole = False
        self._roots: set[bytes] = set()
        self._lost = False
        self._skipped = 0
        self._any_root = True  # while lost: whether every start tag will do

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        found: list[bytes] = []
        while self._step(found):
            pass
        keep = self._at if self._start is None else self._start
        if keep:
            del self._buffer[:keep]
            self._at -= keep
            self._look = max(0, self._look - keep)
            if self._start is not None:
                self._start = 0
        return found

    def finish(self) -> list[bytes]:
        """A document that is not whole is no document."""
        is_open = self._open or self._buffer[self._at :].strip(b" \t\r\n" + _BOM)
        if is_open and not self._lost:
            self.errors["cut_off"] += 1
        self._buffer.clear()
        self._at = self._look = 0
        self._forget()
        self._lost = False
        return []

    # --- one piece of text or markup at a time ---

    def _step(self, found: list[bytes]) -> bool:
        """Understand one piece; False when more bytes are needed."""
        if self._lost:
            return self._search()
        limit = len(self._buffer)
        if self._start is not None:
            limit = min(limit, self._start + self._max)
        try:
            went_on = self._between(limit) if not self._open else self._inside(limit)
            if not went_on and self._start is not None and len(self._buffer) >= self._start + self._max:
                self._at = self._start + self._max
                self._lose("too_large")
                return True
            if self._is_whole:
                found.append(bytes(self._buffer[self._start : self._at]))
                self._forget()
        except _Bad as bad:
            self._lose(str(bad))
            return True
        return went_on

    def _between(self, limit: int) -> bool:
        """Before a root element: white space, declaration, comments, instructions, DOCTYPE, then the root's tag."""
        buffer = self._buffer
        blank = _BLANK.match(buffer, self._at, limit)
        if blank is not None and blank.end() > self._at:
            self._at = self._look = blank.end()
        at = self._at
        if at == limit:
            return False
        if buffer[at] != 0x3C:
            if limit - at < 3 and _BOM.startswith(bytes(buffer[at:limit])):
                return False
            raise _Bad("garbage")
        if self._start is None:
            self._start = at
            limit = min(len(buffer), at + self._max)
        if limit - at < 2:
            return False
        second = buffer[at + 1]
        if second == 0x3F:
            if limit - at < 6:
                return False
            if _DECLARATION.match(buffer, at):
                # Comments after the last document ended up here: a declaration is always first.
                self._start = at
                limit = min(len(buffer), at + self._max)
            return self._until(b"?>", 2, limit)
        if second == 0x21:
            return self._exclaimed(limit, in_root=False)
        if second == 0x2F:
            raise _Bad("garbage")
        return self._tag(limit)

    def _inside(self, limit: int) -> bool:
        buffer = self._buffer
        if self._look <= self._at:
            angle = buffer.find(b"<", self._at, limit)
            self._at = self._look = limit if angle < 0 else angle
        at = self._at
        if limit - at < 2:
            return False
        second = buffer[at + 1]
        if second == 0x3F:
            if limit - at < 6:
                return False
            if _DECLARATION.match(buffer, at):
                raise _Bad("cut_off")  # the document before it never ended
            return self._until(b"?>", 2, limit)
        if second == 0x21:
            return self._exclaimed(limit, in_root=True)
        if second == 0x2F:
            return self._end_tag(limit)
        return self._tag(limit)

    def _exclaimed(self, limit: int, *, in_root: bool) -> bool:
        head = bytes(self._buffer[self._at : min(limit, self._at + 9)])
        if head.startswith(b"<!--"):
            return self._until(b"-->", 4, limit)
        if in_root and head == b"<![CDATA[":
            return self._until(b"]]>", 9, limit)
        if not in_root and head == b"<!DOCTYPE":
            return self._doctype(limit)
        if b"<!--".startswith(head) or (b"<![CDATA[" if in_root else b"<!DOCTYPE").startswith(head):
            return False
        raise _Bad("bad_markup")

    def _until(self, end: bytes, head: int, limit: int) -> bool:
        """Past the next `end`."""
        begin = max(self._look, self._at + head)
        place = self._buffer.find(end, begin, limit)
        if place < 0:
            self._look = max(begin, limit - len(end) + 1)
            return False
        self._past(place + len(end))
        return True

    def _tag(self, limit: int) -> bool:
        """A start tag, or an empty element."""
        buffer, at = self._buffer, self._at
        name = _NAME.match(buffer, at + 1, min(limit, at + 1 + MAX_NAME_BYTES))
        if name is None:
            raise _Bad("bad_markup")
        begin = max(self._look, name.end())
        while True:
            if self._quote:
                closing = buffer.find(self._quote, begin, limit)
                if closing < 0:
                    self._look = max(begin, limit)
                    return False
                begin, self._quote = closing + 1, b""
            mark = _MARK.search(buffer, begin, limit)
            if mark is None:
                self._look = max(begin, limit)
                return False
            if mark.group() == b"<":
                self._at = mark.start()
                raise _Bad("bad_markup")
            if mark.group() == b">":
                break
            self._quote, begin = mark.group(), mark.end()
        label = name.group()
        if buffer[mark.start() - 1] != 0x2F:
            self._open.append(label)
        self._past(mark.end())
        if not self._open:
            self._learn(label)
            self._is_whole = True
        return True

    def _end_tag(self, limit: int) -> bool:
        buffer, at = self._buffer, self._at
        end = buffer.find(b">", max(self._look, at + 2), min(limit, at + 4 + MAX_NAME_BYTES))
        if end < 0:
            if limit - at >= 4 + MAX_NAME_BYTES:
                raise _Bad("bad_markup")
            self._look = max(at + 2, limit)
            return False
        self._past(end + 1)
        label = bytes(buffer[at + 2 : end]).rstrip(b" \t\r\n")
        if label != self._open.pop():
            raise _Bad("mismatch")
        if not self._open:
            self._learn(label)
            self._is_whole = True
        return True

    def _doctype(self, limit: int) -> bool:
        """Past a DOCTYPE, its internal subset included: angle brackets nest, and quotes hide them."""
        buffer = self._buffer
        begin = max(self._look, self._at + 9)
        while True:
            if self._quote:
                closing = buffer.find(self._quote, begin, limit)
                if closing < 0:
                    self._look = max(begin, limit - len(self._quote) + 1)
                    return False
                begin, self._quote = closing + len(self._quote), b""
            mark = _MARK.search(buffer, begin, limit)
            if mark is None:
                self._look = max(begin, limit)
                return False
            match mark.group():
                case b"<":
                    # A comment or an instruction in here may have single quotes: they are passed as one piece.
                    head = bytes(buffer[mark.start() : min(limit, mark.start() + 4)])
                    if len(head) < 4 and b"<!--".startswith(head):
                        self._look = mark.start()
                        return False
                    if head == b"<!--":
                        self._quote, begin = b"-->", mark.start() + 4
                    elif head.startswith(b"<?"):
                        self._quote, begin = b"?>", mark.start() + 2
                    else:
                        self._nesting += 1
                        begin = mark.end()
                case b">" if self._nesting:
                    self._nesting -= 1
                    begin = mark.end()
                case b">":
                    self._past(mark.end())
                    return True
                case quote:
                    self._quote, begin = quote, mark.end()

    def _past(self, place: int) -> None:
        self._at = self._look = place
        self._quote, self._nesting = b"", 0

    def _learn(self, root: bytes) -> None:
        if len(self._roots) < MAX_ROOT_NAMES:
            self._roots.add(root)

    def _forget(self) -> None:
        self._start = None
        self._open.clear()
        self._quote, self._nesting, self._is_whole = b"", 0, False

    # --- the way back ---

    def _lose(self, why: str) -> None:
        self.errors[why] += 1
        self._lost, self._skipped = True, 0
        # Garbage between documents says nothing about where we are; inside one, any start tag could be an inner one.
        self._any_root = not self._open or not self._roots
        self._forget()
        self._look = self._at

    def _search(self) -> bool:
        """Look for the beginning of a document; False when more bytes are needed."""
        buffer, at = self._buffer, self._at
        angle = buffer.find(b"<", at)
        end = len(buffer) if angle < 0 else angle
        self._skip_to(end)
        if angle < 0 or len(buffer) - angle < 2:
            return False
        if buffer[angle + 1] == 0x3F:
            if len(buffer) - angle < 6:
                return False
            if _DECLARATION.match(buffer, angle):
                self._lost = False
                return True
            self._skip_to(angle + 1)
            return True
        name = _NAME.match(buffer, angle + 1, angle + 1 + MAX_NAME_BYTES)
        if name is None or len(name.group()) == MAX_NAME_BYTES:
            self._skip_to(angle + 1)
            return True
        if name.end() == len(buffer):
            return False
        if self._any_root or name.group() in self._roots:
            self._lost = False
            return True
        self._skip_to(angle + 1)
        return True

    def _skip_to(self, place: int) -> None:
        self._skipped += place - self._at
        if self._skipped >= self._max:
            self._any_root = True
        self._at = self._look = place
