"""XML documents back to back: where one ends and the next begins. Pure; any bytes do; bounded.

It knows markup, not XML: names must match and nest, quotes, comments, CDATA, instructions and a DOCTYPE are understood,
and everything else is the parser's business.

A document above the limit is understood to its end like any other, only its bytes are not kept: what lies inside it is
never taken for a document. After something broken inside a document the way back is the next declaration, the next
start tag with the name of a root element (one seen before, or the broken document's own), or any start tag after the
broken document's end tag.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

MAX_DOCUMENT_BYTES: Final = 1 << 20
"""What dcp carries at most; a longer packet is skipped and counted."""
MAX_NAME_BYTES: Final = 1_024
MAX_DEPTH: Final = 10_000
"""Of elements. Names of open elements are kept, and no parser in the mesh takes a document that is a tenth as deep."""
MAX_ROOT_NAMES: Final = 64
"""Root elements remembered to find the way back after garbage; the policy beyond it is not to learn more."""
RESYNC_DOCUMENTS: Final = 64
"""After this many maximal documents without a way back, any start tag will do: otherwise a feed could stay lost."""

_BLANK = re.compile(rb"(?:[ \t\r\n]|\xef\xbb\xbf)*")
# A name as far as framing needs it: what a start tag begins with, up to what ends it.
_NAME = re.compile(rb"[A-Za-z_:\x80-\xff][^\s/>\"'<=\x00]*")
_MARK = re.compile(rb"[\"'<>]")
_BOM = b"\xef\xbb\xbf"
_DECLARATION = re.compile(rb"<\?xml[ \t\r\n]")


class Skipped(NamedTuple):
    """A packet above the limit: behind how many packets of the same call of `feed` it lay, and its size."""

    after: int
    size: int


class _Bad(Exception):
    """The bytes at the present place can't be part of a document."""


class XmlSplitter:
    """`feed` it chunks; what comes back are whole documents."""

    def __init__(self, *, max_document: int = MAX_DOCUMENT_BYTES) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
        self.skipped: list[Skipped] = []
        self._max = max_document
        self._buffer = bytearray()
        self._base = 0  # bytes that came before those in the buffer
        self._big_from: int | None = None  # where in the stream the present document began, if it is above the limit
        self._at = 0  # what lies before is understood
        self._look = 0  # where the search for the end of the present piece of markup goes on
        self._quote = b""
        self._nesting = 0  # of angle brackets inside a DOCTYPE
        self._start: int | None = None  # where the present document begins
        self._open: list[bytes] = []
        self._is_whole = False
        self._roots: set[bytes] = set()
        self._lost = False
        self._lost_root = b""  # of the document in which we got lost
        self._lost_bytes = 0
        self._any_root = True  # while lost: whether every start tag will do

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        found: list[bytes] = []
        while self._step(found):
            pass
        keep = self._at if self._start is None or self._big_from is not None else self._start
        if keep:
            del self._buffer[:keep]
            self._base += keep
            self._at -= keep
            self._look = max(0, self._look - keep)
            if self._start is not None:
                self._start = 0
        return found

    def finish(self) -> list[bytes]:
        """An incomplete document does not count."""
        is_open = self._open or self._buffer[self._at :].strip(b" \t\r\n" + _BOM)
        if is_open and not self._lost:
            self.errors["cut_off"] += 1
        self._at = len(self._buffer)
        self._skip_big(0)
        self._base += len(self._buffer)
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
        before = self._at
        limit = len(self._buffer)
        if self._big_from is not None:
            limit = min(limit, before + self._max)  # for one piece: what is understood is not kept
        elif self._start is not None:
            limit = min(limit, self._start + self._max)
        try:
            went_on = self._between(limit, found) if not self._open else self._inside(limit)
            if self._is_whole:
                self._finish_document(found)
                return True
            if went_on or (self._big_from is not None and self._at > before):
                return True
            return self._outgrow(found)
        except _Bad as bad:
            self._lose(str(bad), found)
            return True

    def _finish_document(self, found: list[bytes]) -> None:
        if self._big_from is None:
            found.append(bytes(self._buffer[self._start : self._at]))
        self._skip_big(len(found))
        self._forget()

    def _outgrow(self, found: list[bytes]) -> bool:
        """More bytes are needed. Whether there are too many already: then go on without keeping them."""
        if self._big_from is None:
            if self._start is None or len(self._buffer) < self._start + self._max:
                return False
            self.errors["too_large"] += 1
            self._big_from = self._base + self._start
            return True
        if len(self._buffer) < self._at + self._max:
            return False
        self._at += self._max  # one piece of markup above the limit: its end is not worth waiting for
        self._lose(None, found)
        return True

    def _skip_big(self, after: int) -> None:
        """The document that was too large ends here."""
        if self._big_from is not None:
            self.skipped.append(Skipped(after, self._base + self._at - self._big_from))
            self._big_from = None

    def _between(self, limit: int, found: list[bytes]) -> bool:
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
            if self._big_from != self._base + at and _DECLARATION.match(buffer, at):
                # Comments after the last document ended up here: a declaration is always first.
                self._skip_big(len(found))
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
            if len(self._open) >= MAX_DEPTH:
                raise _Bad("too_deep")
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
            if self._open and label == self._open[0]:
                self._open.clear()  # inner elements were not closed; the document ends here all the same
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

    def _lose(self, why: str | None, found: list[bytes]) -> None:
        if why is not None:
            self.errors[why] += 1
        self._skip_big(len(found))
        self._lost, self._lost_bytes = True, 0
        # Garbage between documents says nothing about where we are; inside one, any start tag could be an inner one.
        self._any_root = not self._open
        self._lost_root = self._open[0] if self._open else b""
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
        is_end = buffer[angle + 1] == 0x2F
        begin = angle + 1 + is_end
        name = _NAME.match(buffer, begin, begin + MAX_NAME_BYTES)
        if is_end and begin == len(buffer):
            return False
        if name is None or len(name.group()) == MAX_NAME_BYTES:
            self._skip_to(angle + 1)
            return True
        if name.end() == len(buffer):
            return False
        if is_end:
            # Behind the end of the document in which we got lost we are between documents.
            self._any_root |= name.group() == self._lost_root
        elif self._any_root or name.group() in self._roots or name.group() == self._lost_root:
            self._lost = False
            return True
        self._skip_to(angle + 1)
        return True

    def _skip_to(self, place: int) -> None:
        self._lost_bytes += place - self._at
        if self._lost_bytes >= RESYNC_DOCUMENTS * self._max:
            self._any_root = True
        self._at = self._look = place
