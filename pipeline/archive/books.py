"""What a manifest says, and how it changes with a commit. Pure: `manifest` reads and writes it.

A recorder commits every few seconds for years, so a commit must cost the same after three million others. The manifest
has the files of the last days itself; older ones are in parts, which are written once and only read by whoever wants
them. Of jobs it keeps the last ones, and for each recorder the number of its last batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

SEAL_AT = 2_048
"""Files in the manifest itself; beyond that, those that are a day older than the newest go to a part."""
_DAY_US = 86_400_000_000
JOBS_KEPT = 256
"""Keys of earlier jobs are forgotten: what is ingested again is known by its content."""


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
    batch: int | None = None
    """For a recorder, whose id is the key: the number of the batch. Batches come in order."""


class Part(NamedTuple):
    """Files that are listed elsewhere, and the times they can have."""

    name: str
    files: int
    first_us: int
    last_us: int


class Retired(NamedTuple):
    """A file that is no longer in the archive, kept for those who are still reading it."""

    path: str
    at: float


@dataclass(frozen=True, slots=True)
class Manifest:
    version: int = 0
    recent: tuple[DataFile, ...] = ()
    parts: tuple[Part, ...] = ()
    jobs: tuple[Job, ...] = ()
    """The last ones."""
    batches: dict[str, int] = field(default_factory=dict)
    """Recorder -> its last batch."""
    whole: dict[str, list[list[int]]] = field(default_factory=dict)
    """Stream -> ranges of ANs of which none may be missing."""
    retained_from: dict[str, int] = field(default_factory=dict)
    """Stream -> the first AN that retention has left."""
    retired: tuple[Retired, ...] = ()
    load: Callable[[Part], tuple[DataFile, ...]] = field(default=lambda part: (), compare=False, repr=False)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All of them, in order."""
        return tuple(sorted((*self._of_parts(None, None), *self.recent), key=_order))

    def _of_parts(self, from_us: int | None, to_us: int | None) -> Iterable[DataFile]:
        for part in self.parts:
            if (from_us is None or part.last_us >= from_us) and (to_us is None or part.first_us < to_us):
                yield from self.load(part)

    def has(self, job: Job) -> bool:
        """Whether this job is done."""
        if job.batch is not None:
            # Until format 2, every batch was a job of its own.
            earlier = hashlib.sha256(f"record {job.key} {job.batch}".encode()).hexdigest()
            return self.batches.get(job.key, -1) >= job.batch or self.done(earlier) is not None
        return any(job.key == done.key for done in self.jobs)

    def done(self, key: str) -> Job | None:
        return next((job for job in self.jobs if job.key == key), None)

    def select(
        self,
        dataset: str = "packets",
        *,
        stream: str | None = None,
        from_us: int | None = None,
        to_us: int | None = None,
    ) -> list[DataFile]:
        """The files that can hold rows of this stream and time (from inclusive, to exclusive), in order."""
        found = [
            file
            for file in (*self._of_parts(from_us, to_us), *self.recent)
            if file.path.startswith(f"{dataset}/")
            and (stream is None or file.part("stream") == stream)
            and (from_us is None or file.last_us >= from_us)
            and (to_us is None or file.first_us < to_us)
        ]
        return sorted(found, key=_order)


def _order(file: DataFile) -> tuple[str, str, int, str]:
    return file.dataset, file.part("stream"), file.first_an, file.path


class Change(NamedTuple):
    """The next manifest, and the parts that have to be written before it."""

    manifest: Manifest
    written: dict[str, tuple[DataFile, ...]]


