"""A zstd dictionary for the stream's packets, trained from the archive.

Packets are compressed one by one (parents differ, so there is no history to share), and a packet alone hardly shrinks.
A dictionary is a history that everybody has from the start.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

from pipeline.archive.jobs import read
from pipeline.session import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.archive.manifest import Archive

DICTIONARY_BYTES = 16 << 10
_SAMPLES = 40_000
_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Trained:
    """A dictionary's description, kept beside it. `ratio`s are of packets that it was not trained on."""

    stream: str
    version: int
    dictionary_id: int
    sha256: str
    bytes: int
    trained_on: int
    tested_on: int
    ratio_alone: float
    ratio_dictionary: float
    ratio_stream: float


def train(samples: list[bytes], *, seed: int = 2001, size: int = DICTIONARY_BYTES) -> tuple[bytes, dict[str, float]]:
    """A dictionary from three quarters of the samples, and the ratios it reaches on the rest. Repeatable by seed."""
    if len(samples) < 100:
        raise PipelineError(f"{len(samples)} packets are too few to train on; at least 100 are needed")
    shuffled = sorted(samples)
    random.Random(seed).shuffle(shuffled)
    cut = len(shuffled) * 3 // 4
    dictionary = zstandard.train_dictionary(size, [*shuffled[:cut]]).as_bytes()
    return dictionary, ratios(shuffled[cut:], dictionary)


def ratios(packets: list[bytes], dictionary: bytes) -> dict[str, float]:
    """How many times smaller: each packet alone, each with the dictionary, and all of them as one stream."""
    alone = zstandard.ZstdCompressor(level=_LEVEL)
    taught = zstandard.ZstdCompressor(level=_LEVEL, dict_data=zstandard.ZstdCompressionDict(dictionary))
    total = sum(map(len, packets))
    return {
        "ratio_alone": total / sum(len(alone.compress(packet)) for packet in packets),
        "ratio_dictionary": total / sum(len(taught.compress(packet)) for packet in packets),
        "ratio_stream": total / len(alone.compress(b"".join(packets))),
    }


def train_dictionary(spark: SparkSession, archive: Archive, out: Path, *, stream: str, seed: int = 2001) -> Trained:
    """Train from a sample over the whole archive; writes OUT/STREAM-VERSION.zdict and its description beside it."""
    from pyspark.sql import functions as f

    packets = read(spark, archive, stream=stream).where(f.col("xml").isNotNull())
    total = packets.count()
    if not total:
        raise PipelineError(f"the archive has no packets of the stream {stream!r}")
    # By a hash of the AN: the same sample for any number of partitions.
    share = max(1, total // _SAMPLES)
    chosen = packets.where(f.pmod(f.xxhash64("an"), f.lit(share)) == 0).select("xml")
    samples = [bytes(row.xml) for row in chosen.limit(2 * _SAMPLES).collect()]
    dictionary, reached = train(samples, seed=seed)
    digest = hashlib.sha256(dictionary).hexdigest()
    out.mkdir(parents=True, exist_ok=True)
    versions = [int(path.stem.rpartition("-")[2]) for path in out.glob(f"{stream}-*.zdict")]
    same = next((path for path in out.glob(f"{stream}-*.zdict") if path.read_bytes() == dictionary), None)
    version = int(same.stem.rpartition("-")[2]) if same else max(versions, default=0) + 1
    trained = Trained(
        stream,
        version,
        zstandard.ZstdCompressionDict(dictionary).dict_id(),
        digest,
        len(dictionary),
        len(samples) * 3 // 4,
        len(samples) - len(samples) * 3 // 4,
        **reached,
    )
    (out / f"{stream}-{version}.zdict").write_bytes(dictionary)
    (out / f"{stream}-{version}.json").write_text(json.dumps(asdict(trained), indent=2) + "\n")
    return trained
