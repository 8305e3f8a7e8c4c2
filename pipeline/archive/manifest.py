"""The archive: Parquet files that a manifest names. What no manifest names is not there.

    ARCHIVE/packets/stream=asdi/date=2026-11-16/hour=12/JOB-....parquet      rows sorted by AN
    ARCHIVE/quarantine/stream=asdi/...                                       lines that are not messages
    ARCHIVE/_manifest/00000000000000000007.json                              the files and jobs of version 7
    ARCHIVE/_manifest/part-....json                                          files of earlier days, which it refers to
    ARCHIVE/_staging/JOB/                                                    a job that is not finished

A job writes below `_staging`; `commit` moves its files in place and then makes the next manifest appear, whole, under a
new name. A job that dies before that has changed nothing that a reader sees; what it left is swept by the next one.
Readers go by the manifest. A file that leaves the archive stays on the disk for a grace period, for those that read it.
This file knows no Spark: it moves files; `books` says what the next manifest is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.archive import delta
from pipeline.archive.books import (
    DataFile,
    Job,
    Manifest,
    Part,
    Retired,
    advance,
    decode,
    decode_part,
    encode,
    encode_part,
)  # fmt: skip
from pipeline.archive.schema import ARCHIVE_VERSION
from pipeline.places import local_path
from pipeline.session import PipelineError

MANIFESTS = "_manifest"
STAGING = "_staging"
# Old manifests are of use only to readers that are just reading them.
_MANIFESTS_KEPT = 10
GRACE_SECONDS = 3_600.0
"""How long a file stays that is no longer in the archive: longer than most jobs read."""
_PARTS_CACHED = 256


class ArchiveError(PipelineError):
    """Something is wrong with the archive, in one sentence."""


class Archive:
    """An archive on a file system that driver and workers share."""

    def __init__(self, path: str | Path, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self.path = local_path(path).absolute()
        self.grace_seconds = grace_seconds

    def exists(self) -> bool:
        return (self.path / MANIFESTS).is_dir()

    def require(self) -> Manifest:
        """Return the manifest, or raise an error that says that this is not an archive."""
        if not self.exists():
            raise ArchiveError(f"{self.path} is not an archive (it has no {MANIFESTS})")
        return self.manifest()

    def manifest(self) -> Manifest:
        """The newest one; empty for an archive that is not there yet."""
        names = self._versions()
        if not names:
            return Manifest()
        content = json.loads((self.path / MANIFESTS / names[-1]).read_text())
        if content["format"] not in (1, ARCHIVE_VERSION):
            raise ArchiveError(f"{self.path} has format {content['format']}, but this program reads {ARCHIVE_VERSION}")
        return decode(content, self._load)

    def _load(self, part: Part) -> tuple[DataFile, ...]:
        try:
            return _read_part(self.path / MANIFESTS / part.name)
        except OSError as error:
            raise ArchiveError(f"{self.path / MANIFESTS / part.name} cannot be read: {error.strerror}") from error

    def _versions(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(
                name for name in os.listdir(self.path / MANIFESTS) if name.endswith(".json") and name[0].isdigit()
            )
        return []

    def absolute(self, files: Iterable[DataFile]) -> list[str]:
        return [str(self.path / file.path) for file in files]

    @contextlib.contextmanager
    def staging(self, kind: str) -> Iterator[Path]:
        """A directory for a job to write in, which nobody sweeps while the job lives. It is gone afterwards."""
        root = self.path / STAGING
        root.mkdir(parents=True, exist_ok=True)
        self._sweep(root)
        directory = root / f"{kind}-{uuid.uuid4().hex[:12]}"
        directory.mkdir()
        with _locked(directory / "LOCK"):
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)

    def _sweep(self, root: Path) -> None:
        """Remove what dead jobs left: a living one holds its lock."""
        for directory in root.iterdir():
            with contextlib.suppress(BlockingIOError), _locked(directory / "LOCK", wait=False):
                shutil.rmtree(directory, ignore_errors=True)

    def commit(
        self,
        job: Job,
        staged: list[tuple[Path, DataFile]],
        *,
        replaced: frozenset[str] = frozenset(),
        retained_from: dict[str, int] | None = None,
    ) -> Manifest:
        """Make the staged files part of the archive, replacing the given ones: all or nothing.

        Returns the new manifest, or the present one unchanged if this job's key is there already.
        """
        (self.path / MANIFESTS).mkdir(parents=True, exist_ok=True)
        with _locked(self.path / MANIFESTS / "LOCK"):
            present = self.manifest()
            self._settle(present)
            has_delta = self._follow(present)
            if present.has(job):
                return present
            try:
                change = advance(
                    present, job, [file for _, file in staged], replaced=replaced, retained_from=retained_from,
                    now=time.time(), new_name=lambda: f"part-{uuid.uuid4().hex[:12]}.json",
                )  # fmt: skip
            except ValueError as gone:
                raise ArchiveError(f"another job changed the archive at the same time: {gone} is gone") from None
            added = [file.path for _, file in staged] + [f"{MANIFESTS}/{name}" for name in change.written]
            self._write(self.path / MANIFESTS / "intent", json.dumps(added))
            for source, file in staged:
                _sync(source)
                target = self.path / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
            for directory in {(self.path / file.path).parent for _, file in staged}:
                _sync(directory)
            for name, files in change.written.items():
                self._write(self.path / MANIFESTS / name, encode_part(files))
            manifest = replace(change.manifest, retired=self._unexpired(present, change.manifest))
            self._publish(manifest)
            self._settle(manifest)
            if has_delta:
                added_files = [file for _, file in staged]
                delta.follow(self.path, manifest, self._write, change=(added_files, replaced))
            for name in self._versions()[:-_MANIFESTS_KEPT]:
                (self.path / MANIFESTS / name).unlink(missing_ok=True)
            return manifest

    def settled(self) -> Manifest:
        """The newest manifest, for a job that may find itself done: if its commit died at the Delta logs, end it."""
        state = delta.followed(self.path)
        if state is not None and state.version != self.manifest().version:
            with _locked(self.path / MANIFESTS / "LOCK"):
                self._follow(self.manifest())
        return self.manifest()

    def _follow(self, present: Manifest) -> bool:
        """Whether the archive has Delta logs, which are then at the present manifest."""
        state = delta.followed(self.path)
        if state is None:
            return False
        delta.require()
        if state.version != present.version:  # a job died between the two
            delta.follow(self.path, present, self._write)
        return True

    def write_delta(self, keep_seconds: float | None = None) -> list[dict[str, Any]]:
        """Give the archive Delta logs, which every commit then follows; or mend those that it has."""
        delta.require()
        with _locked(self.path / MANIFESTS / "LOCK"):
            present = self.require()
            self._settle(present)
            delta.follow(self.path, present, self._write, keep_seconds=keep_seconds)
        return delta.versions(self.path)

    def copy_delta(self, url: str, options: dict[str, str], keep_hours: int) -> list[dict[str, Any]]:
        """Send the tables to an object store, as Delta tables. The archive itself stays as it is."""
        return delta.copy(self.path, self.require(), url, options, keep_hours)

    def _unexpired(self, present: Manifest, following: Manifest) -> tuple[Retired, ...]:
        """Delete what left the archive long ago, but nothing that this commit takes out. Returns what is still kept.

        Should this process die before the next manifest is there, the next job deletes the same again.
        """
        state = delta.followed(self.path)
        before = time.time() - max(self.grace_seconds, state.keep_seconds if state is not None else 0.0)
        expired = {each for each in present.retired if each.at <= before}
        for each in expired:
            (self.path / each.path).unlink(missing_ok=True)
        return tuple(each for each in following.retired if each not in expired)

    def _settle(self, manifest: Manifest) -> None:
        """End a commit, or one that died: of the files it meant to add, those the manifest does not name go.

        Had it died before publishing, nobody has seen them.
        """
        intent = self.path / MANIFESTS / "intent"
        if not intent.exists():
            return
        meant = json.loads(intent.read_text())
        named = {file.path for file in manifest.recent} | {f"{MANIFESTS}/{part.name}" for part in manifest.parts}
        if not named.issuperset(meant):  # they may have gone to a part at once
            named.update(file.path for file in manifest.files)
        for path in meant:
            if path not in named:
                (self.path / path).unlink(missing_ok=True)
        intent.unlink()

    def _publish(self, manifest: Manifest) -> None:
        self._write(self.path / MANIFESTS / f"{manifest.version:020d}.json", encode(manifest, ARCHIVE_VERSION))

    @staticmethod
    def _write(target: Path, content: str) -> None:
        """Whole, on the disk, and then under its name."""
        temporary = target.with_name(f".{target.name}.tmp")
        with temporary.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        _sync(target.parent)


@lru_cache(_PARTS_CACHED)
def _read_part(path: Path) -> tuple[DataFile, ...]:
    """A part is never written twice."""
    return decode_part(path.read_text())


def _sync(path: Path) -> None:
    """A file's bytes, or a directory's names, are on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock that dies with the process. `BlockingIOError` when it is held and there is to be no wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


__all__ = ["GRACE_SECONDS", "Archive", "ArchiveError", "DataFile", "Job", "Manifest"]
