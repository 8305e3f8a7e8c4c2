"""Raw feed files, cut into pieces that tasks can read by themselves: plain text by ranges of bytes, the rest whole."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zstandard

from pipeline.places import local_path
from pipeline.session import PipelineError

# A piece of input: seconds of work for a worker. Smaller ones cost tasks and files; larger ones leave a core idle in
# the end.
_LEAST_CHUNK_BYTES = 2 << 20
_MOST_CHUNK_BYTES = 16 << 20
_CHUNKS_A_WORKER = 4
_BLOCK_BYTES = 4 << 20
# How much larger a compressed file is than it looks, about.
_UNPACKED = 5
# A line this long is not a message. The rest of it is skipped, so that no file can fill the memory.
_MAX_LINE_BYTES = 64 << 10
_LOOK_BYTES = 64 << 10
_LEAF_BYTES = 1 << 20
_DATED = re.compile(r"(?<!\d)(19\d\d|20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)")


class Unreadable(PipelineError):
    """A file that breaks off, or is not what its first bytes say."""


class Chunk(NamedTuple):
    """A piece of one file: the lines that begin in [start, end). A compressed file is one piece, and `end` is -1."""

    path: str
    start: int
    end: int
    file: int
    """Which of the inputs it belongs to."""


def expand(paths: Sequence[str]) -> list[Path]:
    """The files that were meant, in order: a directory means all files below it by name, but hidden ones and `*.json`.

    A file that is meant twice is taken once.
    """
    found: list[Path] = []
    for name in paths:
        path = local_path(name)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _is_meant(p.relative_to(path)))
            if not inside:
                raise PipelineError(f"no files in {path}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise PipelineError(f"no file {path}")
    return list(dict.fromkeys(path.absolute() for path in found))


def _is_meant(path: Path) -> bool:
    return path.suffix != ".json" and not any(part[0] in "._" for part in path.parts)


def opener_of(path: str | Path) -> Callable[[Any], Any] | None:
    """How to read a file that can't be read from the middle: compressed, or with lines that end in CR alone.

    None for plain text. Unreadable for a kind that is not read.
    """
    with open(path, "rb") as file:
        begin = file.read(_LOOK_BYTES)
    for magic, opener in _OPENERS.items():
        if begin.startswith(magic):
            return opener
    for magic, name in _REFUSED.items():
        if begin.startswith(magic):
            raise Unreadable(f"{path} is a {name} file: unpack it first")
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(f"{path} is UTF-16: convert it first, for example with `iconv -f UTF-16 -t UTF-8`")
    return _CrFile if b"\r" in begin and b"\n" not in begin else None


class _CrFile(io.RawIOBase):
    """A file whose lines end in CR, as if they ended in LF."""

    def __init__(self, path: str | Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size).replace(b"\r", b"\n")

    read1 = read

    def close(self) -> None:
        self._file.close()
        super().close()


_OPENERS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\x28\xb5\x2f\xfd": zstandard.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_REFUSED = {b"PK\x03\x04": "zip", b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!": "rar", b"PAR1": "Parquet"}


UNREADABLE_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


def unpacker_of(path: str | Path) -> Callable[..., Any]:
    """How to open a file that is read whole, by its first bytes. PipelineError for a kind that is not read."""
    with open(path, "rb") as file:
        begin = file.read(8)
    for magic, name in _REFUSED.items():
        if begin.startswith(magic):
            raise PipelineError(f"{path} is a {name} file: unpack it first")
    return next((opener for magic, opener in _OPENERS.items() if begin.startswith(magic)), open)


def chunk_bytes_for(files: Sequence[Path], workers: int) -> int:
    """So that every worker has some pieces, as many as the next, none of them too small or too large."""
    total = sum(path.stat().st_size for path in files)
    pieces = max(_CHUNKS_A_WORKER * workers, -(-total // _MOST_CHUNK_BYTES))
    pieces = -(-pieces // workers) * workers
    return max(_LEAST_CHUNK_BYTES, -(-total // pieces))


def cut(files: Sequence[Path], chunk_bytes: int, *, keep_bad_files: bool = False) -> list[Chunk]:
    """Pieces of these files. One of a kind that is not read is an error, or a piece that whoever reads it refuses."""
    chunks: list[Chunk] = []
    for number, path in enumerate(files):
        try:
            is_whole = opener_of(path) is not None
        except Unreadable:
            if not keep_bad_files:
                raise
            is_whole = True
        if is_whole:
            chunks.append(Chunk(str(path), 0, -1, number))
            continue
        size = path.stat().st_size
        chunks.extend(
            Chunk(str(path), start, min(start + chunk_bytes, size), number) for start in range(0, size, chunk_bytes)
        )
    return chunks


def _open(path: str) -> BinaryIO:
    opener = opener_of(path)
    if opener is None:
        return open(path, "rb")
    opened: BinaryIO = opener(path)
    return opened


def pack(chunks: Sequence[Chunk], most_bytes: int) -> list[range]:
    """Pieces of small files together, so that a task has something to do: ranges of their numbers, in order."""
    packed: list[range] = []
    begin = held = 0
    for number, chunk in enumerate(chunks):
        size = chunk.end - chunk.start if chunk.end >= 0 else os.path.getsize(chunk.path) * _UNPACKED
        if held and held + size > most_bytes:
            packed.append(range(begin, number))
            begin, held = number, 0
        held += size
    packed.append(range(begin, len(chunks)))
    return packed


def lines_before_break(chunk: Chunk) -> int:
    """How many lines of a file that can't be read to its end can be read."""
    lines = 0
    with contextlib.suppress(Unreadable, *UNREADABLE_ERRORS), _open(chunk.path) as file:
        while data := file.read1(_LOOK_BYTES):  # type: ignore[attr-defined]
            lines += data.count(b"\n")
    return lines


