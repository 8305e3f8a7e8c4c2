"""A web site on loopback with hundreds of RSS feeds, as the XPORT paper used them: 27.7 KB each on average.

It knows when each item was put up, so what readers receive can be checked. The server runs in threads of its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Final

ITEMS_PER_FEED: Final = 10
"""Each new item pushes the oldest one out."""
MEAN_FEED_BYTES: Final = 27_700
_WORDS: Final = ("the", "wind", "market", "minister", "flight", "record", "court", "study", "price", "city", "border")


@dataclass(slots=True)
class Item:
    feed: int
    number: int
    text: str
    put_up_at: float
    is_owed: bool = True
    """False if it was pushed out before anybody saw it: nobody who polls could have it."""
    is_seen: bool = False

    @property
    def name(self) -> str:
        """Its guid."""
        return f"{self.feed}-{self.number}"


@dataclass(slots=True)
class _Feed:
    items: list[Item] = field(default_factory=list)
    count: int = 0
    page: bytes = b""
    tag: str = ""


class NewsSite:
    """`add_item` may be called while the server answers."""

    def __init__(self, feeds: int, rng: Random) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self._feeds = [_Feed() for _ in range(feeds)]
        # Some feeds are long and some are short; all together they have the mean.
        self._sizes = [rng.uniform(0.2, 1.8) * MEAN_FEED_BYTES / ITEMS_PER_FEED for _ in range(feeds)]
        self.url = ""
        self.items: dict[str, Item] = {}
        """All that were ever put up, by name."""
        self.answers: Counter[int] = Counter()
        """HTTP answers by status."""
        self.bytes_sent = 0
        for feed in range(feeds):
            for _ in range(ITEMS_PER_FEED):
                self._put_up(feed)
            self._print(feed)

    def __len__(self) -> int:
        return len(self._feeds)

    def feed_url(self, feed: int) -> str:
        return f"{self.url}/feed/{feed}.xml"

    @property
    def list_url(self) -> str:
        return f"{self.url}/feeds.opml"

    @property
    def mean_bytes(self) -> float:
        return sum(len(feed.page) for feed in self._feeds) / len(self._feeds)

    def add_item(self) -> None:
        """A new item in any of the feeds."""
        feed = self._rng.randrange(len(self._feeds))
        with self._lock:
            self._put_up(feed)
            self._print(feed)

    def answer(self, path: str, tag: str | None) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            code, headers, body = self._answer(path, tag)
            self.answers[code] += 1
            self.bytes_sent += len(body)
        return code, headers, body

    def _answer(self, path: str, tag: str | None) -> tuple[int, dict[str, str], bytes]:
        if path == "/feeds.opml":
            lines = "".join(f'<outline xmlUrl="{self.feed_url(feed)}"/>' for feed in range(len(self._feeds)))
            return 200, {}, f'<opml version="2.0"><body>{lines}</body></opml>'.encode()
        name = path.removeprefix("/feed/").removesuffix(".xml")
        if not name.isdecimal() or int(name) >= len(self._feeds):
            return 404, {}, b""
        feed = self._feeds[int(name)]
        if tag == feed.tag:
            return 304, {"ETag": feed.tag}, b""
        for item in feed.items:
            item.is_seen = True
        return 200, {"ETag": feed.tag}, feed.page

    def _put_up(self, number: int) -> None:
        feed = self._feeds[number]
        size = self._sizes[number] * self._rng.uniform(0.5, 1.5)
        text = " ".join(self._rng.choices(_WORDS, k=max(1, int(size / 6))))
        feed.count += 1
        item = Item(number, feed.count, text, time.monotonic())
        if len(feed.items) == ITEMS_PER_FEED:
            oldest = feed.items.pop()
            oldest.is_owed = oldest.is_seen
        feed.items.insert(0, item)
        self.items[item.name] = item

    def _print(self, number: int) -> None:
        feed = self._feeds[number]
        items = "".join(
            f"<item><title>Item {item.number} of feed {number}</title><guid>{item.name}</guid>"
            f"<link>{self.url}/{item.name}</link><description>{item.text}</description></item>"
            for item in feed.items
        )
        feed.page = f'<rss version="2.0"><channel><title>Feed {number}</title>{items}</channel></rss>'.encode()
        feed.tag = f'"{feed.count}"'


@contextmanager
def serving(site: NewsSite) -> Iterator[None]:
    """On a free port of loopback; `site.url` says where."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            code, headers, body = site.answer(self.path, self.headers.get("If-None-Match"))
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
