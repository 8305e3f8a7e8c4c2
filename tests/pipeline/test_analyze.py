"""The analyses: pure functions from frame to frame, each against a hand-made answer."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pyarrow as pa
import pytest
import zstandard

from asdi.flights import Feed
from pipeline.analyze import fleet
from pipeline.analyze.bandwidth import bandwidth, compress_window
from pipeline.analyze.matcher import compile_queries, read_queries
from pipeline.analyze.meshtrace import first_copies, mesh, read_traces, relate
from pipeline.analyze.selectivity import PARTIAL, partial, selectivity, tally
from pipeline.archive.dictionary import train, train_dictionary
from pipeline.archive.jobs import read
from pipeline.archive.manifest import Archive, Job
from pipeline.archive.parts import read_rows
from pipeline.archive.scan import batches, pieces
from pipeline.archive.schema import PACKETS
from pipeline.replay import iterate, iterate_with_spark, ranges, sorted_range
from pipeline.session import PipelineError
from tests.asdi.lines import GOLDEN


def great_circle_miles(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """What Spark is to find, in plain Python."""
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * 3440.065 * math.asin(math.sqrt(half))


spark_test = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore"),
]  # fmt: skip


def with_spark(test):
    for mark in spark_test:
        test = mark(test)
    return test


PAPER = [
    "/flight",
    "/flight/flightleg/altitude > 300",
    "starts-with(string(/flight/id),'TWA')",
    "substring-before(string(/flight/flightleg/coordinate/lat),'N') > 2327",
]


# --- without Spark ---
def test_matcher_takes_the_papers_queries():
    match = compile_queries(PAPER)
    packet = GOLDEN["153014022245CCZVTZ UAL1021 512 290 4928N/12003W"].encode()
    assert match(packet) == 0b1001
    assert match(packet.replace(b">290<", b">310<").replace(b"UAL", b"TWA")) == 0b1111
    assert match(b"no XML at all") == 0
    assert match(b'<!DOCTYPE x [<!ENTITY e "boom">]><flight>&e;</flight>') in (0, 1)


def test_a_bad_query_is_named():
    with pytest.raises(PipelineError, match=r"query 2 is not valid XPath .*/flight\["):
        compile_queries(["/flight", "/flight["])


def test_read_queries():
    assert read_queries("# mine\n/a\n\n  /b  \n") == ["/a", "/b"]


def test_dictionary_does_what_it_is_for():
    """A packet alone hardly shrinks; with the dictionary it comes near the whole stream."""
    packets = [packet.payload for packet in Feed(copies=3).packets(1_794_830_400, 1_794_830_400 + 1800)]
    dictionary, reached = train(packets)
    assert train(packets)[0] == dictionary
    assert reached["ratio_alone"] < 2
    assert reached["ratio_dictionary"] > 2.5 * reached["ratio_alone"]
    taught = zstandard.ZstdCompressionDict(dictionary)
    compressed = zstandard.ZstdCompressor(dict_data=taught).compress(packets[0])
    assert zstandard.ZstdDecompressor(dict_data=taught).decompress(compressed) == packets[0]
    with pytest.raises(PipelineError, match="too few"):
        train(packets[:10])


def test_window_sizes_are_of_the_paper():
    """XML is about four times the raw text, and compresses far better than it."""
    lines = list(Feed(copies=5).lines(1_794_830_400, 1_794_830_400 + 300))
    packets = [packet.payload for packet in Feed(copies=5).packets(1_794_830_400, 1_794_830_400 + 300)]
    sizes = compress_window([line.text for line in lines], packets, None)
    assert 3.5 < sizes["xml"] / sizes["raw"] < 8
    assert sizes["xml"] / sizes["xml_compressed"] > 8
    assert sizes["raw"] / sizes["raw_compressed"] > 2
    assert sizes["xml_packet"] == sizes["xml_dictionary"] > sizes["xml_compressed"]


def test_degrees():
    assert fleet.degrees("4928N") == pytest.approx(49.4667, abs=1e-3)
    assert fleet.degrees("12003W") == pytest.approx(-120.05)
    assert fleet.degrees("492830S") == pytest.approx(-49.475)


# --- with Spark ---
def row(spark_row):
    return tuple(spark_row)


def packets_frame(spark, lines, start=1_794_830_400, step=30):
    import asdi

    rows = []
    for number, line in enumerate(lines):
        message = asdi.parse(line)
        time = datetime.fromtimestamp(start + number * step, UTC).replace(tzinfo=None)
        rows.append(
            (1000 + number, time, message.type, message.facility, message.flight, message.sequence, line,
             asdi.to_xml(message), None, 0, "asdi", "2026-11-16", 12)
        )  # fmt: skip
    return spark.createDataFrame(rows, PACKETS)


def small_archive(path, lines, seconds=10):
    """Lines of ASDI as an archive, an hour's file each; ANs from 0."""
    import asdi
    from pipeline.archive.parts import PartWriter, partition_of
    from pipeline.archive.schema import checksum

    archive = Archive(path)
    with archive.staging("test") as staging:
        files = []
        for an, line in enumerate(lines):
            message = asdi.parse(line)
            xml = asdi.to_xml(message)
            time = 1_794_830_400 + an * seconds
            row = (an, time * 1_000_000, message.type, None, None, None, line, xml, None, checksum(an, xml))
            writer = PartWriter(staging, f"{an}")
            writer.write(partition_of("packets", "asdi", time), [[value] for value in row])
            files += writer.finish()
        job = Job("test", "test", "asdi", 0, len(lines) - 1, True)
        archive.commit(job, [(staging / file.path, file) for file in files])
    return archive


