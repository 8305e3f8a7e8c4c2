"""`archive:PATH` as a root's feed: packets of an archive, with the numbers they had. Needs pyarrow, but no Spark.

peer finds this by its entry point (`skymesh.feeds` in pyproject.toml), so that it need not import the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

from asdi.time import LONGEST_SILENCE, SEQUENCE_SPACE
from peer.errors import FeedError
from peer.feeds.sequencer import Numbered
from pipeline.replay import Replayed, iterate
from pipeline.session import PipelineError


def packets(source: str) -> Iterator[Numbered]:
    """PATH, or PATH?from=SECONDS&to=SECONDS&stream=NAME (seconds since 1970). FeedError if it can't be read."""
    path, _, bounds = source.partition("?")
    from_time, to_time, stream = _bounds(source, bounds)
    last: Replayed | None = None
    try:
        for packet in iterate(Path(path), from_time, to_time, stream=stream, with_lines=True):
            line = packet.raw.encode("latin-1", "replace") if packet.raw is not None else None
            yield Numbered(packet.an, packet.payload, last is None or _continues(last, packet), packet.time, line)
            last = packet
    except ImportError as error:
        raise FeedError(f"archive:{path} can't be read here: {error}") from None
    except (OSError, ValueError, PipelineError) as error:
        raise FeedError(f"archive:{path}: {error}") from None


def _continues(last: Replayed, packet: Replayed) -> bool:
    """Whether nothing is missing between two packets. What was never archived is a gap: its content is unknown.

    Where the numbering jumped ahead (`asdi.time.Unwrapper`), the feed's own numbers go on.
    """
    if packet.an == last.an + 1:
        return True
    if packet.sequence is None or last.sequence is None:
        return False
    return (packet.sequence - last.sequence) % SEQUENCE_SPACE == 1 and packet.time - last.time < LONGEST_SILENCE


def _bounds(source: str, text: str) -> tuple[float | None, float | None, str | None]:
    try:
        given = dict(parse_qsl(text, strict_parsing=bool(text)))
        times = [float(value) if (value := given.pop(name, None)) is not None else None for name in ("from", "to")]
    except ValueError:
        raise FeedError(
            f"archive:{source}: after ?, use from=SECONDS, to=SECONDS and stream=NAME, joined by &"
        ) from None
    stream = given.pop("stream", None)
    if given:
        raise FeedError(f"archive:{source}: {', '.join(given)} is unknown; use from, to and stream")
    return times[0], times[1], stream
