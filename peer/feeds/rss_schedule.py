"""When to ask a feed again, and how: conditional requests, back-off, and what a server says about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

MAX_BACKOFF = 3_600.0
"""Seconds between two tries of a feed that fails."""
MAX_RETRY_AFTER = 86_400.0
"""A server may ask us to stay away this long."""
MAX_HEADER = 512


@dataclass(slots=True)
class PolledFeed:
    """One feed. `tag` and `modified` are what its server said last, to be asked whether anything has changed."""

    url: str
    interval: float
    next_at: float = 0.0
    tag: str = ""
    modified: str = ""
    failures: int = 0
    changed: int = 0
    unchanged: int = 0

    def headers(self) -> dict[str, str]:
        found = {"If-None-Match": self.tag, "If-Modified-Since": self.modified}
        return {name: value for name, value in found.items() if value}

    def answered(self, *, tag: str, modified: str, is_new: bool, now: float, rng: Random) -> None:
        self.failures = 0
        self.changed += is_new
        self.unchanged += not is_new
        if is_new:
            self.tag, self.modified = tag[:MAX_HEADER], modified[:MAX_HEADER]
        self.next_at = now + self.interval * rng.uniform(0.9, 1.1)

    def failed(self, *, retry_after: float | None, now: float, rng: Random) -> None:
        """Doubled each time; a server that names a time gets it."""
        delay = min(self.interval * 2.0 ** min(self.failures, 16), max(MAX_BACKOFF, self.interval))
        self.failures += 1
        if retry_after is not None:
            delay = max(delay, min(retry_after, MAX_RETRY_AFTER))
        self.next_at = now + delay * rng.uniform(0.9, 1.1)


@dataclass(slots=True)
class Schedule:
    """All feeds of a root. The first polls are spread over one interval, at most a minute."""

    interval: float
    rng: Random
    feeds: dict[str, PolledFeed] = field(default_factory=dict)

    def set_feeds(self, urls: list[str], now: float) -> None:
        """Those that are listed now; what is known of the others is forgotten."""
        spread = min(self.interval, 60.0) if len(urls) > 1 else 0.0
        kept = {url: self.feeds[url] for url in urls if url in self.feeds}
        for url in urls:
            if url not in kept:
                kept[url] = PolledFeed(url, self.interval, now + self.rng.uniform(0, spread))
        self.feeds = kept

    def due(self, now: float) -> list[PolledFeed]:
        return sorted((feed for feed in self.feeds.values() if feed.next_at <= now), key=lambda f: f.next_at)

    def next_at(self) -> float:
        return min((feed.next_at for feed in self.feeds.values()), default=float("inf"))