def interleaved_archive(path, count):
    """Two files of one hour, even and odd ANs: what two recorders of one stream leave."""
    from pipeline.archive.parts import PartWriter, partition_of
    from pipeline.archive.schema import checksum

    archive = Archive(path)
    time = 1_794_830_400
    with archive.staging("test") as staging:
        files = []
        for first in (0, 1):
            rows = [
                (an, time * 1_000_000, "HB", None, None, None, None, b"<a/>", None, checksum(an, b"<a/>"))
                for an in range(first, count, 2)
            ]
            writer = PartWriter(staging, f"{first}")
            for at in range(0, len(rows), 10):  # a row group each
                writer.write(partition_of("packets", "asdi", time), list(zip(*rows[at : at + 10], strict=True)))
            files += writer.finish()
        archive.commit(Job("test", "test", "asdi", 0, count - 1, True), [(staging / file.path, file) for file in files])
    return archive


def test_ranges_of_files_that_interleave_give_every_packet_once_and_in_order(tmp_path):
    archive = interleaved_archive(tmp_path, 101)
    files = archive.manifest().select()
    work = ranges(archive, files, None, None, rows=30)
    assert [piece.ans for piece in work] == [(0, 25), (25, 50), (50, 75), (75, 101)]
    found = [
        batch.column("an").to_pylist()
        for piece in work
        for row in sorted_range(piece)
        for batch in pa.ipc.open_stream(row.column(0)[0].as_py())
    ]
    assert [an for part in found for an in part] == list(range(101)) == [packet.an for packet in iterate(tmp_path)]
    # Row groups that can't have a wanted AN are not even read.
    assert sum(batch.num_rows for batch in read_rows(work[0].files, ["an"], (0, 5))) == 20


