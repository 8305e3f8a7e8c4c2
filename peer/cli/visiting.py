"""A visitor to a running mesh, as `status`, `streams` and `goal` make one from their settings."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.running import no_dht
from peer.listening import default_listen
from peer.observe.crawl import Crawler, open_crawler

LOOK_INTERVAL = 0.1


def visitor(settings: Settings) -> AbstractAsyncContextManager[Crawler]:
    bootstrap = settings["bootstrap"]
    listen = settings["listen"] or default_listen(bootstrap)
    return open_crawler(listen, bootstrap, beacon=settings["beacon"], transport=settings["transport"])


def unknown(stream: str) -> str:
    return f"no peer of {stream} is in this DHT; `skymesh streams` lists what there is"


def choose_owner(crawler: Crawler, settings: Settings) -> None:
    from dht import parse_id_text

    if settings["owner_id"] is not None:
        assert crawler.directory is not None
        try:
            crawler.directory.choose_owner(settings["roots_key"], parse_id_text(settings["owner_id"]))
        except ValueError as error:
            raise CliError(f"--owner-id: {error}", ExitCode.USAGE) from None


async def find(crawler: Crawler, settings: Settings) -> None:
    """Until the DHT is found and lists somebody, for a bounded time."""
    from dht import DirectoryUnavailable

    assert crawler.directory is not None
    with trio.move_on_after(settings["find_timeout"]):
        while True:
            try:
                stream = settings.get("roots_key")
                if crawler.directory.stats().contacts and (stream is None or await crawler.directory.roots(stream)):
                    return
            except DirectoryUnavailable:
                pass  # not yet
            await trio.sleep(LOOK_INTERVAL)
    if not crawler.directory.stats().contacts:
        raise CliError(no_dht(settings), ExitCode.NO_DHT)
