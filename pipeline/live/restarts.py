"""When `record` starts its query again: after a lost worker or recorder, not after what the next run would meet too."""

from __future__ import annotations

import re

MAX_FAILURES = 6
"""In a row, without a batch in between; then a person has to look."""
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0
# A worker's own errors come as text in Spark's.
_FINAL = re.compile(r"\b(?:PipelineError|ArchiveError|PacketLogError|LogDamaged|LogTruncated|PermissionError): ")
_LOST = re.compile(r"\bRecorderEnded: ")


class Restarts:
    """Counts failures; says how long to wait before the next start. Pure."""

    def __init__(self) -> None:
        self._failures = 0
        self._last_batch: int | None = None
        self.total = 0

    def delay_after(self, error: str, batch: int | None) -> float | None:
        """Seconds to wait, or None to give up. `batch` is the last one that was done, None if there was none."""
        has_progressed = batch is not None and batch != self._last_batch
        self._last_batch = batch
        if _FINAL.search(error):
            return None
        if _LOST.search(error) and batch is None:
            return None  # a recorder that never worked has its reasons
        self._failures = 1 if has_progressed else self._failures + 1
        if self._failures > MAX_FAILURES:
            return None
        self.total += 1
        return float(min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (self._failures - 1)))
