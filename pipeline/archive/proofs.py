"""Signatures of recorded packets, kept in the archive beside them: the dataset `proofs`, a row for each signed packet.

A row has all that was signed and that the packet's own row lacks: the proof (`peer.trust.proofs`), what `record` took
off the packet (`rest`), the name of the stream it was signed for, and the keys of the roots with the owner's grants. So
who verifies, years later, needs the owner's fingerprint and nothing else. Where nothing was signed there is no row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dcp.compression import Compressor
from dht.ids import PeerId
from peer.errors import PeerError
from peer.packetlog import Gap, PacketLogError, Reader
from peer.trust.proofs import FOLDER, Finding, RecordingVerifier, entries_for
from peer.trust.recording import keys_in
from peer.trust.withholding import unmarked_untrusted
from pipeline.archive.manifest import Archive, DataFile
from pipeline.archive.packet import packet_row
from pipeline.archive.parts import read_rows
from pipeline.session import PipelineError
from pipeline.tasks import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Proofs are written with their packets, or a little before: how much before is looked for, seconds.
_EARLIER = (5, 60, 600)
_SHOWN = 20
_PACKET = ("an", "time", "type", "facility", "flight", "sequence", "raw", "xml", "after", "crc")
_PROOF = ("an", "received", "signed_as", "roots", "rest", "proof")


class Signed(NamedTuple):
    """What a packet log says of a packet that came signed."""

    stream: str
    """The name it was signed for."""
    roots: str
    """Keys and grants of the roots that may have signed it, as in the recording's file of keys."""
    proof: bytes


class ProofsOfLog:
    """The proofs beside a packet log, in a task of whoever reads that log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def find(self, wanted: Mapping[int, int]) -> dict[int, Signed]:
        """Of packets with these ANs, received at these times (microseconds). `PipelineError` if they can't be read."""
        folder = self._log / FOLDER
        if not wanted or not folder.is_dir():
            return {}
        try:
            # Not only what is synced: each proof was written before its packet, which is.
            reader, stream = Reader(folder, durable=False), Reader(self._log).stream
            if stream is None:
                return {}
            keys = keys_in(folder)
            return {
                an: Signed(stream, entries_for(proof, keys), proof) for an, proof in _search(reader, wanted).items()
            }
        except ValueError as error:
            raise PipelineError(f"{folder}: {error}") from None
        except (PacketLogError, PeerError) as error:
            raise PipelineError(str(error)) from None


def _search(reader: Reader, wanted: Mapping[int, int]) -> dict[int, bytes]:
    first, last = min(wanted.values()), max(wanted.values())
    found: dict[int, bytes] = {}
    begun = None
    for seconds in _EARLIER:
        position = max(reader.find_time(first - seconds * 1_000_000), reader.first_position())
        if position == begun:
            break  # nothing is earlier
        begun = position
        found = {}
        for _, entry in reader.iterate(position):
            if entry.time_us > last:
                break
            if not isinstance(entry, Gap) and entry.an in wanted:
                found[entry.an] = entry.payload
        if len(found) == len(wanted):
            break
    return found


def row_of(row: tuple[Any, ...], received_us: int, payload: bytes, signed: Signed) -> tuple[Any, ...]:
    """The row of `proofs` beside a packet's own."""
    an, time, xml = row[0], row[1], row[7]
    return (an, time, received_us, signed.stream, signed.roots, payload[len(xml) :] or None, signed.proof)


# --- verifying --------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class VerifiedProofs:
    """What the signatures say of an archive's packets."""

    packets: int = 0
    signed: int = 0
    """By roots of that owner, and every column as it was signed."""
    findings: dict[str, int] = field(default_factory=dict)
    """How many packets are otherwise, and in which way..."""
    problems: list[str] = field(default_factory=list)
    """...and the first of them."""


def verify_proofs(
    spark: SparkSession | None,
    archive: Archive,
    owner: PeerId,
    *,
    stream: str | None = None,
    dictionary: bytes | None = None,
) -> VerifiedProofs:
    """Check each packet of the archive against the key of the stream's owner."""
    manifest = archive.require()
    hours: dict[str, tuple[list[str], list[str]]] = {}
    for place, dataset in enumerate(("packets", "proofs")):
        for file in manifest.select(dataset, stream=stream):
            hours.setdefault(_hour(file), ([], []))[place].extend(archive.absolute([file]))

    def task(item: tuple[str, tuple[list[str], list[str]]]) -> dict[str, Any]:
        hour, (packets, proofs) = item
        return _verify_hour(hour, packets, proofs, owner, dictionary)

    total = VerifiedProofs()
    findings: Counter[str] = Counter()
    for report in each(spark, sorted(hours.items()), task):
        findings.update(report["findings"])
        total.problems += report["problems"][: _SHOWN - len(total.problems)]
    total.packets = findings.total()
    total.signed = findings.pop(Finding.SIGNED.value, 0)
    total.findings = dict(findings)
    return total


def _hour(file: DataFile) -> str:
    return f"{file.part('stream')}, {file.part('date')}, hour {file.part('hour')}"


def _verify_hour(
    hour: str, packets: list[str], proofs: list[str], owner: PeerId, dictionary: bytes | None
) -> dict[str, Any]:
    """One hour, in a task."""
    unpack = Compressor("none", dictionary=dictionary).unpack_untrusted
    verifiers: dict[tuple[str, str], RecordingVerifier | None] = {}
    kept = {row[0]: row[1:] for row in rows_with_us(proofs, _PROOF)}
    findings: Counter[str] = Counter()
    problems: list[str] = []
    for row in rows_with_us(packets, _PACKET):
        an, xml = row[0], row[7]
        if xml is None:
            continue
        found = Finding.UNSIGNED
        if an in kept:
            received, signed_as, roots, rest, proof = kept[an]
            if (signed_as, roots) not in verifiers:
                verifiers[signed_as, roots] = _verifier(signed_as, owner, roots, unpack)
            found = _judge(verifiers[signed_as, roots], row, received, xml + (rest or b""), proof)
        findings[found.value] += 1
        if found is not Finding.SIGNED and len(problems) < _SHOWN:
            problems.append(f"AN {an} ({hour}): {found.value}")
    return {"findings": findings, "problems": problems}


def _verifier(stream: str, owner: PeerId, roots: str, unpack: Callable[[bytes], bytes]) -> RecordingVerifier | None:
    try:
        return RecordingVerifier(stream, owner, roots, lambda inner: unpack(unmarked_untrusted(inner)))
    except ValueError:
        return None  # somebody changed the keys


def _judge(
    verifier: RecordingVerifier | None, row: tuple[Any, ...], received: int, content: bytes, proof: bytes
) -> Finding:
    if verifier is None:
        return Finding.UNKNOWN
    found = verifier.judge_untrusted(row[0], content, proof)
    # The packet may be what was signed, and its row say otherwise.
    return Finding.FALSE if found is Finding.SIGNED and packet_row(row[0], received, content) != row else found


def rows_with_us(paths: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows of these files, their times as microseconds."""
    import pyarrow as pa

    for batch in read_rows(paths, columns):
        parts = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
        yield from zip(*(part.to_pylist() for part in parts), strict=True)
