"""An archive as a recording again: a packet log of the mesh, with the signatures that `record` kept."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from asdi.origin import with_origin
from peer.packetlog import Entry, Gap, Late, LogConfig, Packet, PacketLogError, Writer
from peer.trust.proofs import FOLDER
from peer.trust.recording import write_keys
from pipeline.archive.manifest import Archive, DataFile
from pipeline.archive.proofs import rows_with_us
from pipeline.replay import overlapping
from pipeline.session import PipelineError

_BATCH = 5_000
_PACKET = ("an", "time", "raw", "xml", "after")
_PROOF = ("an", "time", "received", "signed_as", "roots", "rest", "proof")
_Row = tuple[Any, ...]


@dataclass(slots=True)
class Exported:
    """What the recording has."""

    stream: str
    """The name in it: what its packets were signed for, if they were."""
    packets: int = 0
    gaps: int = 0
    signed: int = 0


class _Item(NamedTuple):
    begin: int
    """A gap comes before the late packets that lie in it."""
    entry: Packet | Gap
    proof: Late | None = None
    """As `record` writes it beside the packet..."""
    roots: str = ""
    """...with the keys for it."""


def export(
    archive: Archive, out: Path, *, stream: str | None = None, from_us: int | None = None, to_us: int | None = None
) -> Exported:
    """Write a packet log. Signed packets have the bytes and the time of receipt of the first recording.

    Others have the archive's packet, with its line if it is known, and the archive's time.
    """
    manifest = archive.require()
    streams = {file.part("stream") for file in manifest.select()}
    if stream is None and len(streams) == 1:
        (stream,) = streams
    if stream is None or stream not in streams:
        raise PipelineError(f"choose one --stream of {', '.join(sorted(streams)) or 'an archive that is not empty'}")
    if out.exists() and any(out.iterdir()):
        raise PipelineError(f"{out} is not empty: export to a new folder")
    packets, proofs = (
        manifest.select(dataset, stream=stream, from_us=from_us, to_us=to_us) for dataset in ("packets", "proofs")
    )
    bounds = (from_us, to_us)
    names = {str(row[0]) for file in proofs for row in rows_with_us(archive.absolute([file]), ["signed_as"])}
    if len(names) > 1:
        raise PipelineError(f"packets of {stream} were signed for several streams: {', '.join(sorted(names))}")
    done = Exported(next(iter(names), stream))
    gaps = sorted(
        _Item(row[2] + 1, Gap(row[2], row[0], row[1]))
        for row in _rows(archive, packets, ("an", "time", "after"), bounds)
        if row[2] is not None
    )
    signed = _rows(archive, proofs, _PROOF, bounds)
    items = heapq.merge(gaps, _packets(_rows(archive, packets, _PACKET, bounds), signed), key=lambda item: item.begin)
    try:
        _write(items, out, done)
    except (PacketLogError, OSError) as error:
        raise PipelineError(str(error)) from None
    return done


def _rows(
    archive: Archive, files: Sequence[DataFile], columns: Sequence[str], bounds: tuple[int | None, int | None]
) -> Iterator[_Row]:
    """Rows between two times, by AN."""
    from_us, to_us = bounds
    for group in overlapping(sorted(files, key=lambda file: (file.first_an, file.path))):
        readers = [rows_with_us(archive.absolute([file]), columns) for file in group]
        for row in heapq.merge(*readers, key=lambda row: int(row[0])):
            if (from_us is None or row[1] >= from_us) and (to_us is None or row[1] < to_us):
                yield row


def _packets(rows: Iterable[_Row], proofs: Iterator[_Row]) -> Iterator[_Item]:
    proof = next(proofs, None)
    for an, us, raw, xml, _ in rows:
        if xml is None:
            continue
        while proof is not None and proof[0] < an:
            proof = next(proofs, None)
        if proof is not None and proof[0] == an:
            packet = Packet(an, proof[2], xml + (proof[5] or b""))
            yield _Item(an, packet, Late(an, proof[2], proof[6]), proof[4])
        else:
            content = xml if raw is None else with_origin(xml, us // 1_000_000, raw.encode("latin-1", "replace"))
            yield _Item(an, Packet(an, us, content))


def _write(items: Iterator[_Item], out: Path, done: Exported) -> None:
    keys: dict[str, None] = {}
    with ExitStack() as stack:
        writer = stack.enter_context(Writer(out, LogConfig(), stream=done.stream))
        beside: Writer | None = None
        while batch := list(islice(items, _BATCH)):
            signed = [item for item in batch if item.proof is not None]
            if signed:
                beside = beside or stack.enter_context(Writer(out / FOLDER, LogConfig(), stream=done.stream))
                keys.update(dict.fromkeys(line for item in signed for line in item.roots.split()))
                write_keys(out / FOLDER, "".join(f"{line}\n" for line in keys))
                beside.append([item.proof for item in batch if item.proof is not None])
            writer.append(_in_order(batch, writer.last_an))
            done.gaps += sum(isinstance(item.entry, Gap) for item in batch)
            done.packets += sum(isinstance(item.entry, Packet) for item in batch)
            done.signed += len(signed)


def _in_order(batch: Sequence[_Item], reached: int) -> Iterator[Entry]:
    """A packet that lies in a gap before it came late."""
    for _, entry, *_ in batch:
        if isinstance(entry, Gap):
            reached = max(reached, entry.until)
            yield entry
        elif entry.an <= reached:
            yield Late(*entry)
        else:
            reached = entry.an
            yield entry
