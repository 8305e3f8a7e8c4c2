"""An hour recorded from the mesh and the same hour's text ingested: the same rows, and so the same analyses."""

from __future__ import annotations

import json

import pytest

from asdi.flights import Feed
from asdi.origin import with_origin
from pipeline.archive.jobs import verify
from pipeline.archive.manifest import Archive
from pipeline.archive.packet import packet_row
from pipeline.cli import main
from pipeline.ingest.text import ingest
from tests.asdi.lines import GOLDEN
from tests.peer.cli.command import LOCAL, PATIENCE, call, root
from tests.pipeline.conftest import NOON, record_once
from tests.pipeline.test_identity import DAY, content

pytestmark = [
    pytest.mark.net,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore"),
]


def test_an_hour_recorded_is_the_hour_ingested(spark, tmp_path, capsys):
    """`analyze fleet` printed 0.0 miles for a recorded archive, and exit code 0."""
    text = tmp_path / "asdi.txt"
    lines = [f"{line.text} \r\n" for line in Feed().lines(NOON, NOON + 3600)]
    text.write_bytes("".join(lines).encode())
    with root("--feed", f"asdi:{text}", "--lines", "--date", str(DAY), "--rate", "0") as (_, address):
        done = call(
            "record", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--from", "oldest",
            "--count", str(len(lines)), "--timeout", str(PATIENCE), "--out", str(tmp_path / "log"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    live, batch = tmp_path / "live", tmp_path / "batch"
    record_once(spark, {"log": str(tmp_path / "log")}, live, tmp_path / "checkpoint")
    ingest(spark, [str(text)], batch, day=DAY)
    assert content(live) == content(batch)
    assert verify(spark, Archive(live)).problems == []
    for what in ("fleet", "bandwidth"):
        answers = []
        for archive in (live, batch):
            assert main(["analyze", what, str(archive), "--json"]) == 0
            answers.append(json.loads(capsys.readouterr().out))
        assert answers[0] == answers[1]
        assert what != "fleet" or answers[0]["totals"][0]["miles"] > 1_000


def test_an_analysis_without_its_lines_says_so(spark, tmp_path, capsys):
    from peer.packetlog import Packet, Writer

    with Writer(tmp_path / "log") as writer:
        writer.append([Packet(p.an, p.time * 1_000_000, p.payload) for p in Feed().packets(NOON, NOON + 60)])
    record_once(spark, {"log": str(tmp_path / "log")}, tmp_path / "a", tmp_path / "checkpoint")
    assert main(["analyze", "fleet", str(tmp_path / "a")]) == 1
    assert "packets have no line of ASDI text" in capsys.readouterr().err
    assert main(["analyze", "bandwidth", str(tmp_path / "a"), "--to", "2001-01-01"]) == 1
    assert "has no packets of this stream and time" in capsys.readouterr().err


def test_a_line_that_is_not_the_packets_own_is_not_believed():
    line, xml = next((line, xml.encode()) for line, xml in GOLDEN.items() if line[16:18] == "TZ")
    other = line.replace("UAL", "AAL")
    day, second = int(line[4:6]), int(line[6:8]) * 3600 + int(line[8:10]) * 60 + int(line[10:12])
    then = 1_793_491_200 + (day - 1) * 86_400 + second  # November 2026
    good = packet_row(7, 1, with_origin(xml, then, line.encode()))
    assert good[1:8] == (then * 1_000_000, "TZ", line[12:16], "UAL1021", int(line[:4], 16), line, xml)
    for payload in (with_origin(xml, then, other.encode()), with_origin(xml, then + 1, line.encode())):
        assert packet_row(7, 1, payload)[1:8] == (1, "TZ", None, "UAL1021", None, None, xml)
