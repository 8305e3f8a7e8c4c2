"""`combine`: several streams under one name, each with its own numbers (docs/decisions/peer-combining.md)."""

from __future__ import annotations

import trio

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.root import check_owner
from peer.cli.running import expect_directory, note, peer_options, run
from peer.combine import MAX_SOURCES, Source, open_combiner
from peer.observe.statistics import address_text
from peer.role import Role


def combine(settings: Settings) -> int:
    sources = [_source(text, dict(settings["namespace"] or ())) for text in settings["source"]]
    if not 1 <= len(sources) <= MAX_SOURCES:
        raise CliError(f"give --source 1 to {MAX_SOURCES} times, not {len(sources)} times", ExitCode.USAGE)
    names = [source.stream.partition(".")[0] for source in sources]
    if len(set(names)) != len(names):
        raise CliError("two sources have the same name, so their sub-streams would be too", ExitCode.USAGE)
    check_owner(settings)
    options = peer_options(settings, Role.ROUTER)

    async def command() -> int:
        async with open_combiner(settings["roots_key"], sources, options) as combiner, trio.open_nursery() as nursery:
            place = address_text(combiner.index.address)
            note(f"join all of it with: skymesh join {settings['roots_key']} --bootstrap {place}")
            for label, output in combiner.outputs.items():
                stream, place = output.options.stream, address_text(output.address)
                note(f"root of {stream} on {place}, from {label}")
            for source in combiner.inputs.values():
                nursery.start_soon(expect_directory, source, settings)
            await trio.sleep_forever()
        raise AssertionError("nobody wakes us")

    return run(settings, command)


def _source(text: str, namespaces: dict[str, str]) -> Source:
    """NAME, or NAME=XPATH for a part of it; a bad one is an error before anything is opened."""
    from dht import check_stream_name
    from xmlswitch import Query

    stream, equals, query = text.partition("=")
    try:
        check_stream_name(stream)
    except ValueError as error:
        raise CliError(f"--source: {error}", ExitCode.USAGE) from None
    if not equals:
        return Source(stream=stream)
    Query.parse(query, namespaces)
    return Source(stream=stream, query=query, namespaces=namespaces)
