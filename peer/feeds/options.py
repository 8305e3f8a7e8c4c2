"""What can be chosen about a root's feed, declared once: see `peer.optionspec`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peer.optionspec import day, decimal, option

if TYPE_CHECKING:
    from datetime import date

FRAMINGS = ("xml", "length", "nul", "lines", "csv")
NUMBERINGS = ("asdi", "position", "content")

_FEEDS = ("root", "root_from")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """Where a root's packets come from, and how. `auto` is what the source suggests."""

    source: str
    rate: float | None = option(
        None,
        "packets per second; 0 is as fast as they can be read",
        of=_FEEDS,
        read=decimal,
        metavar="N",
        default_text="1000 for files",
    )
    speed: float | None = option(
        None, "play at X times the speed of the packets' own times", of=_FEEDS, read=decimal, metavar="X"
    )
    loop: bool = option(False, "start a file again when it ends", of=_FEEDS)
    framing: str = option(
        "auto",
        "how packets are separated: auto, xml, length, nul, lines (JSON lines, too), csv (a JSON object per row)",
        of=_FEEDS,
        choices=("auto", *FRAMINGS),
    )
    numbering: str = option(
        "auto",
        "where ANs come from: auto, asdi, position, content",
        of=_FEEDS,
        choices=("auto", *NUMBERINGS),
    )
    follow: bool = option(False, "of log:DIR: wait for what is added, and publish it as it comes", of=_FEEDS)
    poll: float = option(
        300.0, "of rss: seconds between two polls of a feed", of=_FEEDS, read=decimal, metavar="SECONDS"
    )
    lines: bool = option(
        False,
        "send every packet's line of ASDI text along, so that a recording of the stream equals an ingest of the text",
        of=_FEEDS,
    )
    reference: date | None = option(
        None,
        "a day near the first message of an ASDI file, whose times have no month and year",
        of=_FEEDS,
        flag="date",
        read=day,
        metavar="YYYY-MM-DD",
        default_text="today",
    )