@with_spark
def test_selectivity(spark, tmp_path):
    from pyspark.testing import assertDataFrameEqual

    archive = small_archive(
        tmp_path,
        [
            "000016120000KZBWTZ TWA1 512 290 4928N/12003W",
            "000116120010KZBWTZ UAL2 512 310 4928N/12003W",
            "000216120020ETMSHB",
            "000316120030KZBWTZ TWA3 512 350 1028N/12003W",
        ],
    )
    sizes = [len(packet.payload) for packet in iterate(tmp_path)]
    (whole,) = pieces(archive)
    assert len(whole.files) == 4
    each = [whole._replace(files=(file,)) for file in whole.files]
    found = selectivity(partial(spark, each, PAPER))
    flights = sizes[0] + sizes[1] + sizes[3]
    expected = spark.createDataFrame(
        [
            (0, 3, 0.75, flights, flights / 30, 1.0),
            (1, 2, 0.5, sizes[1] + sizes[3], (sizes[1] + sizes[3]) / 30, 1.0),
            (2, 2, 0.5, sizes[0] + sizes[3], (sizes[0] + sizes[3]) / 30, 1.0),
            (3, 2, 0.5, sizes[0] + sizes[1], (sizes[0] + sizes[1]) / 30, 1.0),
            (-1, 3, 0.75, flights, flights / 30, 0.0),
        ],
        found.schema,
    )
    assertDataFrameEqual(found, expected)
    # One process, one piece: the same counts.
    alone = spark.createDataFrame(tally([whole], PAPER).to_pylist(), PARTIAL)
    assertDataFrameEqual(selectivity(alone), expected)
    # A part of the time.
    later = pieces(archive, from_us=1_794_830_410_000_000, to_us=1_794_830_430_000_000)
    matches = {row.query: (row.matches, row.rate) for row in selectivity(partial(spark, later, PAPER)).collect()}
    assert matches[0] == (1, 0.5)
    assert matches[2] == (0, 0.0)


@with_spark
def test_large_files_are_cut_into_pieces_that_have_every_packet_once(archive_path, monkeypatch):
    archive = Archive(archive_path)
    whole = [an for piece in pieces(archive) for batch in batches(piece) for an in batch.column("an").to_pylist()]
    monkeypatch.setattr("pipeline.archive.scan._LEAST_ROWS", 100)
    monkeypatch.setattr("pipeline.archive.scan.PIECE_ROWS", 250)
    small = pieces(archive)
    found = [[an for batch in batches(piece) for an in batch.column("an").to_pylist()] for piece in small]
    assert sorted(an for piece in found for an in piece) == sorted(whole)
    assert len(small) > len(archive.manifest().files)


@with_spark
def test_bandwidth(spark, archive_path):
    from pyspark.testing import assertDataFrameEqual

    packets = read(spark, Archive(archive_path), to_us=1_796_083_200_000_000 - 3_000_000_000)
    rows = bandwidth(packets).orderBy("window").collect()
    assert [row.window.minute for row in rows] == [0, 5]
    assert sum(row.packets for row in rows) == packets.count()
    assert all(row.xml > 3 * row.raw and row.xml_compressed < row.xml / 5 for row in rows)
    assertDataFrameEqual(bandwidth(packets.repartition(3)), bandwidth(packets))


@with_spark
def test_fleet(spark):
    from pyspark.testing import assertDataFrameEqual

    lines = [
        "FFFE16120000KZNYFZ AAL1 B738/L 0450 KJFK P1200 350 KJFK..KBOS/0100",
        "FFFF16120030KZNYDZ AAL1 B738/L KJFK D1230 KBOS 1330",
        "000016120100KZNYTZ AAL1 250 010 4038N/07346W",
        "000116120200KZBWTZ AAL1 450 200 4138N/07246W",
        "000516120230KZBWTZ AAL1 450 200 4222N/07100W",
        "000616120300KZNYDZ AAL2 B738/L KJFK D1300 KBOS 1330",
    ]
    frame = packets_frame(spark, lines)
    known = fleet.facts(frame)
    columns = "departure string, destination string, departures long"
    assertDataFrameEqual(fleet.routes(known), spark.createDataFrame([("KJFK", "KBOS", 2)], columns))
    legs = fleet.distances(known).collect()
    assert [(leg.flight, leg.tracks) for leg in legs] == [("AAL1", 3)]
    miles = great_circle_miles(40 + 38 / 60, -73 - 46 / 60, 41 + 38 / 60, -72 - 46 / 60)
    miles += great_circle_miles(41 + 38 / 60, -72 - 46 / 60, 42 + 22 / 60, -71)
    assert legs[0].miles == pytest.approx(miles, rel=1e-6)
    late = fleet.delays(known).collect()
    assert [(r.departure, r.departures, r.mean, r.over_15) for r in late] == [("KJFK", 1, 30.0, 1.0)]
    assert {(r.type, r.messages) for r in fleet.mix(frame).collect()} == {("FZ", 1), ("DZ", 2), ("TZ", 3)}
    assert {(r.facility, r.flights) for r in fleet.facilities(frame).collect()} == {("KZNY", 2), ("KZBW", 1)}
    # Three numbers were skipped before AN 1004; over FFFF -> 0000 nothing was.
    assert [(g.after, g.until, g.missed) for g in fleet.gaps(frame).collect()] == [(1003, 1004, 3)]


