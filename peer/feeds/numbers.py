"""The ANs of a root that a program feeds: kept over restarts, so that no number is given to two packets.

Numbers are reserved on disk before they are given, many at a time. A root that ended properly writes down the last one
exactly and counts on from there; after a crash it goes on behind the reserved ones, and leaves one out, so that clients
see a gap where packets may be missing.
"""

from __future__ import annotations

import logging
from pathlib import Path

from peer.errors import FeedError
from peer.feeds.mark import Mark
from peer.feeds.state import MarkFile
from peer.options import PeerOptions
from peer.role import Role

log = logging.getLogger(__name__)

RESERVE = 4_096
"""ANs reserved ahead: one disk sync per this many packets."""
REFILL = RESERVE // 2
"""When so few are left, it is time to reserve more, in a thread."""


class Numbers:
    """Which AN comes next. All methods but `save` are cheap; `save` writes to the disk."""

    def __init__(self, folder: Path, stream: str) -> None:
        self._file, mark = MarkFile.open(folder, stream)
        self.last = mark.an if mark is not None else 0
        self.reserved = self.last
        self._is_behind_a_hole = mark is not None and not mark.exact

    def next(self) -> tuple[int, bool]:
        """The next AN, and whether it continues what was given before."""
        if self._is_behind_a_hole:
            return self.last + 2, False
        return self.last + 1, True

    def given(self, an: int) -> None:
        self.last = max(self.last, an)
        self._is_behind_a_hole = False

    @property
    def runs_low(self) -> bool:
        return self.reserved - self.last < REFILL

    def covers(self, an: int) -> bool:
        """Whether the disk knows that this AN may have been given."""
        return an <= self.reserved

    def save(self, up_to: int) -> None:
        """Reserve ANs up to `up_to`. FeedError when the disk does not take it."""
        self._file.save(Mark(up_to))
        self.reserved = max(self.reserved, up_to)

    def close(self) -> None:
        """Write down exactly where this root ended, and let the file go. FeedError."""
        try:
            if self.reserved and not self._is_behind_a_hole:
                self._file.save(Mark(self.last, exact=True))
        finally:
            self._file.close()


def numbers_of(options: PeerOptions) -> Numbers | None:
    """Where this root's last AN is kept; FeedError when the folder that was asked for can't be used."""
    folder = options.numbers_folder()
    if options.role is not Role.ROOT or folder is None:
        return None
    try:
        return Numbers(folder, options.stream)
    except FeedError as error:
        if options.state is not None:
            raise
        log.warning("%s: %s; after a restart this root would repeat numbers", options.stream, error)
        return None
