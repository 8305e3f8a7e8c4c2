"""`python -m demo news`: hundreds of RSS feeds on loopback, one root that polls them, and readers who pick a few each.

Every feed is polled by one visitor, whatever the number of readers; each reader gets the new items of the feeds that it
picked, by an XPath query, and each item is checked against the site that put it up. Feeds are picked with the
popularity that the XPORT paper used: the k-th most popular one in proportion to 1 / k^0.97.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import trio
from lxml import etree

import peer
from demo.check.ledger import percentile
from demo.errors import DemoError
from demo.news.site import NewsSite, serving
from demo.run.interruptible import INTERRUPTED, run_interruptible
from peer.items import Content

STREAM: Final = "news"
SKEW: Final = 0.97
PATIENCE: Final = 30.0
"""Seconds beyond two polls for what was put up last to reach every reader."""
EPILOG: Final = """\
examples:
  python -m demo news
  python -m demo news --feeds 100 --readers 20 --seconds 60 --json

exit codes: 0 every reader got exactly the items of its feeds; 1 one did not; 2 a wrong call; 130 Ctrl-C
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo news",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--feeds", type=int, default=700, help="default %(default)s, as in the paper")
    parser.add_argument("--readers", type=int, default=8, help="default %(default)s")
    parser.add_argument("--routers", type=int, default=3, help="default %(default)s")
    parser.add_argument("--picks", type=int, default=5, help="feeds that each reader picks (default %(default)s)")
    parser.add_argument("--rate", type=float, default=30.0, help="new items per second, in all (default %(default)g)")
    parser.add_argument("--poll", type=float, default=10.0, help="seconds between two polls (default %(default)g)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long items are added (default %(default)g)")
    parser.add_argument("--seed", type=int, default=7, help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON to stdout")
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    _check(args)
    found: list[Verdict] = []

    async def run() -> int:
        found.append(await play(args))
        return 0 if found[0].is_kept else 1

    code = run_interruptible(run)
    if code != INTERRUPTED:
        verdict = found[0].as_json()
        print(json.dumps(verdict, indent=1) if args.json else _table(verdict), flush=True)
    return code


def _check(args: argparse.Namespace) -> None:
    limits = {"feeds": 10_000, "readers": 100, "routers": 50, "picks": 100, "rate": 1_000.0, "seconds": 3_600.0}
    for name, most in limits.items():
        least = 0 if name == "routers" else 1
        if not least <= getattr(args, name) <= most:
            raise DemoError(f"--{name} must be in {least}..{most:g}, got {getattr(args, name):g}")
    if not 1 <= args.poll <= 3_600:
        raise DemoError(f"--poll must be in 1..3600 seconds, got {args.poll:g}")
    if args.picks > args.feeds:
        raise DemoError(f"--picks {args.picks} is more than there are feeds ({args.feeds})")


@dataclass(slots=True)
class Reader:
    picks: frozenset[int]
    received: dict[str, float] = field(default_factory=dict)
    """When each item came, by name."""
    wrong: int = 0
    """Items that came twice or were not asked for, and gaps."""

    def query(self, site: NewsSite) -> str:
        return " or ".join(f"/item/feed = '{site.feed_url(feed)}'" for feed in sorted(self.picks))

    def take(self, item: Content, site: NewsSite, now: float) -> None:
        if not isinstance(item, peer.Packet):
            self.wrong += isinstance(item, peer.Gap | peer.Omitted)
            return
        name = etree.fromstring(item.payload).findtext("id") or ""
        known = site.items.get(name)
        self.wrong += known is None or known.feed not in self.picks or name in self.received
        self.received[name] = now

    def missing(self, site: NewsSite) -> int:
        return sum(
            item.is_owed and item.feed in self.picks and name not in self.received for name, item in site.items.items()
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    feeds: int
    readers: int
    feed_kb: float
    items: int
    delivered: int
    missing: int
    wrong: int
    delays: list[float]
    polls: int
    unchanged: int
    root_kb: float
    reader_kb: float

    @property
    def is_kept(self) -> bool:
        return not self.missing and not self.wrong

    def as_json(self) -> dict[str, Any]:
        return {
            "kept": self.is_kept,
            "feeds": self.feeds,
            "readers": self.readers,
            "mean_feed_kb": round(self.feed_kb, 1),
            "items": self.items,
            "delivered": self.delivered,
            "missing": self.missing,
            "wrong": self.wrong,
            "delay_p50_s": round(percentile(self.delays, 0.5), 2) if self.delays else None,
            "delay_p99_s": round(percentile(self.delays, 0.99), 2) if self.delays else None,
            "polls": self.polls,
            "unchanged": self.unchanged,
            "root_kb": round(self.root_kb, 1),
            "mean_reader_kb": round(self.reader_kb, 1),
        }


def pick(feeds: int, count: int, rng: Random) -> frozenset[int]:
    """Different feeds, the first ones most often: Zipf's law with the exponent of the paper."""
    weights = [(rank + 1) ** -SKEW for rank in range(feeds)]
    found: set[int] = set()
    while len(found) < count:
        found.update(rng.choices(range(feeds), weights))
    return frozenset(found)


async def play(args: argparse.Namespace) -> Verdict:
    rng = Random(args.seed)
    site = NewsSite(args.feeds, rng)
    readers = [Reader(pick(args.feeds, args.picks, rng)) for _ in range(args.readers)]
    with serving(site):
        _progress(f"{args.feeds} feeds at {site.list_url}, {site.mean_bytes / 1e3:.1f} KB each on average")
        async with trio.open_nursery() as nursery:
            serve = peer.root_from(
                STREAM, f"rss:{site.list_url}", poll=args.poll, numbering="position", beacon=False, capacity=4
            )
            async with serve as root:
                while root.peer is None:  # noqa: ASYNC110  # it opens in its own time, and says nothing
                    await trio.sleep(0.01)
                places = [root.peer.address]
                for _ in range(args.routers):
                    places.append(await nursery.start(_router, places[:1]))
                for reader in readers:
                    await nursery.start(_read, reader, site, places)
                _progress(f"{args.readers} readers, {args.picks} feeds each")
                began = time.monotonic()
                await _add_items(site, args)
                with trio.move_on_after(2.2 * args.poll + PATIENCE):
                    while any(reader.missing(site) for reader in readers):  # noqa: ASYNC110  # and a thread serves
                        await trio.sleep(0.2)
                root_bytes = root.peer.statistics().bytes
                nursery.cancel_scope.cancel()
    return _judge(site, readers, began, root_bytes)


async def _router(
    places: Sequence[tuple[str, int]], *, task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED
) -> None:
    async with peer.join(STREAM, bootstrap=places, beacon=False, parents=1, capacity=8, start="oldest") as router:
        await router.wait_parents(1)
        task_status.started(router.address)
        async for _ in router:
            pass


async def _read(
    reader: Reader,
    site: NewsSite,
    places: Sequence[tuple[str, int]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    joining = peer.join(
        STREAM, bootstrap=places, beacon=False, parents=2, capacity=0, query=reader.query(site), start="oldest"
    )
    async with joining as stream:
        await stream.wait_parents(1)
        task_status.started()
        async for item in stream:
            reader.take(item, site, time.monotonic())


async def _add_items(site: NewsSite, args: argparse.Namespace) -> None:
    """On their own times, so that a busy machine adds no fewer."""
    began = trio.current_time()
    for number in range(int(args.rate * args.seconds)):
        await trio.sleep_until(began + number / args.rate)
        site.add_item()


def _judge(site: NewsSite, readers: Sequence[Reader], began: float, root_bytes: int) -> Verdict:
    delays = sorted(
        at - site.items[name].put_up_at
        for reader in readers
        for name, at in reader.received.items()
        if name in site.items and site.items[name].put_up_at >= began  # what was there before waited for the start
    )
    sizes = [sum(len(site.items[name].text) for name in r.received if name in site.items) for r in readers]
    return Verdict(
        feeds=len(site),
        readers=len(readers),
        feed_kb=site.mean_bytes / 1e3,
        items=len(site.items),
        delivered=sum(len(reader.received) for reader in readers),
        missing=sum(reader.missing(site) for reader in readers),
        wrong=sum(reader.wrong for reader in readers),
        delays=delays,
        polls=site.answers[200] + site.answers[304],
        unchanged=site.answers[304],
        root_kb=root_bytes / 1e3,
        reader_kb=sum(sizes) / len(sizes) / 1e3,
    )


def _table(verdict: dict[str, Any]) -> str:
    kept = "KEPT" if verdict["kept"] else "BROKEN"
    return "\n".join(
        (
            f"every reader gets exactly the items of its feeds: {kept}",
            f"  {verdict['feeds']} feeds of {verdict['mean_feed_kb']} KB, {verdict['readers']} readers",
            f"  items {verdict['items']}, delivered {verdict['delivered']}, missing {verdict['missing']}, "
            f"wrong {verdict['wrong']}",
            f"  put up to received: p50 {verdict['delay_p50_s']} s, p99 {verdict['delay_p99_s']} s",
            f"  one visitor made {verdict['polls']} requests; {verdict['unchanged']} found nothing new",
            f"  the root published {verdict['root_kb']} KB; a reader received {verdict['mean_reader_kb']} KB",
        )
    )


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