@with_spark
def test_gaps_are_seen_over_the_ends_of_hours(spark, archive_path):
    whole = read(spark, Archive(archive_path))
    assert fleet.gaps(whole).count() == 0
    cut = whole.where("not (minute(time) between 58 and 59 and date = '2026-11-30')")
    found = fleet.gaps(cut).collect()
    assert len(found) == 1
    assert found[0].missed == whole.count() - cut.count() > 0
    assert found[0].seconds >= 120


@with_spark
def test_mesh_and_relate(spark, tmp_path):
    import json

    events = [{"event": "deliver", "latency_ms": float(n + 1), "an": n} for n in range(8)]
    events += [{"event": "gap", "after": 8, "until": 10}, {"event": "nack"}, {"event": "duplicate"}]
    events += [{"event": "stall", "seconds": 0.5}, {"event": "repair", "seconds": 2.0}]
    events += [
        {"event": "copies", "parent": parent, "first": first, "count": 8} for parent, first in (("p", 6), ("q", 2))
    ]
    where = {"time": 1.0, "peer": "a", "protocol": "dcp", "level": 1, "parents": 2}
    lines = [json.dumps(where | event) for event in events]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines) + '\n{"torn": ')
    traces = read_traces(spark, [str(tmp_path / "trace.jsonl")])
    for by, value in (("peer", "a"), ("level", 1), ("parents", 2)):
        (found,) = mesh(traces, by).collect()
        assert found[by] == value
        assert (found.delivered, found.lost, found.loss) == (8, 2, 0.2)
        assert (found.duplicates, found.nacks, found.stalls, found.stalled_s, found.repairs) == (1, 1, 1, 0.5, 1)
        assert (found.latency_p50, found.repair_p50) == (4.5, 2.0)
        assert found.relate2 == pytest.approx(4.5 * (20 + 1))
    shares = {row.parent: (row.first, row.copies, row.share) for row in first_copies(traces).collect()}
    assert shares == {"p": (6, 8, 0.75), "q": (2, 8, 0.25)}
    (metric,) = relate(traces).collect()
    assert (metric.received, metric.sent, metric.latency_ms) == (8, 10, 4.5)
    assert metric.relate == pytest.approx(4.5 / 0.8)
    assert metric.relate2 == pytest.approx(4.5 * (20 + 1))


@with_spark
def test_replay_is_the_archive_in_order(spark, archive_path):
    expected = sorted((r.an, bytes(r.xml)) for r in read(spark, Archive(archive_path)).collect())
    packets = list(iterate(archive_path))
    assert [(p.an, p.payload) for p in packets] == expected
    half = 1_796_083_200.0
    assert [p for p in packets if p.time >= half] == list(iterate(archive_path, half))
    assert [p for p in packets if half - 60 <= p.time < half + 60] == list(
        iterate_with_spark(spark, archive_path, half - 60, half + 60)
    )


@with_spark
def test_train_dictionary(spark, archive_path, tmp_path):
    first = train_dictionary(spark, Archive(archive_path), tmp_path, stream="asdi")
    again = train_dictionary(spark, Archive(archive_path), tmp_path, stream="asdi")
    assert first == again
    assert first.version == 1
    assert (tmp_path / "asdi-1.zdict").stat().st_size == first.bytes
    assert first.ratio_dictionary > 2.5 * first.ratio_alone
    with pytest.raises(PipelineError, match="no packets of the stream 'other'"):
        train_dictionary(spark, Archive(archive_path), tmp_path, stream="other")
