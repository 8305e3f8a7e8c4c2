"""A root's mark on disk: the last AN that it may have given, so that a restart never gives it to another packet."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from peer.errors import FeedError
from peer.sequencer import Mark

_FORMAT = "skymesh root mark v1"
_MAX_FILE_BYTES = 4_096


class MarkFile:
    """Written aside, synced, and renamed into place: a crash leaves the old mark or the new one, never half of one."""

    def __init__(self, path: Path, stream: str) -> None:
        self.path = path
        self._stream = stream

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
        return Mark(an, time, settled)

    def save(self, mark: Mark) -> None:
        """On the disk when this returns. FeedError when it can't be written."""
        document = {
            "format": _FORMAT, "stream": self._stream, "an": mark.an, "time": mark.time, "settled": mark.settled
        }  # fmt: skip
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("w") as file:
                json.dump(document, file)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise FeedError(f"cannot write the root's mark {self.path}: {error.strerror}") from None
        finally:
            with contextlib.suppress(OSError):
                aside.unlink()