def advance(
    present: Manifest,
    job: Job,
    added: Iterable[DataFile],
    *,
    replaced: frozenset[str] = frozenset(),
    retained_from: dict[str, int] | None = None,
    now: float,
    new_name: Callable[[], str],
) -> Change:
    """The manifest after a job. `ValueError` with a file that was to be replaced and is not there."""
    left = replaced - {file.path for file in present.recent}
    recent = [file for file in present.recent if file.path not in replaced] + list(added)
    parts = list(present.parts)
    written: dict[str, tuple[DataFile, ...]] = {}
    retired = list(present.retired) + [Retired(path, now) for path in sorted(replaced)]
    for part in present.parts if left else ():
        files = present.load(part)
        kept = tuple(file for file in files if file.path not in left)
        if len(kept) == len(files):
            continue
        left -= {file.path for file in files}
        parts.remove(part)
        retired.append(Retired(f"_manifest/{part.name}", now))
        if kept:
            parts.append(_part(new_name(), kept, written))
    if left:
        raise ValueError(min(left))
    if len(recent) > SEAL_AT:
        newest = max(file.last_us for file in recent)
        old = tuple(file for file in recent if file.last_us < newest - _DAY_US)
        if len(old) > SEAL_AT // 2:
            parts.append(_part(new_name(), old, written))
            recent = [file for file in recent if file.last_us >= newest - _DAY_US]
    batches = present.batches if job.batch is None else present.batches | {job.key: job.batch}
    jobs = present.jobs if job.batch is not None else (*present.jobs, job)[-JOBS_KEPT:]
    whole = _joined(present.whole, job) if job.contiguous and job.last_an >= job.first_an else present.whole
    manifest = replace(
        present, version=present.version + 1, recent=tuple(recent), parts=tuple(parts), jobs=jobs, batches=batches,
        whole=whole, retained_from=present.retained_from | (retained_from or {}), retired=tuple(retired),
    )  # fmt: skip
    return Change(manifest, written)


def _part(name: str, files: tuple[DataFile, ...], written: dict[str, tuple[DataFile, ...]]) -> Part:
    written[name] = files
    return Part(name, len(files), min(file.first_us for file in files), max(file.last_us for file in files))


def _joined(whole: dict[str, list[list[int]]], job: Job) -> dict[str, list[list[int]]]:
    """With this job's range, joined to those it touches."""
    low, high = job.first_an, job.last_an
    apart = []
    for begin, end in whole.get(job.stream, []):
        if end + 1 < low or begin > high + 1:
            apart.append([begin, end])
        else:
            low, high = min(low, begin), max(high, end)
    return whole | {job.stream: sorted([*apart, [low, high]])}


# --- as JSON ----------------------------------------------------------------------------------------------------------
def encode(manifest: Manifest, version: int) -> str:
    content = {
        "format": version,
        "version": manifest.version,
        "files": [_row(file) for file in manifest.recent],
        "parts": manifest.parts,
        "jobs": [asdict(job) for job in manifest.jobs],
        "batches": manifest.batches,
        "whole": manifest.whole,
        "retained_from": manifest.retained_from,
        "retired": manifest.retired,
    }
    return json.dumps(content, separators=(",", ":"))


def _row(file: DataFile) -> tuple[Any, ...]:
    return (file.path, file.rows, file.size, file.first_an, file.last_an, file.first_us, file.last_us)


def encode_part(files: Iterable[DataFile]) -> str:
    return json.dumps([_row(file) for file in files], separators=(",", ":"))


def decode_part(text: str) -> tuple[DataFile, ...]:
    return tuple(DataFile(*row) for row in json.loads(text))


def decode(content: dict[str, Any], load: Callable[[Part], tuple[DataFile, ...]]) -> Manifest:
    """Formats 1 and 2."""
    if content["format"] == 1:
        return _decode_1(content)
    return Manifest(
        content["version"],
        tuple(DataFile(*row) for row in content["files"]),
        tuple(Part(*row) for row in content["parts"]),
        tuple(Job(**job) for job in content["jobs"]),
        content["batches"],
        content["whole"],
        content["retained_from"],
        tuple(Retired(*row) for row in content["retired"]),
        load,
    )


def _decode_1(content: dict[str, Any]) -> Manifest:
    """Every job that ever was, and each file as an object."""
    manifest = Manifest(
        content["version"], tuple(DataFile(**file) for file in content["files"]),
        jobs=tuple(Job(**job) for job in content["jobs"]), retained_from=content["retained_from"],
    )  # fmt: skip
    whole: dict[str, list[list[int]]] = {}
    for job in manifest.jobs:
        if job.contiguous and job.last_an >= job.first_an:
            whole = _joined(whole, job)
    return replace(manifest, whole=whole)
