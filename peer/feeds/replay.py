"""Packets that were numbered once already: an archive of the pipeline, or a packet log that `record` wrote."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

from peer.errors import FeedError
from peer.feeds.sequencer import Numbered
from peer.packetlog import Packet, PacketLogError, Reader


def archive_packets(source: str) -> Iterator[Numbered]:
    """PATH, or PATH?from=SECONDS&to=SECONDS&stream=NAME (since 1970), through `pipeline.replay`: pyarrow but no Spark.

    FeedError when it, or the archive, is not there.
    """
    path, _, bounds = source.partition("?")
    from_time, to_time, stream = _bounds(source, bounds)
    try:
        # By name: this is the one place where a peer reads what the pipeline wrote, and only when asked to.
        replay = importlib.import_module("pipeline.replay")
    except ImportError as error:
        raise FeedError(
            f"archive:{path} needs the pipeline, which is not installed here ({error}); "
            "install it with: pip install 'skymesh[spark]'"
        ) from None
    problems: tuple[type[Exception], ...] = (OSError, ValueError)
    with contextlib.suppress(ImportError):  # needs nothing more than `replay` does, where there is one
        problems += (importlib.import_module("pipeline.session").PipelineError,)
    last: int | None = None
    try:
        for an, time, payload in replay.iterate(Path(path), from_time, to_time, stream=stream):
            # ANs that are not there were never archived: told as a gap, for nobody knows what they were.
            yield Numbered(an, payload, last is None or an == last + 1, time)
            last = an
    except ImportError as error:
        raise FeedError(f"archive:{path} can't be read here: {error}") from None
    except problems as error:
        raise FeedError(f"archive:{path}: {error}") from None


def _bounds(source: str, text: str) -> tuple[float | None, float | None, str | None]:
    try:
        given = dict(parse_qsl(text, strict_parsing=bool(text)))
        times = [float(value) if (value := given.pop(name, None)) is not None else None for name in ("from", "to")]
    except ValueError:
        raise FeedError(
            f"archive:{source}: the part behind ? is from=SECONDS, to=SECONDS and stream=NAME, joined by &"
        ) from None
    stream = given.pop("stream", None)
    if given:
        raise FeedError(f"archive:{source}: {', '.join(given)} is not known; there are from, to and stream")
    return times[0], times[1], stream


def log_packets(path: str) -> Iterator[Numbered]:
    """What `record` wrote, gaps as gaps."""
    if not Path(path).is_dir():
        raise FeedError(f"{path} is no packet log: there is no such folder")
    reader = Reader(path, durable=False)  # what a recorder wrote is there, though it may still be writing
    contiguous = True
    found = False
    try:
        for _, entry in reader.iterate(reader.first_position()):
            found = True
            if isinstance(entry, Packet):
                yield Numbered(entry.an, entry.payload, contiguous, entry.time_us / 1e6)
                contiguous = True
            else:
                contiguous = False
    except PacketLogError as error:
        raise FeedError(str(error)) from None
    if not found:
        raise FeedError(f"{path} has no packets: it is no packet log, or nothing was recorded yet")
