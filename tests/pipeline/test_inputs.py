"""Cutting raw files into pieces: every line once, whatever the cuts and the compression."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.ingest.inputs import Chunk, blocks, chunk_bytes_for, cut, digest, expand, is_compressed, reference_date
from pipeline.session import PipelineError


def lines_of(chunks):
    return [line for chunk in chunks for block in blocks(chunk) for line in block]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=40),
    st.booleans(),
    st.integers(1, 50),
)
def test_every_line_once_whatever_the_cuts(tmp_path, lines, ended, size):
    path = tmp_path / "file"
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    path.write_bytes(b"x" + content)  # never by chance the magic of a compressed file
    expected = (b"x" + content).split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert lines_of(cut([path], size)) == expected


def test_compressed_files_are_read_whole(tmp_path):
    content = b"".join(b"line %d\r\n" % n for n in range(5000))
    plain, gz, zst = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    plain.write_bytes(content)
    gz.write_bytes(gzip.compress(content[:20_000]) + gzip.compress(content[20_000:]))
    compressor = zstandard.ZstdCompressor()
    zst.write_bytes(compressor.compress(content[:20_000]) + compressor.compress(content[20_000:]))
    assert [is_compressed(path) for path in (plain, gz, zst)] == [False, True, True]
    for path in (gz, zst):
        assert cut([path], 1 << 22) == [Chunk(str(path), 0, -1, 0)]
        assert lines_of(cut([path], 1 << 22)) == lines_of(cut([plain], 1000))


def test_a_broken_compressed_file_is_one_sentence(tmp_path):
    path = tmp_path / "broken.gz"
    path.write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    with pytest.raises(PipelineError, match=r"cannot read .*broken\.gz"):
        lines_of(cut([path], 1 << 22))


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "endless"
    path.write_bytes(b"x" * (9 << 20) + b"\nnext\n")
    lines = lines_of(cut([path], 1 << 22))
    assert lines[-1] == b"next"
    assert max(map(len, lines)) < 5 << 20


def test_expand(tmp_path):
    for name in ["b.txt", "a.txt", ".hidden", "generated.json"]:
        (tmp_path / name).write_text("x")
    assert [path.name for path in expand([str(tmp_path)])] == ["a.txt", "b.txt"]
    with pytest.raises(PipelineError, match="no file"):
        expand([str(tmp_path / "nothing")])


def test_reference_date(tmp_path):
    path = tmp_path / "asdi-20011231.txt"
    path.write_text("")
    assert reference_date(path, None) == date(2001, 12, 31)
    assert reference_date(path, date(1999, 1, 1)) == date(1999, 1, 1)
    other = tmp_path / "feed.txt"
    other.write_text("")
    assert reference_date(other, None) == datetime.now(UTC).date()


def test_digest_tells_inputs_apart(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("one")
    b.write_text("two")
    assert digest([a, b]) == digest([a, b])
    assert len({digest([a, b]), digest([b, a]), digest([a]), digest([a, b], 1)}) == 4


@pytest.mark.parametrize(
    ("sizes", "workers", "pieces"),
    [
        ([150 << 20], 2, 10),  # as few as may be, and as many for one worker as for the other
        ([40 << 20], 2, 8),
        ([40 << 20], 8, 20),
        ([100], 64, 1),
        ([75 << 20, 75 << 20], 2, 10),
    ],
)
def test_every_worker_has_as_many_pieces_as_the_next(tmp_path, sizes, workers, pieces):
    paths = []
    for number, size in enumerate(sizes):
        paths.append(tmp_path / f"{number}.txt")
        with paths[-1].open("wb") as file:
            file.truncate(size)
    assert len(cut(paths, chunk_bytes_for(paths, workers))) == pieces
