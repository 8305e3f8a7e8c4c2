"""CSV as a feed: the first row names the columns, and each further row becomes one JSON object.

Numbers stay text, as they were written: a record query compares them as numbers all the same. A row may go over several
lines if it is quoted. A row with more or fewer fields than there are columns is counted as an error and left out.
"""

from __future__ import annotations

import csv
import json
from collections import Counter

from peer.feeds.framing_xml import MAX_DOCUMENT_BYTES, Skipped

MAX_COLUMNS = 1_000


class CsvSplitter:
    def __init__(self, *, max_document: int = MAX_DOCUMENT_BYTES) -> None:
        self.errors: Counter[str] = Counter()
        self.is_broken = False
        self.skipped: list[Skipped] = []
        self._max = max_document
        self._columns: list[str] | None = None
        self._rest = b""
        self._row = b""
        """Lines of a row in which a quotation has not ended yet."""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [packet for line in lines if (packet := self._take(line)) is not None]
        if len(self._rest) + len(self._row) > self._max:
            # A quotation that never ends, or no line at all: what comes next can't be told apart from it.
            self.errors["too_large"] += 1
            self.is_broken = True
            self._rest = self._row = b""
        return found

    def finish(self) -> list[bytes]:
        found = self.feed(b"\n") if self._rest else []
        if self._row:
            self.errors["cut_off"] += 1
            self._row = b""
        return found

    def _take(self, line: bytes) -> bytes | None:
        row = self._row + line
        if self.is_broken or not row.strip():
            return None
        if row.count(b'"') % 2 and len(row) < self._max:
            self._row = row + b"\n"
            return None
        self._row = b""
        try:
            (values,) = csv.reader([row.decode("utf-8-sig").rstrip("\r")], strict=True)
        except (csv.Error, UnicodeDecodeError, ValueError):
            self.errors["bad_row"] += 1
            return None
        if self._columns is None:
            if len(values) > MAX_COLUMNS or len(set(values)) < len(values):
                self.errors["bad_header"] += 1
                self.is_broken = True
                return None
            self._columns = values
            return None
        if len(values) != len(self._columns):
            self.errors["bad_row"] += 1
            return None
        packet = json.dumps(dict(zip(self._columns, values, strict=True)), ensure_ascii=False).encode()
        if len(packet) > self._max:
            self.errors["too_large"] += 1
            return None
        return packet
