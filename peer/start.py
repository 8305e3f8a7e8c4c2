"""Where a subscriber begins, as people say it and as dcp puts it. Light, as the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dcp import Start


def start_text(text: str) -> str:
    if text not in ("now", "oldest") and not text.isdecimal():
        raise ValueError(f"expected now, oldest or an AN, got {text!r}")
    return text


def start_of(start: str | int) -> tuple[Start, int | None]:
    """Where to begin, as dcp puts it; ValueError for anything but "now", "oldest" or an AN."""
    from dcp import Start
    from dcp.serial import MAX_POSITION

    if start == "now":
        return Start.NEW, None
    if start == "oldest":
        return Start.OLDEST, None
    if isinstance(start, str) and start.isascii() and start.isdecimal() and len(start) <= 19:
        start = int(start)
    if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start <= MAX_POSITION:
        raise ValueError(f'start must be "now", "oldest" or the AN of the first packet wanted, got {start!r:.40}')
    # The caller names the first packet wanted; a position is what lies before it.
    return Start.POSITION, max(0, start - 1)
