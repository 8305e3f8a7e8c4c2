"""The archive: Parquet files that a manifest names. What no manifest names is not there.

    ARCHIVE/packets/stream=asdi/date=2026-11-16/hour=12/JOB-....parquet      rows sorted by AN
    ARCHIVE/quarantine/stream=asdi/...                                       lines that are not messages
    ARCHIVE/_manifest/00000000000000000007.json                              the files and jobs of version 7
    ARCHIVE/_staging/JOB/                                                    a job that is not finished

A job writes below `_staging`; `commit` moves its files in place and then makes the next manifest appear, whole, under a
new name. A job that dies before that has changed nothing that a reader sees; what it left is swept by the next one.
Readers go by the manifest. This file knows no Spark: it moves files and keeps the books.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.archive.schema import ARCHIVE_VERSION
from pipeline.session import PipelineError

MANIFESTS = "_manifest"
STAGING = "_staging"
# Old manifests are of use only to readers that are just reading them.
_MANIFESTS_KEPT = 10


class ArchiveError(PipelineError):
    """Something is wrong with the archive, in one sentence."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the archive, and what its footer says about it."""

    path: str
    """Below the archive, with `/`: `packets/stream=.../date=.../hour=.../name`."""
    rows: int
    size: int
    first_an: int
    last_an: int
    first_us: int
    last_us: int

    @property
    def dataset(self) -> str:
        return self.path.split("/", 1)[0]

    def part(self, key: str) -> str:
        """The value of a partition column, from the path."""
        return next(part.partition("=")[2] for part in self.path.split("/") if part.startswith(f"{key}="))


@dataclass(frozen=True, slots=True)
class Job:
    """What changed the archive: its key makes a second run of the same job change nothing."""

    key: str
    kind: str
    stream: str
    first_an: int
    last_an: int
    contiguous: bool
    """Whether packets and quarantine together have every AN from first to last."""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    version: int = 0
    files: tuple[DataFile, ...] = ()
    jobs: tuple[Job, ...] = ()
    retained_from: dict[str, int] = field(default_factory=dict)
    """Stream -> the first AN that retention has left."""

    def has(self, key: str) -> bool:
        return any(job.key == key for job in self.jobs)

    def select(
        self,
        dataset: str = "packets",
        *,
        stream: str | None = None,
        from_us: int | None = None,
        to_us: int | None = None,
    ) -> list[DataFile]:
        """The files that can hold rows of this stream and time (from inclusive, to exclusive)."""
        return [
            file
            for file in self.files
            if file.dataset == dataset
            and (stream is None or file.part("stream") == stream)
            and (from_us is None or file.last_us >= from_us)
            and (to_us is None or file.first_us < to_us)
        ]


class Archive:
    """An archive on a file system that driver and workers share."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

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
        if content["format"] != ARCHIVE_VERSION:
            raise ArchiveError(f"{self.path} has format {content['format']}, but this program reads {ARCHIVE_VERSION}")
        return Manifest(
            content["version"],
            tuple(DataFile(**entry) for entry in content["files"]),
            tuple(Job(**entry) for entry in content["jobs"]),
            content["retained_from"],
        )

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
            if present.has(job.key):
                return present
            missing = replaced - {file.path for file in present.files}
            if missing:
                raise ArchiveError(f"another job changed the archive at the same time: {min(missing)} is gone")
            touched = [file.path for _, file in staged] + sorted(replaced)
            self._write(self.path / MANIFESTS / "intent", json.dumps(touched))
            for source, file in staged:
                _sync(source)
                target = self.path / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
            for directory in {(self.path / file.path).parent for _, file in staged}:
                _sync(directory)
            manifest = replace(
                present,
                version=present.version + 1,
                files=tuple(
                    sorted(
                        [file for file in present.files if file.path not in replaced] + [file for _, file in staged],
                        key=lambda file: (file.dataset, file.part("stream"), file.first_an, file.path),
                    )
                ),
                jobs=(*present.jobs, job),
                retained_from=present.retained_from | (retained_from or {}),
            )
            self._publish(manifest)
            self._settle(manifest)
            for name in self._versions()[:-_MANIFESTS_KEPT]:
                (self.path / MANIFESTS / name).unlink(missing_ok=True)
            return manifest

    def _settle(self, manifest: Manifest) -> None:
        """End a commit, or one that died: of the files it meant to add or remove, those the manifest does not name go.

        Had it died before publishing, these are the new ones, which nobody has seen; after that, the old ones.
        """
        intent = self.path / MANIFESTS / "intent"
        if not intent.exists():
            return
        named = {file.path for file in manifest.files}
        for path in json.loads(intent.read_text()):
            if path not in named:
                (self.path / path).unlink(missing_ok=True)
        intent.unlink()

    def _publish(self, manifest: Manifest) -> None:
        content = json.dumps({"format": ARCHIVE_VERSION, **asdict(manifest)}, separators=(",", ":"))
        self._write(self.path / MANIFESTS / f"{manifest.version:020d}.json", content)

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
