"""Feeds of packets that carry their own numbers, by the word before the colon: `log:DIR`, and what others install.

A package adds one by an entry point in the group `skymesh.feeds`: a function that takes the text after the colon and
yields `Numbered` packets in order of their ANs, and raises `FeedError` for what it can't read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from peer.errors import FeedError

if TYPE_CHECKING:
    from peer.feeds.sequencer import Numbered

GROUP = "skymesh.feeds"
# What to install for a word that we know and whose package is missing.
_EXTRAS = {"archive": "spark"}


def reader(kind: str) -> Callable[[str], Iterator[Numbered]] | None:
    """The function that reads such a feed; None for an unknown word."""
    if kind == "log":
        from peer.feeds.replay import log_packets

        return log_packets
    from importlib import metadata

    for entry in metadata.entry_points(group=GROUP, name=kind):
        try:
            return cast("Callable[[str], Iterator[Numbered]]", entry.load())
        except ImportError as error:
            raise _missing(kind, str(error)) from None
    if kind in _EXTRAS:
        raise _missing(kind, "its package is not installed")
    return None


def _missing(kind: str, problem: str) -> FeedError:
    extra = _EXTRAS.get(kind)
    remedy = f"; install it with: pip install 'skymesh[{extra}]'" if extra else ""
    return FeedError(f"{kind}: can't be used here: {problem}{remedy}")
