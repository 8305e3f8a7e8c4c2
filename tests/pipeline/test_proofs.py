"""Signatures in archives: kept from the recording on, verified with the owner's key alone, and given back."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import asdi
from asdi.flights import Feed
from asdi.origin import with_origin
from dht.identity import Identity
from peer.feeds.stamp import stamp
from peer.packetlog import Gap, Late, LogConfig, Packet, Reader, Writer
from peer.trust.proofs import FOLDER, Finding
from peer.trust.recording import ProofWriter, verify_recording
from pipeline.archive.export import export
from pipeline.archive.jobs import compact, retain, verify
from pipeline.archive.manifest import Archive
from pipeline.archive.proofs import verify_proofs
from pipeline.archive.schema import checksum
from pipeline.cli import main
from tests.peer.trust.test_recordings import OTHER, OWNER, ROOT, keys, signed
from tests.pipeline.conftest import NOON, record_once

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore"),
]

PACKETS = 60


def write_recording(folder: Path, *, are_signed: bool = True) -> None:
    """As `skymesh record`: packets with lines and stamps, over an hour's end; two roots; a gap, one of it late."""
    lines = list(Feed().lines(NOON + 3_590, NOON + 3_620))[:PACKETS]
    contents = [
        stamp(with_origin(asdi.to_xml(asdi.parse(line.text)), line.time, line.text.encode()), line.time + 0.25)
        for line in lines
    ]
    half = PACKETS // 2
    envelopes = dict(signed(contents[:half], by=ROOT, first=101))
    envelopes |= dict(signed(contents[half:], by=OTHER, first=101 + half, compress="zlib"))
    proofs = ProofWriter(folder, LogConfig(), "asdi")
    missing = {110, 111, 112}
    with Writer(folder, LogConfig(), stream="asdi") as writer:
        for place in range(0, PACKETS, 10):
            now = NOON + 3_600 + place
            entries = []
            for an in range(101 + place, 111 + place):
                if are_signed:
                    proofs.keep(an, envelopes[an])
                if an not in missing:
                    entries.append(Packet(an, now * 1_000_000, contents[an - 101]))
                if an == 113:
                    entries.insert(-1, Gap(109, 112, now * 1_000_000))
                if an == 125:
                    entries.append(Late(111, now * 1_000_000, contents[10]))
            proofs.flush(proofs.take(), keys(ROOT, OTHER), now)
            writer.append(entries)
    proofs.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    write_recording(folder)
    return folder


@pytest.fixture(scope="module")
def archive_of_it(spark, recording, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("archive")
    record_once(spark, {"log": str(recording), "maxRecords": "25"}, out / "a", out / "checkpoint")
    return out / "a"


@pytest.fixture
def archive(archive_of_it, tmp_path) -> Archive:
    shutil.copytree(archive_of_it, tmp_path / "a")
    return Archive(tmp_path / "a")


def entries_of(log: Path) -> list[tuple]:
    return [(type(entry).__name__, *entry) for _, entry in Reader(log, durable=False).iterate()]


def proofs_of(log: Path) -> dict[int, bytes]:
    return {entry.an: entry.payload for _, entry in Reader(log / FOLDER, durable=False).iterate()}


def test_a_recording_an_archive_and_a_recording_again(recording, archive, tmp_path):
    """Signatures, bytes, gaps and times of receipt, whatever the archive did with its files in between."""
    pytest.importorskip("deltalake")
    archive.write_delta()
    assert len(archive.manifest().select("proofs")) > 2
    assert compact(None, archive) > 0
    assert len(archive.manifest().select("proofs")) == 2  # of two hours
    assert verify(None, archive).problems == []  # a late packet, within a gap, was called a repeat
    found = verify_proofs(None, archive, OWNER.peer_id)
    assert (found.packets, found.signed, found.findings, found.problems) == (PACKETS - 2, PACKETS - 2, {}, [])
    done = export(archive, tmp_path / "again")
    assert (done.packets, done.signed, done.gaps, done.stream) == (PACKETS - 2, PACKETS - 2, 1, "asdi")
    again, first = entries_of(tmp_path / "again"), entries_of(recording)
    assert sorted(again) == sorted(first)
    assert [entry for entry in again if entry[0] != "Late"] == [entry for entry in first if entry[0] != "Late"]
    kept = proofs_of(recording)
    assert proofs_of(tmp_path / "again") == {an: proof for an, proof in kept.items() if an not in {110, 112}}
    assert {each for _, _, each in verify_recording(tmp_path / "again", OWNER.peer_id)} == {Finding.SIGNED}


def test_retention_takes_proofs_along_and_a_part_can_be_exported(archive, tmp_path):
    done = export(archive, tmp_path / "part", from_us=(NOON + 3_600) * 1_000_000)
    assert 0 < done.packets == done.signed < PACKETS - 2
    retain(archive, date(2026, 11, 17))
    assert archive.manifest().files == ()


def change(archive: Archive, dataset: str, edit) -> None:
    """A tamperer with all of the archive in hand: one row of a file, written again."""
    file = archive.path / archive.manifest().select(dataset)[0].path
    table = pq.ParquetFile(file).read()
    rows = table.to_pylist()
    rows = edit(rows) or rows
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)