def texts(chunk: Chunk) -> Iterator[bytes]:
    """The lines of a piece, some megabytes of them at a time, the LF of the last one left out.

    `Unreadable` if it can't be read.
    """
    try:
        with _open(chunk.path) as file:
            yield from _blocks(file, chunk)
    except UNREADABLE_ERRORS as error:
        raise Unreadable(f"cannot read {chunk.path}: {error}") from error


def _blocks(file: BinaryIO, chunk: Chunk) -> Iterator[bytes]:
    left = -1
    if chunk.end >= 0:
        left = chunk.end - chunk.start
        if chunk.start:
            # The line that began before belongs to the piece before, also when it ends exactly here.
            file.seek(chunk.start - 1)
            left += 1
            while left > 0:  # such a line may be longer than all of our memory
                begun = file.readline(min(left, _BLOCK_BYTES))
                left -= len(begun)
                if not begun or begun.endswith(b"\n"):
                    break
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


def reference_date(path: Path) -> date:
    """The date that a file's first line is probably near to: in its name, or that of the file itself."""
    named = _DATED.search(path.name)
    if named:
        try:
            return date(int(named[1]), int(named[2]), int(named[3]))
        except ValueError:
            pass
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date()


def leaves(chunk: Chunk) -> list[str]:
    """Hashes of the blocks of the file that begin in this piece: workers hash a file together, however it is cut."""
    found = []
    with open(chunk.path, "rb") as file:
        at = file.seek(-(-chunk.start // _LEAF_BYTES) * _LEAF_BYTES)
        while (chunk.end < 0 or at < chunk.end) and (data := file.read(_LEAF_BYTES)):
            found.append(hashlib.sha256(data).hexdigest())
            at += _LEAF_BYTES
    return found


def digest(files: int, chunks: Sequence[Chunk], hashes: Sequence[Sequence[str]], *parameters: object) -> str:
    """What makes two jobs the same: the bytes of the files in their order, and what they are asked to become."""
    of_files = [hashlib.sha256() for _ in range(files)]
    for chunk, found in zip(chunks, hashes, strict=True):
        of_files[chunk.file].update("".join(found).encode())
    return hashlib.sha256(repr((parameters, [each.hexdigest() for each in of_files])).encode()).hexdigest()
