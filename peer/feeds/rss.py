"""The feed `rss:URL-or-OPML`: polls RSS and Atom feeds and hands over only new items, one packet per item.

A word is a URL (http, https) or a file; a document that is OPML lists feeds, anything else is one. Every request is
conditional, so a feed that has not changed costs a few hundred bytes; a feed that fails is asked less and less often.
"""

from __future__ import annotations

import logging
import random
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import time
from typing import Any

import trio

from peer.errors import FeedError
from peer.feeds.rss_items import (
    MAX_DOCUMENT_BYTES,
    SCHEMES,
    BadFeedDocument,
    SeenItems,
    feeds_of_untrusted,
    is_opml_untrusted,
    items_of_untrusted,
)
from peer.feeds.rss_memory import FeedMemory, load_memory, save_memory
from peer.feeds.rss_schedule import PolledFeed, Schedule
from peer.feeds.sources import Out
from peer.version import version

log = logging.getLogger(__name__)

REQUEST_TIMEOUT = 20.0
MAX_AT_ONCE = 8
SAVE_INTERVAL = 5.0
"""Seconds between two writes of the memory."""
AGENT = f"skymesh/{version()}"


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is None if nothing has changed."""

    body: bytes | None
    tag: str = ""
    modified: str = ""


class Unavailable(Exception):
    """A feed that could not be read now; `retry_after` in seconds, if its server said so."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class _NoOtherScheme(urllib.request.HTTPRedirectHandler):
    """A server must not send us to files or elsewhere."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.startswith(SCHEMES):
            raise Unavailable(f"redirected to {newurl[:80]}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(where: str, headers: dict[str, str]) -> Answer:
    """In a thread. Raises `Unavailable` and nothing else."""
    if not where.startswith(SCHEMES):
        return _read_file(where, headers)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler, _NoOtherScheme,
        urllib.request.HTTPErrorProcessor, urllib.request.HTTPDefaultErrorHandler,
    ):  # fmt: skip
        opener.add_handler(handler())
    request = urllib.request.Request(where, headers={"User-Agent": AGENT, **headers})
    try:
        with opener.open(request, timeout=REQUEST_TIMEOUT) as response:
            body = response.read(MAX_DOCUMENT_BYTES + 1)
            return Answer(body, response.headers.get("ETag", ""), response.headers.get("Last-Modified", ""))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 304:
                return Answer(None)
            raise Unavailable(f"HTTP {error.code}", _retry_after(error.headers.get("Retry-After", ""))) from None
    except Unavailable:
        raise
    except (OSError, ValueError, EOFError) as error:  # URLError and time-outs are OSErrors
        raise Unavailable(str(getattr(error, "reason", error))[:120]) from None
    except Exception as error:  # http.client has its own for every kind of nonsense
        raise Unavailable(f"{type(error).__name__}: {error}"[:120]) from None


def _read_file(where: str, headers: dict[str, str]) -> Answer:
    path = Path(where.removeprefix("file://"))
    try:
        if not path.is_file():  # a pipe would hold the thread for good
            raise Unavailable("not a file" if path.exists() else "No such file or directory")
        stamp = f"{path.stat().st_mtime_ns}-{path.stat().st_size}"
        if headers.get("If-None-Match") == stamp:
            return Answer(None)
        with path.open("rb") as file:
            return Answer(file.read(MAX_DOCUMENT_BYTES + 1), stamp)
    except OSError as error:
        raise Unavailable(error.strerror or str(error)) from None


def _retry_after(text: str) -> float | None:
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None


@dataclass(slots=True)
class RssSource:
    where: str
    interval: float
    memory: Path | None = None
    """A file for what is remembered over a restart."""
    rng: random.Random = field(default_factory=random.Random)
    _seen: dict[str, SeenItems] = field(default_factory=dict)
    _is_changed: bool = False
    _saved_at: float = 0.0

    async def run(self, out: Out) -> None:
        """FeedError if the first document can't be had: after that, a feed that fails is only asked less often."""
        schedule = Schedule(self.interval, self.rng)
        listing = PolledFeed(self.where, self.interval)
        async with out:
            try:
                first = await self._fetch(listing)
                is_list = is_opml_untrusted(first.body or b"")
                urls = feeds_of_untrusted(first.body or b"", self.where) if is_list else [self.where]
            except (Unavailable, BadFeedDocument) as error:
                raise FeedError(f"cannot read the feed {self.where}: {error}") from None
            if not urls:
                raise FeedError(f"{self.where} lists no feeds")
            schedule.set_feeds(urls, trio.current_time())
            await self._remember(schedule)
            try:
                await self._run(schedule, listing if is_list else None, out)
            finally:
                with trio.CancelScope(shield=True):
                    await self._save(schedule)

    async def _run(self, schedule: Schedule, listing: PolledFeed | None, out: Out) -> None:
        while True:
            await self._poll_due(schedule, out)
            if self._is_changed and trio.current_time() >= self._saved_at + SAVE_INTERVAL:
                await self._save(schedule)
            if listing is not None and trio.current_time() >= listing.next_at:
                await self._list_again(listing, schedule)
            wake = min(schedule.next_at(), listing.next_at if listing is not None else float("inf"))
            if self._is_changed:
                wake = min(wake, self._saved_at + SAVE_INTERVAL)
            await trio.sleep_until(max(wake, trio.current_time() + 0.01))

    async def _remember(self, schedule: Schedule) -> None:
        if self.memory is None:
            return
        known = await trio.to_thread.run_sync(load_memory, self.memory, self.where)
        for url, feed in schedule.feeds.items():
            if url in known:
                feed.tag, feed.modified = known[url].tag, known[url].modified
                self._seen[url] = SeenItems(known[url].seen)

    async def _save(self, schedule: Schedule) -> None:
        if self.memory is None or not self._is_changed:
            return
        feeds = {
            url: FeedMemory(feed.tag, feed.modified, self._seen[url].names)
            for url, feed in schedule.feeds.items()
            if url in self._seen
        }
        await trio.to_thread.run_sync(save_memory, self.memory, self.where, feeds)
        self._is_changed, self._saved_at = False, trio.current_time()

    async def _poll_due(self, schedule: Schedule, out: Out) -> None:
        limit = trio.Semaphore(MAX_AT_ONCE)

        async def poll(feed: PolledFeed) -> None:
            async with limit:
                await self._poll(feed, out)

        async with trio.open_nursery() as nursery:
            for feed in schedule.due(trio.current_time()):
                nursery.start_soon(poll, feed)

    async def _poll(self, feed: PolledFeed, out: Out) -> None:
        try:
            answer = await self._fetch(feed)
            items = items_of_untrusted(answer.body, feed.url) if answer.body is not None else []
        except (Unavailable, BadFeedDocument) as error:
            feed.tag = feed.modified = ""
            retry = error.retry_after if isinstance(error, Unavailable) else None
            feed.failed(retry_after=retry, now=trio.current_time(), rng=self.rng)
            log.warning("feed %s: %s; trying again in %.0f s", feed.url, error, feed.next_at - trio.current_time())
            return
        if answer.body is None:
            return
        self._is_changed = True
        said, (feed.tag, feed.modified) = (feed.tag, feed.modified), ("", "")  # until all of it is handed over
        for packet in self._seen.setdefault(feed.url, SeenItems()).fresh(items):
            await out.send(packet + b"\n")
        feed.tag, feed.modified = said

    async def _list_again(self, listing: PolledFeed, schedule: Schedule) -> None:
        try:
            answer = await self._fetch(listing)
            if answer.body is not None:
                schedule.set_feeds(feeds_of_untrusted(answer.body, self.where), trio.current_time())
                self._seen = {url: seen for url, seen in self._seen.items() if url in schedule.feeds}
        except (Unavailable, BadFeedDocument) as error:
            listing.failed(retry_after=None, now=trio.current_time(), rng=self.rng)
            log.warning("feed list %s: %s", self.where, error)

    async def _fetch(self, feed: PolledFeed) -> Answer:
        answer = await trio.to_thread.run_sync(fetch, feed.url, feed.headers(), abandon_on_cancel=True)
        is_new = answer.body is not None
        feed.answered(tag=answer.tag, modified=answer.modified, is_new=is_new, now=trio.current_time(), rng=self.rng)
        return answer
