"""What a root remembers of RSS feeds over a restart: what to ask servers with, and which items were published.

Without it a restart would publish everything that the feeds list once more. It is written after items were handed over:
after a crash some may come twice, and none is left out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peer.feeds.rss_items import MAX_SEEN
from peer.feeds.rss_schedule import MAX_HEADER
from peer.safe_file import read_file, replace_file

log = logging.getLogger(__name__)

_FORMAT = "skymesh rss memory v1"
MAX_FILE_BYTES = 64 << 20
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class FeedMemory:
    """Of one feed. `seen`: its items by short hashes, the oldest first."""

    tag: str
    modified: str
    seen: tuple[str, ...]


def load_memory(path: Path, where: str) -> dict[str, FeedMemory]:
    """By URL; empty if there is none, if it is of another feed, or if it is damaged (which is logged)."""
    try:
        data = read_file(path, MAX_FILE_BYTES)
        if data is None:
            return {}
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise ValueError("it is of another format")
        if document["where"] != where:
            return {}
        return {str(url): _read(entry) for url, entry in document["feeds"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning("cannot read %s (%s): items that were published before are published again", path, error)
        return {}


def _read(entry: Mapping[str, object]) -> FeedMemory:
    tag, modified, seen = entry["tag"], entry["modified"], entry["seen"]
    if not isinstance(tag, str) or not isinstance(modified, str) or not isinstance(seen, list):
        raise ValueError("a field has the wrong type")
    names = [name for name in seen[-MAX_SEEN:] if isinstance(name, str) and len(name) <= MAX_NAME]
    return FeedMemory(tag[:MAX_HEADER], modified[:MAX_HEADER], tuple(names))


def save_memory(path: Path, where: str, feeds: Mapping[str, FeedMemory]) -> None:
    """In a thread. What can't be written is logged: the feed goes on."""
    entries = {url: {"tag": one.tag, "modified": one.modified, "seen": list(one.seen)} for url, one in feeds.items()}
    document = {"format": _FORMAT, "where": where, "feeds": entries}
    try:
        replace_file(path, json.dumps(document).encode())
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)
