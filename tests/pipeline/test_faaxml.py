"""The FAA's XML formats: one message a packet, nothing in it changed."""

from __future__ import annotations

import json
import shutil

import pytest
from lxml import etree

from pipeline.archive.jobs import read, verify
from pipeline.archive.manifest import Archive
from pipeline.cli import main
from pipeline.ingest.faaxml import MAX_PACKET_BYTES, split
from pipeline.replay import iterate
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
    done = ingest_xml(spark, [str(raw)], tmp_path / "a", stream="tfms")
    assert (done.packets, done.quarantined, done.last_an) == (4, {"no-xml": 1}, 4)
    assert ingest_xml(spark, [str(raw)], tmp_path / "a", stream="tfms").unchanged
    rows = read(spark, Archive(tmp_path / "a")).orderBy("an").collect()
    assert [row.an for row in rows] == [0, 1, 3, 4]
    assert [bytes(row.xml) for row in rows[:2]] == [message.payload for message in split(TFMS)]
    assert verify(spark, Archive(tmp_path / "a")).problems == []


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
