"""Bandwidth of the stream against time of day: raw, XML, and both compressed (the paper's Figures 13 and 14)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

WINDOW_SECONDS = 300
COLUMNS = (
    "window TIMESTAMP, packets LONG, raw DOUBLE, xml DOUBLE, raw_compressed DOUBLE, xml_compressed DOUBLE, "
    "xml_packet DOUBLE, xml_dictionary DOUBLE"
)
# The header of a line up to its type; the paper leaves the message id out of both formats.
_HEADER_CHARS = 18


def compress_window(raws: list[str | None], packets: list[bytes], dictionary: bytes | None) -> dict[str, float]:
    """Bytes of one window in each form. The stream forms share a history, as a link would; a packet's form has none."""
    import zstandard

    given = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
    alone = zstandard.ZstdCompressor(level=3)
    taught = zstandard.ZstdCompressor(level=3, dict_data=given) if given else alone
    lines = [raw[_HEADER_CHARS:].encode("latin-1", "replace") + b"\n" for raw in raws if raw is not None]
    return {
        "raw": float(sum(map(len, lines))),
        "xml": float(sum(map(len, packets))),
        "raw_compressed": float(len(zlib.compress(b"".join(lines)))),
        "xml_compressed": float(len(zlib.compress(b"".join(packets)))),
        "xml_packet": float(sum(len(alone.compress(packet)) for packet in packets)),
        "xml_dictionary": float(sum(len(taught.compress(packet)) for packet in packets)),
    }


def bandwidth(packets: DataFrame, dictionary: bytes | None = None) -> DataFrame:
    """Packets -> one row per five minutes, in bytes per second.

    `raw` and `xml` without the message id; `*_compressed` the whole stream through one Lempel-Ziv compressor;
    `xml_packet` each packet compressed alone (zstd); `xml_dictionary` the same with the stream's dictionary.
    """
    from pyspark.sql import functions as f

    def run(table: pyarrow.Table) -> pyarrow.Table:
        import pyarrow as pa

        rows = table.sort_by("an")
        sizes = compress_window(rows.column("raw").to_pylist(), rows.column("xml").to_pylist(), dictionary)
        rates: dict[str, Any] = {name: [size / WINDOW_SECONDS] for name, size in sizes.items()}
        window = rows.column("window").slice(0, 1).cast(pa.timestamp("us", tz="UTC"))
        return pa.table({"window": window, "packets": [rows.num_rows], **rates})

    return (
        packets.where(f.col("xml").isNotNull())
        .select("an", "raw", "xml", f.window("time", f"{WINDOW_SECONDS} seconds")["start"].alias("window"))
        .groupBy("window")
        .applyInArrow(run, COLUMNS)
    )
