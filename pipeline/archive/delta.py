"""A Delta log beside the manifest, one table per dataset, so that other engines read the archive without asking it.

The manifest is the truth and the logs follow it: each commit first publishes the manifest and then, still under its
lock, one Delta commit per dataset that changed. `_manifest/delta` says which manifest all logs are at. If a job died in
between it is behind, and the next commit compares the files of both and makes up the difference. Files leave the disk
by the archive's own grace period, never by Delta's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pipeline.archive.books import DataFile, Manifest
from pipeline.archive.schema import arrow
from pipeline.session import PipelineError
from pipeline.tables.schema import TABLES

DATASETS = ("packets", "quarantine", "proofs", *TABLES)
MARKER = "_manifest/delta"
_PARTITIONS = ["stream", "date", "hour"]
_SENT_BYTES = 8 << 20
_ERROR_SHOWN = 300
_APP = "skymesh.manifest"
"""The application whose transaction in a log is the manifest's version."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What the marker says."""

    version: int
    keep_seconds: float = 0.0
    """How long files stay that are no longer in the archive, for those who read earlier versions."""


def followed(root: Path) -> Followed | None:
    """None: this archive has no Delta logs."""
    try:
        content = json.loads((root / MARKER).read_text())
    except FileNotFoundError:
        return None
    return Followed(content["version"], content["keep_seconds"])


def require() -> None:
    """PipelineError where the library is missing: found out before a commit, not after it."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise PipelineError("this archive has Delta logs; pip install 'skymesh[delta]' to write them") from None


def follow(
    root: Path,
    manifest: Manifest,
    write: Callable[[Path, str], None],
    *,
    change: tuple[Iterable[DataFile], frozenset[str]] | None = None,
    keep_seconds: float | None = None,
) -> None:
    """Bring all logs to this manifest. `change`: what it added and took out, if they are at the one before."""
    state = followed(root)
    for dataset in DATASETS:
        if change is None:
            held = _files(_open(root, dataset))
            named = {file.path: file for file in manifest.select(dataset)}
            added = [file for path, file in named.items() if path not in held]
            gone = held - named.keys()
        else:
            added = [file for file in change[0] if file.dataset == dataset]
            gone = {path for path in change[1] if path.startswith(f"{dataset}/")}
        if added or gone:
            _commit(_open(root, dataset), dataset, added, gone, manifest.version)
    if keep_seconds is None:
        keep_seconds = state.keep_seconds if state is not None else 0.0
    write(root / MARKER, json.dumps({"version": manifest.version, "keep_seconds": keep_seconds}))


def differences(root: Path, manifest: Manifest) -> list[str]:
    """What the logs say otherwise than the manifest, for `verify`."""
    if followed(root) is None:
        return []
    require()
    found = []
    for dataset in DATASETS:
        held, named = _files(_open(root, dataset)), {file.path for file in manifest.select(dataset)}
        if held != named:
            found.append(
                f"{dataset}: the Delta log has {len(held - named)} files that the manifest does not have, and lacks "
                f"{len(named - held)}; the next commit, or `python -m pipeline delta ARCHIVE`, mends it"
            )
    return found


def versions(root: Path) -> list[dict[str, Any]]:
    """Each table's log: its version, and the files of that."""
    tables = [(dataset, _open(root, dataset)) for dataset in DATASETS]
    return [
        {"table": str(root / dataset), "version": table.version(), "files": len(_files(table))}
        for dataset, table in tables
    ]


def copy(root: Path, manifest: Manifest, url: str, options: dict[str, str], keep_hours: int) -> list[dict[str, Any]]:
    """The tables of a manifest as Delta tables at an address: files that are not there are sent, then one Delta commit.

    Readers there see each table as it was before or after, whenever this dies; to call it again sends what is missing.
    What left the archive is deleted there after `keep_hours`. `PipelineError` if the store refuses.
    """
    require()
    from deltalake.exceptions import DeltaError

    try:
        return [_copy(root, manifest, url.rstrip("/"), dataset, options, keep_hours) for dataset in DATASETS]
    except (DeltaError, OSError) as error:
        why = " ".join(str(error).split())
        raise PipelineError(f"{url}: {why[:_ERROR_SHOWN]}") from None


