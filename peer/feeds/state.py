"""A root's mark on disk: the last AN that it may have given, so that a restart never gives it to another packet.

Several roots of one stream may run on one machine and share a folder: each holds a file of its own, locked while it
runs, and begins from the highest mark that nobody holds.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path

from peer.errors import FeedError
from peer.feeds.mark import Mark
from peer.safe_file import replace_file

_FORMAT = "skymesh root mark v1"
_MAX_FILE_BYTES = 4_096
MAX_ROOTS_PER_FOLDER = 16
"""Roots of one stream that share a folder at the same time. More than a machine ever runs; it bounds the search."""


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where roots keep their marks by default: per user, beside what `python -m dht` keeps."""
    home = environment.get("XDG_DATA_HOME") or os.path.join(environment.get("HOME") or "~", ".local", "share")
    return Path(home).expanduser() / "skymesh" / "roots"


class MarkFile:
    """Written aside, synced, and renamed into place: a crash leaves the old mark or the new one, never half of one."""

    def __init__(self, path: Path, stream: str) -> None:
        self.path = path
        self._stream = stream
        self._lock = -1

    @classmethod
    def open(cls, folder: Path, stream: str) -> tuple[MarkFile, Mark | None]:
        """A file that is this root's until `close`, and the mark to begin from. FeedError."""
        mine: MarkFile | None = None
        highest: Mark | None = None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for number in range(1, MAX_ROOTS_PER_FOLDER + 1):
                name = f"root-{stream}" if number == 1 else f"root-{stream}-{number}"
                file = cls(folder / f"{name}.json", stream)
                if mine is not None and not file.path.exists():
                    break  # files are taken in order: this was the last
                if not file._take():
                    continue
                mark = file.load()
                if mark is not None and (highest is None or mark.an > highest.an):
                    highest = mark
                if mine is None:
                    mine = file
                else:
                    file.close()
        except OSError as error:
            if mine is not None:
                mine.close()
            raise FeedError(f"cannot keep the root's last AN in {folder}: {error.strerror}") from None
        except FeedError:
            if mine is not None:
                mine.close()
            raise
        if mine is None:
            raise FeedError(
                f"{MAX_ROOTS_PER_FOLDER} roots of {stream} keep their last AN in {folder} already: give this one "
                "another folder with --state DIR"
            )
        return mine, highest

    def _take(self) -> bool:
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def close(self) -> None:
        """Let another root have it. May be called twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def load(self) -> Mark | None:
        """None when there is none yet. A damaged file is an error: starting from nothing could repeat numbers."""
        try:
            with self.path.open("rb") as file:
                document = json.loads(file.read(_MAX_FILE_BYTES))
            if document["format"] != _FORMAT or document["stream"] != self._stream:
                raise ValueError("it is of another format or stream")
            an, time, settled = document["an"], document["time"], document["settled"]
            if not isinstance(an, int) or not isinstance(time, int | None) or not isinstance(settled, bool | None):
                raise ValueError("a field has the wrong type")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FeedError(f"cannot read the root's mark {self.path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise FeedError(
                f"the root's mark {self.path} is damaged ({error}); remove it only if no client is left that heard "
                "this root"
            ) from None
        return Mark(an, time, settled, document.get("exact") is True)

    def save(self, mark: Mark) -> None:
        """On the disk when this returns. FeedError when it can't be written."""
        document = {
            "format": _FORMAT, "stream": self._stream, "an": mark.an, "time": mark.time, "settled": mark.settled,
            "exact": mark.exact,
        }  # fmt: skip
        try:
            replace_file(self.path, json.dumps(document).encode() + b"\n")
        except OSError as error:
            raise FeedError(f"cannot write the root's mark {self.path}: {error.strerror}") from None
