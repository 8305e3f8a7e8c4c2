"""Cutting raw files into pieces: every line once, whatever the cuts and the compression."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from datetime import UTC, date, datetime

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.ingest.inputs import (
    Chunk,
    chunk_bytes_for,
    cut,
    digest,
    expand,
    leaves,
    opener_of,
    pack,
    reference_date,
    texts,
)  # fmt: skip
from pipeline.session import PipelineError


def lines_of(chunks):
    return [line for chunk in chunks for text in texts(chunk) for line in text.split(b"\n")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), max_size=40),
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
    plain, gz, zst, bz, xz, cr = (tmp_path / name for name in "abcdef")
    plain.write_bytes(content)
    gz.write_bytes(gzip.compress(content[:20_000]) + gzip.compress(content[20_000:]))
    compressor = zstandard.ZstdCompressor()
    zst.write_bytes(compressor.compress(content[:20_000]) + compressor.compress(content[20_000:]))
    bz.write_bytes(bz2.compress(content))
    xz.write_bytes(lzma.compress(content))
    cr.write_bytes(content.replace(b"\r\n", b"\r"))
    assert opener_of(plain) is None
    assert [line.rstrip(b"\r") for line in lines_of(cut([plain], 1000))] == lines_of(cut([cr], 1000))
    for path in (gz, zst, bz, xz):
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
    assert reference_date(path) == date(2001, 12, 31)
    other = tmp_path / "feed.txt"
    other.write_text("")
    assert reference_date(other) == datetime.now(UTC).date()


def test_digest_tells_inputs_apart_however_they_are_cut(tmp_path):
    def of(files, *parameters, size=1 << 30):
        chunks = cut(files, size)
        return digest(len(files), chunks, [leaves(chunk) for chunk in chunks], *parameters)

    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"one\n" * 900_000)
    b.write_text("two")
    assert len({of([a, b]), of([b, a]), of([a]), of([a, b], 1)}) == 4
    before = of([a, b])
    assert all(of([a, b], size=size) == before for size in (700_000, 1 << 20, 2_000_001))
    assert of([a.rename(tmp_path / "c"), b]) == before


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


@pytest.mark.parametrize(
    ("begin", "sentence"),
    [
        (b"PK\x03\x04rest", "is a zip file: unpack it first"),
        ("A line\n".encode("utf-16"), "is UTF-16: convert it first"),
    ],
)
def test_what_is_not_read_is_refused_with_what_to_do(tmp_path, begin, sentence):
    path = tmp_path / "file"
    path.write_bytes(begin)
    with pytest.raises(PipelineError, match=sentence):
        cut([path], 1_000)


def test_a_folder_means_everything_below_it_once(tmp_path):
    """2,005 lines in subfolders gave 5 packets and exit code 0."""
    (tmp_path / "day" / "hour").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    files = [tmp_path / "a.txt", tmp_path / "day" / "b.txt", tmp_path / "day" / "hour" / "c.txt"]
    for path in (*files, tmp_path / ".hidden" / "d.txt", tmp_path / "about.json"):
        path.write_text("x")
    assert expand([str(tmp_path), str(files[0])]) == files


def test_small_files_share_a_task_and_large_ones_do_not(tmp_path):
    sizes = [10, 10, 10, 500, 10, 80, 20]
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}").write_bytes(b"x" * size)
    chunks = cut([tmp_path / f"{number}" for number in range(len(sizes))], 100)
    packed = pack(chunks, 100)
    assert [number for group in packed for number in group] == list(range(len(chunks)))
    bytes_of = [sum(chunks[number].end - chunks[number].start for number in group) for group in packed]
    assert bytes_of == [30, 100, 100, 100, 100, 100, 90, 20]


def test_a_line_longer_than_a_piece_is_read_in_bounded_memory(tmp_path):
    """Each piece of a 1 GiB line read the rest of that line into memory."""
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(200 << 20)
    chunk = Chunk(str(path), 100 << 20, 101 << 20, 0)
    tracemalloc.start()
    try:
        assert list(texts(chunk)) == []
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