def _copy(
    root: Path, manifest: Manifest, url: str, dataset: str, options: dict[str, str], keep_hours: int
) -> dict[str, Any]:
    table = _open(url, dataset, options)
    held, named = _files(table), {file.path: file for file in manifest.select(dataset)}
    added = [file for path, file in named.items() if path not in held]
    _send(root / dataset, f"{url}/{dataset}", [file.path[len(dataset) + 1 :] for file in added], options)
    gone = held - named.keys()
    if added or gone:
        _commit(table, dataset, added, gone, manifest.version)
        table = _open(url, dataset, options)
    # Also what a copy that died has sent, and the archive has not any more.
    table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)
    return {
        "table": f"{url}/{dataset}", "version": table.version(), "files": len(named), "sent": len(added),
        "removed": len(gone),
    }  # fmt: skip


def _send(folder: Path, url: str, paths: Iterable[str], options: dict[str, str]) -> None:
    # Not through `deltalake.fs`: what pyarrow's streams hand on, the library's own refuse.
    from deltalake._internal import DeltaFileSystemHandler

    store = DeltaFileSystemHandler(url, options)
    for path in paths:
        target = store.open_output_stream(path, None)
        with (folder / path).open("rb") as source:
            while data := source.read(_SENT_BYTES):
                target.write(data)
        target.close()  # type: ignore[attr-defined]


def _open(root: Path | str, dataset: str, options: dict[str, str] | None = None) -> Any:
    """A dataset's log, in a folder or at an address; made if it is not there."""
    from deltalake import DeltaTable, Schema

    place = f"{root}/{dataset}"
    if not DeltaTable.is_deltatable(place, options):
        if isinstance(root, Path):
            Path(place).mkdir(parents=True, exist_ok=True)
        # A file that leaves the log is the archive's to delete: see above.
        configuration: dict[str, str | None] = {"delta.logRetentionDuration": "interval 30 days"}
        DeltaTable.create(
            place, Schema.from_arrow(_schema(dataset)), partition_by=_PARTITIONS, configuration=configuration,
            storage_options=options,
        )  # fmt: skip
    return DeltaTable(place, storage_options=options)


def _schema(dataset: str) -> Any:
    import pyarrow as pa

    columns = [pa.field(field.name, field.type) for field in arrow(dataset)]
    return pa.schema([*columns, ("stream", pa.string()), ("date", pa.string()), ("hour", pa.int32())])


def _files(table: Any) -> set[str]:
    """The files of a log, as the manifest names them."""
    root = table.table_uri.rstrip("/").rpartition("/")[2]
    paths = table.get_add_actions().column("path").to_pylist()
    return {f"{root}/{unquote(path)}" for path in paths}


def _commit(table: Any, dataset: str, added: list[DataFile], gone: Iterable[str], version: int) -> None:
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

    _evolve(table, dataset)
    now = round(time.time() * 1000)
    skipped = len(dataset) + 1
    adds = [
        AddAction(file.path[skipped:], file.size, _partition(file), file.last_us // 1000, True, _statistics(file))
        for file in added
    ]
    removes = [RemoveAction(path[skipped:], True, now) for path in sorted(gone)]
    table.create_write_transaction(
        [*adds, *removes],
        "append",
        table.schema(),
        _PARTITIONS,
        commit_properties=CommitProperties(app_transactions=[Transaction(_APP, version)]),
    )


def _evolve(table: Any, dataset: str) -> None:
    """Columns that a later version of the program writes; older files have null there."""
    from deltalake import Schema

    known = {field.name for field in table.schema().fields}
    new = [field for field in Schema.from_arrow(_schema(dataset)).fields if field.name not in known]
    if new:
        table.alter.add_columns(new)


def _partition(file: DataFile) -> dict[str, str | None]:
    return {key: file.part(key) for key in _PARTITIONS}


def _statistics(file: DataFile) -> str:
    """Of the columns by which readers skip files."""

    def moment(us: int) -> str:
        seconds, rest = divmod(us, 1_000_000)
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:06d}Z"

    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": {"an": file.first_an, "time": moment(file.first_us)},
            "maxValues": {"an": file.last_an, "time": moment(file.last_us)},
            "nullCount": {"an": 0, "time": 0},
        }
    )
