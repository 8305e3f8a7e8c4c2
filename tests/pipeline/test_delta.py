"""Delta logs beside the manifest: other engines see the archive, and both agree whatever happens to a commit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import date

import duckdb
import pytest
from deltalake import DeltaTable

from pipeline.archive import delta
from pipeline.archive import manifest as archive_module
from pipeline.archive.jobs import compact, retain, verify
from pipeline.archive.manifest import Archive
from pipeline.cli import main
from pipeline.ingest.text import ingest
from pipeline.session import PipelineError
from tests.pipeline.conftest import NOON
from tests.pipeline.dying import Died, dying_after
from tests.pipeline.test_archive import write
from tests.pipeline.test_identity import DAY, LINES


def text(tmp_path, name: str, lines) -> str:
    path = tmp_path / name
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def agree(archive: Archive) -> bool:
    return delta.differences(archive.path, archive.manifest()) == []


def ans(archive: Archive, dataset: str = "packets", version: int | None = None) -> list[int]:
    table = DeltaTable(str(archive.path / dataset), version=version)
    return sorted(table.to_pyarrow_table(columns=["an"]).column("an").to_pylist())


@pytest.fixture
def archive(tmp_path):
    archive = Archive(tmp_path / "archive")
    ingest(None, [text(tmp_path, "one", LINES[:300])], archive.path, day=DAY)
    archive.write_delta()
    return archive


def test_other_engines_read_what_the_archive_has(archive, tmp_path):
    ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    assert agree(archive)
    for dataset in delta.DATASETS:
        rows = sum(file.rows for file in archive.manifest().select(dataset))
        table = DeltaTable(str(archive.path / dataset))
        assert table.to_pyarrow_table().num_rows == rows
    positions = DeltaTable(str(archive.path / "positions")).to_pyarrow_dataset()
    found = duckdb.sql("SELECT count(*), min(latitude) FROM positions WHERE stream = 'asdi'").fetchall()
    assert found[0][0] == positions.count_rows()


def test_an_earlier_version_can_be_read_until_its_files_go(archive, tmp_path):
    before, version = ans(archive), DeltaTable(str(archive.path / "packets")).version()
    ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    assert len(ans(archive)) > len(before)
    assert ans(archive, version=version) == before
    compact(None, archive)
    assert agree(archive)
    assert ans(archive, version=version) == before, "what was replaced stays for a while"
    now = ans(archive)
    archive.grace_seconds = 0
    write(archive, "later", 10**12, 1)
    assert ans(archive) == sorted([*now, *range(10**12, 10**12 + 1)])
    with pytest.raises(Exception, match=r"(?i)no such file|not found"):
        ans(archive, version=version)


def test_files_stay_as_long_as_was_asked_for(archive, tmp_path):
    archive.write_delta(keep_seconds=3600.0)
    archive.grace_seconds = 0
    before, version = ans(archive), DeltaTable(str(archive.path / "packets")).version()
    ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    compact(None, archive)
    write(archive, "later", 10**12, 1)
    assert ans(archive, version=version) == before


def test_deltas_own_vacuum_takes_nothing_that_the_archive_has(archive, tmp_path):
    ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    compact(None, archive)
    now = ans(archive)
    table = DeltaTable(str(archive.path / "packets"))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert ans(archive) == now
    assert verify(None, archive).problems == []


def test_retain_leaves_both_with_the_same_files(archive):
    write(archive, "later", 10**12, 5, time=NOON + 10 * 86_400)
    retain(archive, date(2026, 11, 20))
    assert agree(archive)
    assert ans(archive) == list(range(10**12, 10**12 + 5))
    assert ans(archive, "positions") == []


def test_a_second_run_of_the_same_job_adds_nothing(archive, tmp_path):
    version = DeltaTable(str(archive.path / "packets")).version()
    ingest(None, [text(tmp_path, "again", LINES[:300])], archive.path, day=DAY)
    assert DeltaTable(str(archive.path / "packets")).version() == version


@pytest.mark.parametrize("step", ["_sync", "_publish", "delta", "marker"])
@pytest.mark.parametrize("after", range(3))
def test_a_commit_that_dies_leaves_logs_that_the_next_one_mends(archive, tmp_path, monkeypatch, step, after):
    dying = dying_after(after)

    with monkeypatch.context() as patch:
        patch.setattr(archive_module.shutil, "rmtree", lambda *args, **options: None)
        if step == "delta":
            patch.setattr(delta, "_commit", dying(delta._commit))
        elif step == "marker":
            real = Archive._write
            patch.setattr(Archive, "_write", staticmethod(lambda path, text: dying(real)(path, text)))
        else:
            owner = archive_module if step == "_sync" else Archive
            patch.setattr(owner, step, dying(getattr(owner, step)))
        with contextlib.suppress(Died):
            ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    assert agree(archive)
    assert len(ans(archive)) == len(set(ans(archive))) == sum(file.rows for file in archive.manifest().select())
    assert verify(None, archive).problems == []


_WRITER = """
import sys
from tests.pipeline.test_archive import write
from pipeline.archive.manifest import Archive
archive = Archive(sys.argv[1])
number = int(sys.argv[2])
while True:
    write(archive, f"job {number}", number * 10, 10)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("seed", range(3))
