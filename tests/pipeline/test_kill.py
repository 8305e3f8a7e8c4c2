"""SIGKILL of drivers and workers at random moments: nothing lost, nothing twice, nothing half-written.

`make soak` kills ten of each, every life a Spark of its own; `make test` kills a worker of the session that the tests
share, and test_archive.py dies at every step of a commit. KILLS and KILL_SEED in the environment change how often and
which moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asdi import parse, to_xml
from asdi.flights import Feed, Line
from peer.packetlog import LogConfig, Packet, Writer
from pipeline.archive.jobs import verify
from pipeline.archive.manifest import Archive
from pipeline.ingest.text import ingest
from pipeline.replay import iterate
from tests.pipeline.conftest import NOON, SHORT_LIVED, record_once

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("KILL_SEED", "2001"))
MARKS = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore")]


def marked(test):
    for mark in MARKS:
        test = mark(test)
    return test


def descendants(pid: int) -> list[int]:
    """Children and theirs, from /proc: the JVM and the Python workers of a driver."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.append(child)
            waiting.append(child)
    return found


def start(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pipeline", *words, "--master", "local[2]", *SHORT_LIVED]
    environment = {
        key: value for key, value in os.environ.items() if key != "JAVA_HOME"
    }  # the machine's, if it has one
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True, env=environment)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The whole job dies at once: driver, JVM, workers. Only what this test has started."""
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def is_python_worker(pid: int) -> bool:
    """A worker of a task, or the one that plans a source's batches: Spark runs each as a module of its own."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith((b"pyspark.daemon", b"pyspark.sql.")) for word in words)


def kill_a_worker(driver: int, moment: random.Random) -> int:
    """One Python worker dies and the rest lives: Spark runs its task again, or the job ends with an error."""
    workers = [pid for pid in descendants(driver) if is_python_worker(pid)]
    for pid in moment.sample(workers, min(1, len(workers))):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return 0
        return 1
    return 0


def wait_until(process: subprocess.Popen[bytes], condition, seconds: float = 150) -> bool:
    """Until it holds, or the process has ended, or the time is up."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        if condition():
            return True
        time.sleep(0.05)
    return False


def raw_files(directory: Path, seconds: int, pieces: int) -> list[Line]:
    """The feed's text in so many files, so that there is more than one task; and its lines."""
    directory.mkdir()
    lines = list(Feed(copies=40).lines(NOON, NOON + seconds))
    step = len(lines) // pieces + 1
    for number in range(pieces):
        text = "".join(f"{line.text}\n" for line in lines[number * step : (number + 1) * step])
        (directory / f"asdi-2026-11-16-{number:02d}.txt").write_text(text)
    return lines


def stored(out: Path) -> list[tuple[int, bytes]]:
    return [(packet.an, packet.payload) for packet in iterate(out)] if Archive(out).exists() else []


def ingest_under_fire(tmp_path: Path, *, kills: int, seconds: int, seed: int) -> Path:
    """An archive that was made in spite of so many kills, of whole jobs and of single workers by turns."""
    moment = random.Random(seed)
    raw, out = tmp_path / "raw", tmp_path / "archive"
    lines = raw_files(raw, seconds, pieces=8)
    whole = [(line.an, to_xml(parse(line.text))) for line in lines]
    words = ["ingest", str(raw), "--out", str(out), "--first-an", str(lines[0].an)]
    staging = out / "_staging"
    killed = Counter[str]()
    for life in range(5 * kills):
        if killed.total() == kills:
            break
        if Archive(out).exists() and stored(out) == whole:  # a life that came to its end: the next begins again
            shutil.rmtree(out)
        left = set(staging.glob("*"))  # what dead lives left there
        process = start(*words)
        # From the moment the second pass begins: before that there is nothing to spoil.
        begun = wait_until(process, lambda: set(staging.glob("*")) - left)  # noqa: B023  not used after this life
        assert begun, f"seed {seed}, life {life}"
        wait_until(process, lambda: False, moment.random() * 1.5)
        if life % 2:
            killed["workers"] += kill_a_worker(process.pid, moment)
            assert process.wait(timeout=300) == 0, f"seed {seed}: a worker's death must not end the job"
            assert stored(out) == whole, f"seed {seed}"
        else:
            killed["drivers"] += process.poll() is None
            kill_all(process)
            # A reader sees everything or nothing, and every file that the manifest names is whole.
            assert stored(out) in ([], whole), f"seed {seed}"
    assert killed.total() == kills, f"seed {seed}"
    print(f"ingest, seed {seed}: {killed['drivers']} jobs and {killed['workers']} workers killed")
    if stored(out) != whole:  # the last to die was a whole job
        assert start(*words).wait(timeout=300) == 0, f"seed {seed}"
    assert stored(out) == whole, f"seed {seed}"
    return out


