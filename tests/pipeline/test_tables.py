"""The typed tables: units, the same rows by every route, and equal to the packets by type."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import asdi
from asdi.flights import Feed
from pipeline.archive.jobs import compact, rebuild_tables, verify
from pipeline.archive.manifest import Archive
from pipeline.ingest.text import ingest
from pipeline.ingest.xml import ingest_xml
from pipeline.tables import units
from pipeline.tables.packets import rows_of_packet
from pipeline.tables.rows import rows_of
from pipeline.tables.schema import COLUMNS, TABLES, names
from pipeline.tables.views import duckdb_views, spark_views, to_pandas
from tests.asdi.lines import GOLDEN
from tests.pipeline.conftest import NOON, SHARED
from tests.pipeline.test_identity import DAY, LINES, write

REPOSITORY = Path(__file__).parents[2]


def table_rows(archive, table: str) -> list[dict]:
    found = []
    for file in Archive(archive).manifest().select(table):
        found += pq.read_table(Archive(archive).path / file.path, partitioning=None).to_pylist()
    return sorted(found, key=lambda row: (row["an"], row["flight"]))


def test_units():
    assert units.degrees("4928N") == pytest.approx(49.4667, abs=1e-3)
    assert units.degrees("12003W") == pytest.approx(-120.05)
    assert units.degrees("492830S") == pytest.approx(-49.475)
    assert units.degrees("nowhere") is None
    levels = ("290", "241C", "350T", "OTP/085", "ABV/060", "200B250", "VFR", "")
    assert [units.feet(text) for text in levels] == [29_000, 24_100, 35_000, 8_500, 6_000, 20_000, None, None]
    assert [units.speed(text) for text in ("512", "M081", "SC", "")] == [
        (512, None), (None, 0.81), (None, None), (None, None),
    ]  # fmt: skip
    assert [units.aircraft(text) for text in ("H/A332/W", "B738", "T/B190", "C172/U")] == [
        ("A332", "W"), ("B738", None), ("B190", None), ("C172", "U"),
    ]  # fmt: skip
    assert units.ends("MVY..FREDO..OWD/0040") == ("MVY", "OWD")
    assert units.ends("4238N/06659W..BOS") == (None, "BOS")
    assert units.ends("KJFK") == (None, None)


def test_a_clock_time_is_the_one_nearest_to_the_message():
    at = int(datetime(2026, 12, 31, 23, 50, tzinfo=UTC).timestamp())
    for text, day in (("P2350", 31), ("2200", 31), ("0010", 1), ("1200", 31), ("1149", 1), ("1151", 31)):
        found = datetime.fromtimestamp(units.moment(text, at) / 1e6, UTC)
        assert (found.strftime("%H%M"), found.day) == (text[-4:], day), text
    assert units.moment("", at) is None


def test_a_packet_alone_says_what_its_line_says():
    """But for the facility, which is only in the line."""
    for line, xml in GOLDEN.items():
        message = asdi.parse(line)
        expected = [(table, (*row[:4], None, *row[5:])) for table, row in rows_of(message, 7, NOON)]
        assert rows_of_packet(xml.encode(), 7, NOON, message.type, None, message.flight) == expected, line


def test_every_feed_line_too():
    for packet, line in zip(Feed().packets(NOON, NOON + 300), Feed().lines(NOON, NOON + 300), strict=True):
        message = asdi.parse(line.text)
        expected = [(table, (*row[:4], None, *row[5:])) for table, row in rows_of(message, 7, NOON)]
        assert rows_of_packet(packet.payload, 7, NOON, message.type, None, message.flight) == expected, line.text


def test_hostile_packets_have_no_rows():
    bad = [b"", b"<flight", b"<flight/>", b"<flight><id/><flightleg status='active'/></flight>",
           b"<flight><id>A</id><flightleg status='arrived'><time/></flightleg></flight>",
           b'<!DOCTYPE x [<!ENTITY e "boom">]><flight><id>&e;</id></flight>',
           b"<NasFlight><position positionTime='x'><pos>a b</pos></position></NasFlight>",
           b"<tfmDataService><latitudeDMS degrees='x'/><longitudeDMS degrees='1'/></tfmDataService>"]  # fmt: skip
    for xml in bad:
        for _, row in rows_of_packet(xml, 1, NOON, "trackInformation", None, "A"):
            assert all(value is None for value in row[6:])


def test_tables_equal_packets_by_type_whatever_came_twice(tmp_path):
    out = tmp_path / "a"
    for lines in (LINES[:400], LINES[200:900], LINES):
        ingest(None, [write(tmp_path / "f", lines)], out, day=DAY, chunk_bytes=30_000)
    kinds = Counter(asdi.parse(line).type for line in LINES if b"nonsense" not in line and b"***" not in line)
    found = Counter(row["type"] for table in TABLES[:4] for row in table_rows(out, table))
    assert found == {kind: number for kind, number in kinds.items() if kind != "HB"}
    result = verify(None, Archive(out))
    assert result.problems == []
    flights = {row["flight"] for table in TABLES[:4] for row in table_rows(out, table)}
    assert {row["flight"] for row in table_rows(out, "flights")} == flights
    # Compacted, and made again: the same rows; one row per flight and hour is left.
    before = {table: table_rows(out, table) for table in TABLES[:4]}
    compact(None, Archive(out))
    assert {table: table_rows(out, table) for table in TABLES[:4]} == before
    summary = table_rows(out, "flights")
    assert len(summary) == len({(row["flight"], row["time"].hour) for row in summary})
    assert sum(row["messages"] for row in summary) == sum(map(len, before.values()))
    rebuild_tables(None, Archive(out))
    compact(None, Archive(out))
    assert {table: table_rows(out, table) for table in TABLES[:4]} == before
    assert table_rows(out, "flights") == summary
    assert verify(None, Archive(out)).problems == []


def test_verify_sees_tables_that_differ(tmp_path):
    ingest(None, [write(tmp_path / "f", LINES)], tmp_path / "a", day=DAY)
    archive = Archive(tmp_path / "a")
    path = archive.path / archive.manifest().select("positions")[0].path
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(1), path)
    text = "\n".join(verify(None, archive).problems)
    assert "rows of typed tables" in text


@pytest.mark.skipif(not SHARED.exists(), reason="the real samples are not on this machine")
def test_real_faa_xml_becomes_rows(tmp_path):
    folder = SHARED / "tfm-xml"
    ingest_xml(None, [str(folder / "race_tfmdata.xml")], tmp_path / "a", stream="tfms", day=date(2016, 1, 28))
    ingest_xml(None, [str(folder / "race_sfdps-nasflight.xml")], tmp_path / "a", stream="sfdps")
    positions = {row["flight"]: row for row in table_rows(tmp_path / "a", "positions")}
    assert {"ASQ4201", "UAL1634"} <= set(positions)
    there = positions["UAL1634"]
    assert (there["latitude"], there["longitude"]) == (37.898333, -79.169722)
    assert (there["altitude_ft"], there["speed_kt"], there["facility"]) == (35_000, 488, "ZDC")
    plans = {row["flight"]: row for row in table_rows(tmp_path / "a", "plans")}
    amended = plans["LOF3414"]
    assert (amended["departure"], amended["destination"], amended["aircraft"]) == ("KIAD", "KCVG", "E45X")
    assert (amended["altitude_ft"], amended["speed_kt"], amended["fix"]) == (26_000, 447, "HVQ067064")
    assert amended["fix_time"] == datetime(2016, 1, 28, 23, 7, tzinfo=UTC)
    assert verify(None, Archive(tmp_path / "a")).problems == []


QUERIES = re.findall(r"```sql\n(.*?)```", (REPOSITORY / "docs" / "tables.md").read_text(), re.DOTALL)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_the_queries_of_the_page_say_the_same_in_duckdb_and_spark(spark, archive_path):
    duckdb = pytest.importorskip("duckdb")
    archive = Archive(archive_path)
    spark_views(spark, archive)
    with duckdb.connect(":memory:") as connection:
        connection.execute(duckdb_views(archive))
        assert len(QUERIES) == 6
        found = []
        for query in QUERIES:
            ours = [plain(row) for row in connection.execute(query).fetchall()]
            theirs = [plain(tuple(row)) for row in spark.sql(query).collect()]
            assert ours == theirs, query
            found.append(ours)
    assert [bool(rows) for rows in found] == [True, True, True, True, True, False]
    positions = to_pandas(archive, "positions")
    assert len(positions) == sum(row[2] for row in found[0])
    assert len(to_pandas(archive, "positions", to_us=1_796_083_200_000_000)) < len(positions)
    assert len(to_pandas(archive, "arrivals", stream="none")) == 0


def plain(row: tuple) -> tuple:
    """Numbers as floats, times as UTC without a zone, dates as text."""
    out = []
    for value in row:
        if isinstance(value, datetime):
            value = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        elif isinstance(value, date):
            value = value.isoformat()
        elif isinstance(value, int | float | Decimal):
            value = round(float(value), 6)
        out.append(value)
    return tuple(out)


def test_an_empty_table_is_a_view_too(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    ingest(None, [write(tmp_path / "it's", LINES[:1])], tmp_path / "it's an archive", day=DAY)
    with duckdb.connect(":memory:") as connection:
        connection.execute(duckdb_views(Archive(tmp_path / "it's an archive")))
        assert connection.execute("SELECT count(*), max(hour) FROM arrivals").fetchall() == [(0, None)]
        assert connection.execute("SELECT count(*) FROM packets").fetchall() == [(1,)]


def test_every_column_is_documented():
    page = (REPOSITORY / "docs" / "tables.md").read_text()
    for table in COLUMNS:
        part = page.partition(f"## {table}")[2].partition("\n## ")[0]
        assert [name for name in names(table) if f"`{name}`" not in part] == [], table