def test_both_agree_after_kill_9(tmp_path, seed):
    archive = Archive(tmp_path / "archive")
    write(archive, "job 0", 0, 10)
    archive.write_delta()
    number = 1
    for round_ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(archive.path), str(number)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2 + seed):
            number = int(process.stdout.readline()) + 1
        # At some moment of the next commit: which one differs from run to run, and all must do.
        threading.Event().wait(0.003 * (seed + 3 * round_))
        os.kill(process.pid, signal.SIGKILL)
        rest = process.communicate()[0].split()
        number = int(rest[-1]) + 1 if rest else number
        write(archive, f"job {number}", number * 10, 10)
        number += 1
        assert agree(archive)
        assert ans(archive) == list(range(number * 10))


def test_verify_names_a_log_that_differs_and_the_command_mends_it(archive, capsys):
    marker = json.loads((archive.path / delta.MARKER).read_text())
    file = archive.manifest().select("positions")[0]
    delta._commit(DeltaTable(str(archive.path / "positions")), "positions", [], [file.path], marker["version"])
    assert any("Delta log" in problem for problem in verify(None, archive).problems)
    assert main(["delta", str(archive.path), "--json"]) == 0
    assert {row["files"] for row in json.loads(capsys.readouterr().out)} >= {1}
    assert verify(None, archive).problems == []


def test_a_new_column_is_null_in_older_files(tmp_path, monkeypatch):
    archive = Archive(tmp_path / "archive")
    schema = delta._schema
    with monkeypatch.context() as patch:
        patch.setattr(
            delta, "_schema", lambda dataset: (full := schema(dataset)).remove(full.get_field_index("crc"))
            if dataset == "packets" else schema(dataset),
        )  # fmt: skip
        write(archive, "a", 0, 5)
        archive.write_delta()
        assert "crc" not in DeltaTable(str(archive.path / "packets")).to_pyarrow_table().column_names
    write(archive, "b", 5, 5)
    assert agree(archive)
    assert DeltaTable(str(archive.path / "packets")).to_pyarrow_table().column("crc").null_count == 0
    assert ans(archive) == list(range(10))


