"""Raw feed files, cut into pieces that tasks can read by themselves: plain text by ranges of bytes, the rest whole."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import zstandard

from pipeline.session import PipelineError

# A piece of input: seconds of work for a worker. Smaller ones cost tasks and files; larger ones leave a core idle in
# the end.
_LEAST_CHUNK_BYTES = 2 << 20
_MOST_CHUNK_BYTES = 16 << 20
_CHUNKS_A_WORKER = 4
_BLOCK_BYTES = 4 << 20
# A line this long is not a message. The rest of it is skipped, so that no file can fill the memory.
_MAX_LINE_BYTES = 64 << 10
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_DATED = re.compile(r"(?<!\d)(19\d\d|20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)")


class Chunk(NamedTuple):
    """A piece of one file: the lines that begin in [start, end). A compressed file is one piece, and `end` is -1."""

    path: str
    start: int
    end: int
    file: int
    """Which of the inputs it belongs to."""


def expand(paths: Sequence[str]) -> list[Path]:
    """The files that were meant, in order: a directory means all files in it by name, but hidden ones and `*.json`."""
    found: list[Path] = []
    for name in paths:
        path = Path(name)
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.name[0] not in "._" and p.suffix != ".json")
            if not inside:
                raise PipelineError(f"no files in {path}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise PipelineError(f"no file {path}")
    return [path.absolute() for path in found]


def is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        magic = file.read(4)
    return magic.startswith(_GZIP) or magic == _ZSTD


def chunk_bytes_for(files: Sequence[Path], workers: int) -> int:
    """So that every worker has some pieces, as many as the next, none of them too small or too large."""
    total = sum(path.stat().st_size for path in files)
    pieces = max(_CHUNKS_A_WORKER * workers, -(-total // _MOST_CHUNK_BYTES))
    pieces = -(-pieces // workers) * workers
    return max(_LEAST_CHUNK_BYTES, -(-total // pieces))


def cut(files: Sequence[Path], chunk_bytes: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    for number, path in enumerate(files):
        if is_compressed(path):
            chunks.append(Chunk(str(path), 0, -1, number))
            continue
        size = path.stat().st_size
        chunks.extend(
            Chunk(str(path), start, min(start + chunk_bytes, size), number) for start in range(0, size, chunk_bytes)
        )
    return chunks


def _open(path: str) -> BinaryIO:
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic.startswith(_GZIP):
        return cast("BinaryIO", gzip.open(path, "rb"))
    if magic == _ZSTD:
        return cast("BinaryIO", zstandard.open(path, "rb"))
    return open(path, "rb")


def blocks(chunk: Chunk) -> Iterator[list[bytes]]:
    """The lines of a piece, some megabytes of them at a time, without their LF. `PipelineError` if it can't be read."""
    return (text.split(b"\n") for text in texts(chunk))


def texts(chunk: Chunk) -> Iterator[bytes]:
    """The same before they are split: whole lines, the LF of the last one left out."""
    try:
        with _open(chunk.path) as file:
            yield from _blocks(file, chunk)
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise PipelineError(f"cannot read {chunk.path}: {error}") from error


def _blocks(file: BinaryIO, chunk: Chunk) -> Iterator[bytes]:
    left = -1
    if chunk.end >= 0:
        left = chunk.end - chunk.start
        if chunk.start:
            # The line that began before belongs to the piece before, also when it ends exactly here.
            file.seek(chunk.start - 1)
            left -= len(file.readline()) - 1
            if left <= 0:
                return
    carry = b""
    while left != 0:
        data = file.read(_BLOCK_BYTES if left < 0 else min(_BLOCK_BYTES, left))
        if not data:
            break
        if left > 0:
            left -= len(data)
            if left == 0 and not data.endswith(b"\n"):
                data += file.readline(_MAX_LINE_BYTES)
        text = carry + data
        whole, ended, carry = text.rpartition(b"\n")
        carry = carry[:_MAX_LINE_BYTES]
        if ended:
            yield whole
    if carry:
        yield carry


def reference_date(path: Path, given: date | None) -> date:
    """The date that a file's first line is near to: given, in its name, or that of the file itself."""
    if given is not None:
        return given
    named = _DATED.search(path.name)
    if named:
        try:
            return date(int(named[1]), int(named[2]), int(named[3]))
        except ValueError:
            pass
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date()


def digest(files: Sequence[Path], *parameters: object) -> str:
    """What makes two jobs the same: the bytes of the files in their order, and what they are asked to become."""
    whole = hashlib.sha256(repr(parameters).encode())
    for path in files:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
        whole.update(os.fsencode(path.name))
    return whole.hexdigest()