def forge_packet(rows):
    rows[3]["xml"] = rows[3]["xml"].replace(b"<speed", b"<sp33d")
    rows[3]["crc"] = checksum(rows[3]["an"], rows[3]["xml"])


def move_packet(rows):
    for row in rows:  # a free number, and the checksum that goes with it
        if row["an"] == 104:
            row["an"] = 100
            row["crc"] = checksum(100, row["xml"])
    return sorted(rows, key=lambda row: row["an"])


def change_line(rows):
    rows[3]["raw"] = rows[3]["raw"].replace("Z", "Y", 1)


def change_flight(rows):
    rows[3]["flight"] = "XXX1"


def drop_proof(rows):
    return [row for row in rows if row["an"] != 104]


def swap_proofs(rows):
    rows[3]["proof"], rows[4]["proof"] = rows[4]["proof"], rows[3]["proof"]


def damage_keys(rows):
    rows[3]["roots"] = "!"


def other_stream(rows):
    rows[3]["signed_as"] = "\xe9"


@pytest.mark.parametrize(
    ("dataset", "edit", "finding"),
    [
        ("packets", forge_packet, "AN 104 .*false"),
        ("packets", move_packet, "AN 100 .*unsigned"),
        ("packets", change_line, "AN 104 .*false"),
        ("packets", change_flight, "AN 104 .*false"),
        ("proofs", drop_proof, "AN 104 .*unsigned"),
        ("proofs", swap_proofs, "AN 104 .*false"),
        ("proofs", damage_keys, "AN 104 .*unknown key"),
        ("proofs", other_stream, "AN 104 .*unknown key"),
    ],
)
def test_what_was_changed_is_named(archive, dataset, edit, finding):
    compact(None, archive)
    change(archive, dataset, edit)
    found = verify_proofs(None, archive, OWNER.peer_id)
    assert found.signed < found.packets == PACKETS - 2
    assert len(found.problems) <= 2
    assert re.match(finding, found.problems[0])


def test_another_owner_s_key_proves_nothing(archive):
    found = verify_proofs(None, archive, Identity.from_seed(bytes(32)).peer_id)
    assert (found.signed, found.findings) == (0, {"unknown key": PACKETS - 2})


def test_an_unsigned_recording_costs_nothing_and_proves_nothing(spark, tmp_path):
    write_recording(tmp_path / "log", are_signed=False)
    record_once(spark, {"log": str(tmp_path / "log")}, tmp_path / "a", tmp_path / "checkpoint")
    archive = Archive(tmp_path / "a")
    assert archive.manifest().select("proofs") == []
    assert not (archive.path / "proofs").exists()
    assert verify_proofs(None, archive, OWNER.peer_id).findings == {"unsigned": PACKETS - 2}
    assert export(archive, tmp_path / "again").signed == 0
    assert not (tmp_path / "again" / FOLDER).exists()


def test_the_commands(archive, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pipeline.command.session", lambda *args, **options: None)
    monkeypatch.setattr("pipeline.tasks.shown", lambda *args: contextlib.nullcontext())
    assert main(["verify", str(archive.path), "--owner", OWNER.fingerprint, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["signatures"]["signed"] == said["signatures"]["packets"] == PACKETS - 2
    assert main(["verify", str(archive.path), "--owner", OTHER.fingerprint]) == 1
    assert main(["verify", str(archive.path), "--owner", "nonsense"]) == 3
    assert main(["export", str(archive.path), "--stream", "none", "--out", str(tmp_path / "out")]) == 3
    assert main(["export", str(archive.path), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert main(["export", str(archive.path), "--out", str(tmp_path / "out")]) == 3
    assert "not empty" in capsys.readouterr().err