def test_without_the_library_a_commit_is_refused_before_it_begins(archive, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    version = archive.manifest().version
    with pytest.raises(PipelineError, match="pip install"):
        write(archive, "x", 10**12, 1)
    assert archive.manifest().version == version


def test_a_commit_costs_the_same_after_many(archive):
    """Bounded work: a commit opens the tables it changes, and reads their logs from the last checkpoint on."""
    for number in range(120):
        write(archive, f"job {number}", 10**12 + number, 1)
    logs = sorted(path.name for path in (archive.path / "packets" / "_delta_log").iterdir())
    assert any("checkpoint" in name for name in logs)
    assert agree(archive)


# --- a copy elsewhere -------------------------------------------------------------------------------------------------
BUCKET = "s3://archive/air"


@pytest.fixture
def s3():
    """An S3-compatible server on loopback, if one is installed: its options for deltalake."""
    pytest.importorskip("moto.server")
    import boto3

    # A process of its own: deltalake holds Python's lock while it waits for an answer.
    program = (
        "import sys, moto.server as m; s = m.ThreadedMotoServer('127.0.0.1', 0, False); s.start()\n"
        "print(s.get_host_and_port()[1], flush=True); sys.stdin.read()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(running.stdout.readline())}", "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_CONDITIONAL_PUT": "etag",
    }  # fmt: skip
    client = boto3.client(
        "s3", endpoint_url=options["AWS_ENDPOINT_URL"], region_name="us-east-1", aws_access_key_id="x",
        aws_secret_access_key="x",
    )  # fmt: skip
    client.create_bucket(Bucket="archive")
    yield options
    running.communicate()


def copied(url: str, options: dict[str, str], dataset: str = "packets") -> list[int]:
    table = DeltaTable(f"{url}/{dataset}", storage_options=options)
    return sorted(table.to_pyarrow_table(columns=["an"]).column("an").to_pylist())


def check_copies(archive: Archive, tmp_path, url: str, options: dict[str, str]) -> None:
    """What is new is sent once; a copy that died is ended by the next; what left the archive leaves the copy."""
    first = archive.copy_delta(url, options, 0)
    assert {row["table"]: row["sent"] for row in first}[f"{url}/packets"] == len(archive.manifest().select())
    for dataset in delta.DATASETS:
        assert copied(url, options, dataset) == ans(archive, dataset)
    assert all(row["sent"] == row["removed"] == 0 for row in archive.copy_delta(url, options, 0))
    ingest(None, [text(tmp_path, "two", LINES)], archive.path, day=DAY)
    real = delta._commit

    def commit(table, dataset, *rest):
        if dataset == "plans":
            raise Died
        real(table, dataset, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta, "_commit", commit)
        with pytest.raises(Died):
            archive.copy_delta(url, options, 0)
    assert copied(url, options) == ans(archive)
    assert copied(url, options, "plans") != ans(archive, "plans")
    compact(None, archive)
    archive.copy_delta(url, options, 0)
    for dataset in delta.DATASETS:
        assert copied(url, options, dataset) == ans(archive, dataset)


def test_a_copy_follows_the_archive(archive, tmp_path):
    for dataset in delta.DATASETS:
        (tmp_path / "copy" / dataset).mkdir(parents=True)
    check_copies(archive, tmp_path, f"file://{tmp_path}/copy", {})
    left = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*.parquet")}
    assert left == {file.path for file in archive.manifest().files}


def test_a_copy_in_an_object_store(archive, tmp_path, s3):
    check_copies(archive, tmp_path, BUCKET, s3)
    with pytest.raises(PipelineError, match=r"s3://nowhere/x: "):
        archive.copy_delta("s3://nowhere/x", s3, 0)


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "s3://b/a"], ["ingest", "{file}", "--out", "gs://b/a"], ["ingest", "s3://b/x", "--out", "{out}"],
        ["record", "--log", "hdfs://host/log", "--out", "{out}"], ["replay", "file:///tmp/a"],
        ["delta", "az://container/a"],
    ],
)  # fmt: skip
def test_an_address_is_not_taken_for_a_folder(words, tmp_path, monkeypatch, capsys):
    """`s3://bucket/a` became a folder `s3:`."""
    monkeypatch.chdir(tmp_path)
    named = [word.format(file=text(tmp_path, "f", LINES[:3]), out=tmp_path / "out") for word in words]
    with contextlib.suppress(SystemExit):
        assert main(named) == 3
    assert "is not a path" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} <= {"f"}
    with pytest.raises(PipelineError, match="is not a path"):
        Archive("s3://bucket/a")
