"""What a root can be fed from, by the word on the command line.

    FILE, -                     packets in a file or on standard input
    tcp://HOST:PORT             connect, and read; again after a break
    tcp-listen://HOST:PORT      wait for a program that connects and writes
    asdi:SOURCE                 any of the above as lines of ASDI text: they become XML, and carry their own numbers
    archive:PATH                an archive of the pipeline
    log:DIR                     what `record` wrote
    rss:URL, rss:OPML           RSS and Atom feeds, polled: one packet per new item
    demo, demo:COPIES           the built-in feed, the same at every root

docs/feeds.md is the specification. This file understands the words; `serve` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from dht.addresses import parse_endpoint
from peer.errors import FeedError
from peer.feeds import plugins
from peer.feeds.options import FRAMINGS, NUMBERINGS, FeedOptions

if TYPE_CHECKING:
    from pathlib import Path

    from peer.feeds.sequencer import Numbered
    from peer.feeds.sources import ByteSource

RECORDINGS = ("archive", "log")
LEAST_POLL = 1.0
"""Seconds: servers ban those that ask more often, and rightly."""
DEFAULT_FILE_RATE = 1_000.0
"""Packets a second from a file when nothing else is said: faster, and the history is gone before anybody has joined."""


MakeBytes = Callable[[Callable[[str, int], None], "Path | None"], "ByteSource"]
"""What to call when a socket listens, and a file for what the source remembers over a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A source that was understood. Either `make_bytes`, or `packets` that carry their numbers already."""

    name: str
    numbering: str
    framing: str = "xml"
    make_bytes: MakeBytes | None = None
    packets: Callable[[], Iterator[Numbered]] | None = None
    is_live: bool = False
    """It comes when it comes: no pace of ours."""
    is_demo: bool = False
    rate: float | None = None
    speed: float | None = None
    loop: bool = False
    follow: str | None = None
    """A packet log that grows."""
    lines: bool = False
    """Packets carry the ASDI line that they were made of."""
    reference: date = field(default_factory=lambda: datetime.now(UTC).date())
    copies: int = 1
    path: str | None = None
    """The file that it is read from, if it is one."""
    is_recording: bool = False
    """`packets` brings what was recorded before, and waits for nothing."""


def plan_feed(options: FeedOptions) -> Plan:
    """FeedError for words that make no sense together."""
    if options.rate is not None and options.speed is not None:
        raise FeedError("--rate and --speed are mutually exclusive")
    for name, value in (("--rate", options.rate), ("--speed", options.speed)):
        if value is not None and not (0 <= value < float("inf")):
            raise FeedError(f"{name} is a number from 0 up, not {value:g}")
    if options.speed == 0:
        raise FeedError("--speed is above 0; for everything at once give --rate 0")
    kind, colon, rest = options.source.partition(":")
    if options.follow and (kind != "log" or not rest):
        raise FeedError("--follow is for a packet log: log:DIR")
    if options.follow and (options.rate is not None or options.speed is not None or options.loop):
        raise FeedError("--follow publishes packets as they come: it takes no --rate, --speed or --loop")
    if options.follow:
        return Plan(name=options.source, numbering="own", is_live=True, follow=rest)
    if options.source == "demo" or (kind == "demo" and colon):
        return _demo(options, rest)
    if kind == "rss" and colon:
        return _rss(options, rest)
    if colon and kind != "asdi" and not rest.startswith("//") and (read := plugins.reader(kind)) is not None:
        return _numbered(options, kind, rest, read)
    return _bytes(options, kind == "asdi" and bool(colon))


def _demo(options: FeedOptions, rest: str) -> Plan:
    if rest and not rest.isdecimal():
        raise FeedError(f"demo:COPIES takes a number, not {rest!r}")
    return Plan(
        name=options.source,
        numbering="own",
        is_live=True,
        is_demo=True,
        rate=options.rate,
        speed=options.speed,
        copies=int(rest) if rest else 1,
        lines=options.lines,
    )


def _rss(options: FeedOptions, where: str) -> Plan:
    if not where:
        raise FeedError("rss: needs a URL or a file behind it: a feed, or an OPML list of feeds")
    if "://" in where and not where.startswith(("http://", "https://", "file://")):
        raise FeedError(f"rss: reads http, https and files, not {where!r:.60}")
    if options.rate is not None or options.speed is not None or options.loop or options.lines:
        raise FeedError("rss: publishes items as they appear: it takes no --rate, --speed, --loop or --lines")
    if not options.poll >= LEAST_POLL:
        raise FeedError(f"--poll is at least {LEAST_POLL:g} seconds, got {options.poll:g}")
    numbering = "content" if options.numbering == "auto" else options.numbering
    if numbering not in ("content", "position"):
        raise FeedError(f"--numbering of rss: is content or position, not {numbering!r}")
    from peer.feeds.rss import RssSource

    return Plan(
        name=options.source,
        numbering=numbering,
        make_bytes=lambda on_listening, memory: RssSource(where, options.poll, memory),
        is_live=True,
    )


def _numbered(options: FeedOptions, kind: str, rest: str, read: Callable[[str], Iterator[Numbered]]) -> Plan:
    if not rest:
        raise FeedError(f"{kind}: needs a path")
    if options.loop:
        raise FeedError(f"--loop does not work with {kind}: packets keep the numbers they had")
    speed = options.speed if options.speed is not None or options.rate is not None else 1.0
    return Plan(
        name=options.source,
        numbering="own",
        packets=lambda: read(rest),
        rate=options.rate,
        speed=speed,
        is_recording=kind in RECORDINGS,
        lines=options.lines,
    )


def _bytes(options: FeedOptions, is_asdi: bool) -> Plan:
    source = options.source.partition(":")[2] if is_asdi else options.source
    if not source:
        raise FeedError("asdi: needs a source behind it: a file, -, tcp://HOST:PORT or tcp-listen://HOST:PORT")
    is_file = source != "-" and "://" not in source
    framing = options.framing
    if framing == "auto":
        framing = "lines" if is_asdi else "xml"
    if framing not in FRAMINGS:
        raise FeedError(f"--framing is one of auto, {', '.join(FRAMINGS)}, not {framing!r}")
    numbering = options.numbering
    if numbering == "auto":
        # A loop repeats its sequence numbers: only the position distinguishes the rounds.
        numbering = ("position" if options.loop else "asdi") if is_asdi else "position" if is_file else "content"
    if numbering not in NUMBERINGS:
        raise FeedError(f"--numbering is one of auto, {', '.join(NUMBERINGS)}, not {numbering!r}")
    if numbering == "asdi" and not is_asdi:
        raise FeedError(f"--numbering asdi is for ASDI text: write the feed as asdi:{source}")
    if numbering == "asdi" and options.loop:
        raise FeedError("ASDI's own numbers can't come again: --loop needs --numbering position")
    if options.loop and not is_file:
        raise FeedError("--loop is for files")
    if options.speed is not None and not (is_asdi and is_file):
        raise FeedError("--speed needs packets that carry a time: asdi:FILE, archive:, log: or demo")
    if options.lines and not is_asdi:
        raise FeedError(f"--lines is for ASDI text: write the feed as asdi:{source}")
    rate = options.rate
    if rate is None and options.speed is None and is_file:
        rate = DEFAULT_FILE_RATE
    return Plan(
        name=options.source,
        numbering=numbering if not is_asdi or numbering != "position" else "asdi-position",
        framing=framing,
        make_bytes=_source(source, options.loop),
        path=source if is_file else None,
        is_live=not is_file,
        rate=rate,
        speed=options.speed,
        loop=options.loop,
        reference=options.reference or datetime.now(UTC).date(),
        lines=options.lines,
    )


def _source(source: str, loop: bool) -> MakeBytes:
    from peer.feeds import sources

    scheme, separator, rest = source.partition("://")
    if source == "-":
        return lambda on_listening, memory: sources.DescriptorSource()
    if not separator:
        return lambda on_listening, memory: sources.FileSource(source, loop)
    if scheme not in ("tcp", "tcp-listen"):
        raise FeedError(
            f"a feed is a file, -, tcp://, tcp-listen://, asdi:, rss:, archive:, log: or demo, not {source!r}"
        )
    host, port = parse_tcp(rest, source)
    if scheme == "tcp":
        return lambda on_listening, memory: sources.TcpSource(host, port)
    return lambda on_listening, memory: sources.TcpListenSource(host, port, on_listening)


def parse_tcp(text: str, whole: str) -> tuple[str, int]:
    """HOST:PORT, [V6]:PORT, :PORT; FeedError for anything else."""
    try:
        return parse_endpoint(text, default_host="")
    except ValueError as error:
        raise FeedError(f"{whole}: {error} behind ://") from None