def record_under_fire(spark, tmp_path: Path, *, kills: int, seed: int) -> Path:
    """A log that grows while its reader is killed again and again."""
    moment = random.Random(seed)
    log, out = tmp_path / "log", tmp_path / "archive"
    packets = [Packet(p.an, p.time * 1_000_000, p.payload) for p in Feed(copies=8).packets(NOON, NOON + 900)]
    # Three pieces a life, the first before it begins: one that finds nothing new would only be waited for.
    step = len(packets) // (3 * kills + 3)
    pieces = (packets[at : at + step] for at in range(0, len(packets), step))
    words = ["record", "--log", str(log), "--out", str(out), "--interval", "0.2", "--max-records", "200"]
    killed = Counter[str]()
    with Writer(log, LogConfig(max_segment_bytes=200_000, sync_bytes=0)) as writer:
        for life in range(1, 5 * kills):
            if killed.total() == kills:
                break
            before = Archive(out).manifest().version
            writer.append(next(pieces, []))
            process = start(*words)
            begun = wait_until(process, lambda at=before: Archive(out).manifest().version > at)
            assert begun or process.poll() is not None, f"seed {seed}, life {life}"
            writer.append(next(pieces, []))
            wait_until(process, lambda: False, moment.random())
            if life % 2 == 0 and process.poll() is None:
                # Spark runs a task again; without the worker that plans batches the query ends, and says so.
                killed["workers"] += kill_a_worker(process.pid, moment)
                writer.append(next(pieces, []))
                wait_until(process, lambda: False, 2)
            else:
                killed["drivers"] += process.poll() is None
            kill_all(process)
            assert stored(out) == [(p.an, p.payload) for p in packets][: len(stored(out))], f"seed {seed}"
        writer.append(packets)  # what is left; repeats are not taken
    assert killed.total() == kills, f"seed {seed}"
    print(f"record, seed {seed}: {killed['drivers']} jobs and {killed['workers']} workers killed")
    record_once(spark, {"log": str(log)}, out, log / "checkpoint")
    assert stored(out) == [(packet.an, packet.payload) for packet in packets], f"seed {seed}"
    return out


def check(spark, out: Path) -> None:
    """`verify` finds nothing, and no file is there that no manifest names."""
    archive = Archive(out)
    assert verify(spark, archive).problems == []
    present = {str(path.relative_to(out)) for path in (out / "packets").rglob("*.parquet")}
    kept = {each.path for each in archive.manifest().retired if each.path.startswith("packets/")}  # for their readers
    assert present == {file.path for file in archive.manifest().select()} | kept
    assert list((out / "_staging").iterdir()) == []


@marked
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ingest_survives_the_death_of_a_worker(spark, tmp_path):
    moment = random.Random(SEED)
    raw, out = tmp_path / "raw", tmp_path / "archive"
    lines = raw_files(raw, 300, pieces=8)
    whole = [(line.an, to_xml(parse(line.text))) for line in lines]
    staging = out / "_staging"
    for _ in range(5):
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(ingest, spark, [str(raw)], out, first_an=lines[0].an)
            while not (job.done() or set(staging.glob("*"))):
                time.sleep(0.01)
            killed = kill_a_worker(os.getpid(), moment) if not job.done() else 0
            job.result(timeout=300)
        assert stored(out) == whole
        check(spark, out)
        if killed:
            break
        shutil.rmtree(out)  # it had ended before it could be hurt
    assert killed


@marked
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_record_survives_kills(spark, tmp_path):
    check(spark, record_under_fire(spark, tmp_path, kills=2, seed=SEED))


@marked
@pytest.mark.soak
def test_ingest_survives_ten_kills(spark, tmp_path):
    check(spark, ingest_under_fire(tmp_path, kills=KILLS, seconds=3600, seed=SEED))


@marked
@pytest.mark.soak
def test_record_survives_ten_kills(spark, tmp_path):
    check(spark, record_under_fire(spark, tmp_path, kills=KILLS, seed=SEED))


@marked
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_record_goes_on_by_itself_when_all_its_workers_die(tmp_path):
    """The query ended with its planning worker, and so did the service."""
    log, out = tmp_path / "log", tmp_path / "archive"
    packets = [Packet(p.an, p.time * 1_000_000, p.payload) for p in Feed().packets(NOON, NOON + 300)]
    half = len(packets) // 2
    with Writer(log, LogConfig(sync_bytes=0)) as writer:
        writer.append(packets[:half])
        process = start("record", "--log", str(log), "--out", str(out), "--interval", "0.2")
        assert wait_until(process, lambda: len(stored(out)) == half)
        workers = [pid for pid in descendants(process.pid) if is_python_worker(pid)]
        assert workers
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        writer.append(packets[half:])
        assert wait_until(process, lambda: len(stored(out)) == len(packets)), process.poll()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert stored(out) == [(packet.an, packet.payload) for packet in packets]
    assert verify(None, Archive(out)).problems == []
