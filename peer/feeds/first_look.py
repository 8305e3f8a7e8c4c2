"""A look at a feed's file before the root announces itself: a name mistyped is an error then, not a silent stream."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from peer.errors import FeedError

if TYPE_CHECKING:
    from peer.feeds.plan import Plan

LOOK_BYTES = 65_536
SHOWN_BYTES = 40
_GZIP, _ZIP, _ZSTD, _BZIP2 = b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh"


def check_feed(plan: Plan) -> None:
    """FeedError with what is wrong, for a file that can't be read or holds nothing of what the feed should bring."""
    if plan.is_recording and plan.packets is not None and next(plan.packets(), None) is None:
        raise FeedError(f"the feed {plan.name} holds no packet")
    if plan.path is not None:
        _check_file(plan, plan.path)


def _check_file(plan: Plan, path: str) -> None:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise FeedError(f"the feed {path} is a folder: name a file in it, or log:DIR for what `record` wrote")
        if not stat.S_ISREG(mode):
            return  # a pipe or device: what was read from it would be lost
        with open(path, "rb") as file:
            begin = file.read(LOOK_BYTES)
    except OSError as error:
        raise FeedError(f"cannot read the feed {path}: {error.strerror}") from None
    if not begin.strip():
        raise FeedError(f"the feed {path} is empty")
    if begin.startswith((_GZIP, _ZIP, _ZSTD, _BZIP2)):
        raise FeedError(f"the feed {path} is compressed: unpack it, for example `zcat FILE | skymesh root ... -`")
    if plan.framing == "xml" and "asdi" not in plan.numbering and not _may_be_xml(begin):
        seen = begin.lstrip()[:SHOWN_BYTES].decode("ascii", "replace").splitlines()[0]
        raise FeedError(
            f"the feed {path} is not XML, it begins with {seen!r}; for ASDI text give asdi:{path}, for other "
            "packets --framing lines, nul or length"
        )


def _may_be_xml(begin: bytes) -> bool:
    return b"<" in begin.replace(b"\x00", b"")
