"""The FAA's XML formats: one message a packet, nothing in it changed."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil

import pytest
import zstandard
from lxml import etree

from pipeline.archive.jobs import read, verify
from pipeline.archive.manifest import Archive
from pipeline.cli import main
from pipeline.ingest.faaxml import MAX_PACKET_BYTES, split
from pipeline.ingest.xml import ingest_xml
from pipeline.replay import iterate
from pipeline.session import PipelineError
from tests.pipeline.conftest import SHARED

TFMS = b"""<ds:tfmDataService xmlns:ds="urn:ds" xmlns:fdm="urn:fdm" xmlns:nxce="urn:e"><fltdOutput>
  <fdm:fltdMessage msgType="trackInformation" sourceFacility="KZID" sourceTimeStamp="2016-01-28T22:53:37Z">
    <nxce:aircraftId>LOF3414</nxce:aircraftId></fdm:fltdMessage>
  <fdm:fltdMessage msgType="departureInformation" sourceFacility="KZNY" sourceTimeStamp="2016-01-28T22:53:38Z">
    <nxce:aircraftId>AAL1</nxce:aircraftId></fdm:fltdMessage>
</fltdOutput></ds:tfmDataService>"""
REAL = SHARED / "tfm-xml"


def test_each_message_is_a_packet_with_its_surroundings():
    first, second = split(TFMS)
    assert (first.type, first.flight, first.facility) == ("trackInformation", "LOF3414", "KZID")
    assert (second.type, second.flight, second.facility) == ("departureInformation", "AAL1", "KZNY")
    assert second.time_us - first.time_us == 1_000_000
    names = {"ds": "urn:ds", "fdm": "urn:fdm", "e": "urn:e"}
    path = "/ds:tfmDataService/fltdOutput/fdm:fltdMessage/e:aircraftId/text()"
    assert etree.fromstring(first.payload).xpath(path, namespaces=names) == ["LOF3414"]
    inner = etree.fromstring(TFMS).find(".//{urn:fdm}fltdMessage")
    assert etree.tostring(
        etree.fromstring(first.payload).find(".//{urn:fdm}fltdMessage"), method="c14n"
    ) == etree.tostring(inner, method="c14n", with_tail=False)


def test_documents_a_line():
    line = TFMS.replace(b"\n", b" ")
    found = list(split(line + b"\n" + line + b"\n<broken>\n"))
    assert [message.problem is None for message in found] == [True] * 4 + [False]


def test_what_is_no_message_says_why():
    (bad,) = split(b"nothing")
    assert bad.problem.startswith("no XML")
    (large,) = split(b"<a>" + b"x" * MAX_PACKET_BYTES + b"</a>")
    assert "maximum" in large.problem
    (entity,) = split(b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>')
    assert b"root:" not in entity.payload


@pytest.mark.skipif(not REAL.exists(), reason="the real samples are not on this machine")
def test_real_samples():
    track = list(split((REAL / "race_tfmdata.xml").read_bytes()))
    assert len(track) >= 3
    assert all(message.problem is None and message.time_us and message.flight for message in track)
    collection = list(split((REAL / "race_MessageCollection.xml").read_bytes()))
    assert len(collection) > 5
    assert all(message.problem is None for message in collection)
    assert len(list(split((REAL / "race_sfdps-nasflight.xml").read_bytes()))) == 1


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_ingest(spark, tmp_path):
    from pipeline.ingest.xml import ingest_xml

    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "one.xml").write_bytes(TFMS)
    (raw / "two.xml").write_bytes(b"broken")
    shutil.copy(raw / "one.xml", raw / "zz.xml")
    done = ingest_xml(None, [str(raw)], tmp_path / "a", stream="tfms")
    assert (done.packets, done.quarantined, done.last_an, done.repeated) == (4, {"no-xml": 1}, 4, 2)
    assert ingest_xml(None, [str(raw)], tmp_path / "a", stream="tfms").unchanged
    rows = read(spark, Archive(tmp_path / "a")).orderBy("an").collect()
    assert [row.an for row in rows] == [0, 1]
    assert [bytes(row.xml) for row in rows[:2]] == [message.payload for message in split(TFMS)]
    assert verify(None, Archive(tmp_path / "a")).problems == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not REAL.exists(), reason="the real samples are not on this machine")
@pytest.mark.parametrize(
    ("form", "names"),
    [("tfms", ["race_tfmdata.xml"]), ("sfdps", ["race_MessageCollection.xml", "race_sfdps-nasflight.xml"])],
)
def test_real_samples_go_through_the_command(spark, tmp_path, capsys, form, names):
    files = [str(REAL / name) for name in names]
    assert main(["ingest", *files, "--out", str(tmp_path / "a"), "--format", form, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    expected = [message.payload for name in names for message in split((REAL / name).read_bytes())]
    assert (done["quarantined"], done["packets"]) == ({}, len(expected))
    assert [packet.payload for packet in iterate(tmp_path / "a", stream=form)] == expected


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_a_second_file_goes_on_where_the_first_ended_and_another_format_is_refused(spark, tmp_path):
    """Numbering began at 0 each time, so that the second file of a stream was refused as other content."""
    one, two, other = tmp_path / "one.xml", tmp_path / "two.xml", tmp_path / "tais.xml"
    one.write_bytes(TFMS)
    two.write_bytes(TFMS.replace(b"AAL1", b"AAL2").replace(b"LOF3414", b"LOF1"))
    other.write_bytes(b"<TATrackAndFlightPlan/>")
    out = tmp_path / "a"
    first = ingest_xml(None, [str(one)], out, stream="tfms", kind="tfms")
    second = ingest_xml(None, [str(two)], out, stream="tfms", kind="tfms")
    assert [(done.first_an, done.last_an) for done in (first, second)] == [(0, 1), (2, 3)]
    assert ingest_xml(None, [str(one)], out, stream="tfms", kind="tfms").unchanged
    assert verify(None, Archive(out)).problems == []
    with pytest.raises(Exception, match=r"tais\.xml is not SFDPS: its root element is TATrackAndFlightPlan"):
        ingest_xml(None, [str(other)], out, stream="sfdps", kind="sfdps")


def test_compressed_xml_is_read_and_a_bomb_is_refused(tmp_path, monkeypatch):
    """bzip2 and xz went to the quarantine as bytes that are no XML; a small gzip file could fill the memory."""
    packed = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
    for number, (name, pack) in enumerate(packed.items()):
        content = TFMS.replace(b"AAL1", b"AAL%d" % (number + 2))
        (tmp_path / f"{name}.xml.{name}").write_bytes(pack(content))
        done = ingest_xml(None, [str(tmp_path / f"{name}.xml.{name}")], tmp_path / "a", stream="tfms", kind="tfms")
        assert done.quarantined == {}
        assert [(each.lines, each.packets, each.quarantined) for each in done.inputs] == [(2, 2, 0)]
    monkeypatch.setattr("pipeline.ingest.xml.MAX_FILE_BYTES", 100_000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"<a>" + b" " * 1_000_000 + b"</a>"))
    with pytest.raises(PipelineError, match="more than 100,000 bytes of XML"):
        ingest_xml(None, [str(tmp_path / "bomb.gz")], tmp_path / "a", stream="tfms")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TFMS)[:-12])
    with pytest.raises(PipelineError, match="cannot read"):
        ingest_xml(None, [str(tmp_path / "cut.gz")], tmp_path / "a", stream="tfms")
