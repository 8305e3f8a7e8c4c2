"""`archive:PATH` as a root's feed: packets of an archive, with the numbers they had. Needs pyarrow, but no Spark.

peer finds this by its entry point (`skymesh.feeds` in pyproject.toml), so that it need not import the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

from peer.errors import FeedError
from peer.feeds.sequencer import Numbered
from pipeline.replay import iterate
from pipeline.session import PipelineError


def packets(source: str) -> Iterator[Numbered]:
    """PATH, or PATH?from=SECONDS&to=SECONDS&stream=NAME (seconds since 1970). FeedError if it can't be read."""
    path, _, bounds = source.partition("?")
    from_time, to_time, stream = _bounds(source, bounds)
    last: int | None = None
    try:
        for an, time, payload in iterate(Path(path), from_time, to_time, stream=stream):
            # ANs that are missing here were never archived: a gap, because their content is unknown.
            yield Numbered(an, payload, last is None or an == last + 1, time)
            last = an
    except ImportError as error:
        raise FeedError(f"archive:{path} can't be read here: {error}") from None
    except (OSError, ValueError, PipelineError) as error:
        raise FeedError(f"archive:{path}: {error}") from None


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
