"""The sink `mesh`: a frame of packets as a stream of its own, exactly once.

    frame.writeStream.format("mesh").option("log", DIR).option("checkpointLocation", ...).start()
    skymesh root alerts --feed log:DIR --follow --owner KEY      # publishes it, signed, as it grows

Columns: `xml` (binary or string, one packet), and perhaps `order` (long). Tasks write their rows below `DIR/_sink`; the
driver appends them to the packet log in DIR, sorted by `order` and content. A row's AN is made of its batch and its
place in it, and the log takes an AN once: a batch that is repeated after a crash changes nothing. Batch jobs
(`frame.write.format("mesh")`) count on from the log's last AN.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from peer.packetlog import Packet, PacketLogError, Writer
from pipeline.options import check_options
from pipeline.places import local_path
from pipeline.session import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

OPTIONS = ("log", "roots_key")
# Spark's own, which it hands on to the sink.
_OF_SPARK = frozenset({"checkpointlocation", "path", "queryname", "outputmode", "mode"})
ROW_BITS = 20
"""Of an AN: a batch has at most a million packets."""
MAX_PACKET_BYTES = 1 << 20
_FORGET_SECONDS = 86_400
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)


@dataclass
class Written(WriterCommitMessage):
    """What a task left for the driver."""

    path: str


def append(log: Path, packets: Sequence[bytes], *, batch: int | None, stream: str | None = None) -> int:
    """Packets in order to a log, under the ANs of this batch; without one, behind its last. Returns how many are new.

    `PipelineError` when there are too many, or the log can't be written.
    """
    if len(packets) >= 1 << ROW_BITS:
        raise PipelineError(
            f"a batch of the sink `mesh` has fewer than {1 << ROW_BITS:,} packets, got {len(packets):,}"
        )
    try:
        with Writer(log, stream=stream) as writer:
            first = writer.last_an + 1 if batch is None else batch << ROW_BITS
            before = writer.duplicates
            now = int(time.time() * 1e6)
            writer.append([Packet(first + row, now, packet) for row, packet in enumerate(packets)])
            writer.sync()
            return len(packets) - (writer.duplicates - before)
    except PacketLogError as error:
        raise PipelineError(str(error)) from error


def check_packet(payload: object) -> bytes:
    """A packet as bytes; `PipelineError` when it is not one."""
    packet = payload.encode() if isinstance(payload, str) else bytes(payload) if payload is not None else b""  # type: ignore[call-overload]
    if not 0 < len(packet) <= MAX_PACKET_BYTES:
        raise PipelineError(f"a packet has 1 to {MAX_PACKET_BYTES:,} bytes, got {len(packet):,}")
    try:
        etree.fromstring(packet, _PARSER)
    except etree.XMLSyntaxError as error:
        raise PipelineError(f"a row of the sink `mesh` is not XML ({error}): {packet[:60]!r}") from None
    return packet


class _Tasks:
    """What stream and batch writers share."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        lower = {key.lower(): value for key, value in options.items()}
        check_options((key for key in lower if key not in _OF_SPARK), OPTIONS, "sink")
        if "log" not in lower:
            raise PipelineError("the sink `mesh` needs the option `log`: the directory of the packet log to write")
        names = set(schema.fieldNames())
        if "xml" not in names or names - {"xml", "order"}:
            raise PipelineError(f"the sink `mesh` takes the columns xml and order, got {', '.join(sorted(names))}")
        self._log = local_path(lower["log"]).absolute()
        self._stream = lower.get("roots_key")
        self._has_order = "order" in names

    def write(self, iterator: Iterator[Row]) -> Written:
        import pyarrow as pa

        orders, packets = [], []
        for row in iterator:
            packets.append(check_packet(row["xml"]))
            orders.append(int(row["order"] or 0) if self._has_order else 0)
        folder = self._log / "_sink"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.arrow"
        table = pa.table({"order": pa.array(orders, pa.int64()), "xml": pa.array(packets, pa.binary())})
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return Written(str(path))

    def _append(self, messages: Iterable[Any], batch: int | None) -> None:
        import pyarrow as pa

        paths = [message.path for message in messages if message is not None]
        rows: list[tuple[int, bytes]] = []
        for path in paths:
            with pa.memory_map(path) as file:
                table = pa.ipc.open_file(file).read_all()
                rows += zip(table.column("order").to_pylist(), table.column("xml").to_pylist(), strict=True)
        rows.sort()
        append(self._log, [packet for _, packet in rows], batch=batch, stream=self._stream)
        self._drop(paths)

    def _drop(self, paths: Iterable[str]) -> None:
        """What was taken, and what tasks left that died long ago."""
        for path in paths:
            Path(path).unlink(missing_ok=True)
        for left in (self._log / "_sink").glob("*.arrow"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _FORGET_SECONDS:
                    left.unlink()


class MeshStreamWriter(_Tasks, DataSourceStreamWriter):
    """`df.writeStream.format("mesh")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._append(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._drop(message.path for message in messages if isinstance(message, Written))


class MeshBatchWriter(_Tasks, DataSourceWriter):
    """`df.write.format("mesh")`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._append(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._drop(message.path for message in messages if isinstance(message, Written))
