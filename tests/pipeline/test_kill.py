"""SIGKILL of drivers and workers at random moments: nothing lost, nothing twice, nothing half-written.

Every life is a Spark of its own, so these are of `make soak`; in `make test` test_archive.py dies at every step of a
commit. KILLS in the environment changes how often (10).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peer.packetlog import LogConfig, Packet, Writer
from pipeline.archive import Archive
from pipeline.flights import Feed
from pipeline.replay import iterate
from tests.pipeline.conftest import NOON, SHORT_LIVED

KILLS = int(os.environ.get("KILLS", "10"))
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
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The whole job dies at once: driver, JVM, workers. Only what this test has started."""
    for pid in [process.pid, *descendants(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def is_python_worker(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def wait_until(process: subprocess.Popen[bytes], condition, seconds: float = 100) -> bool:
    """Until it holds, or the process has ended, or the time is up."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        if condition():
            return True
        time.sleep(0.05)
    return False


def raw_file(directory: Path, seconds: int) -> list:
    packets = []
    with (directory / "asdi-2026-11-16.txt").open("w") as file:
        for line in Feed(copies=8).lines(NOON, NOON + seconds):
            file.write(line.text + "\n")
            packets.append(line)
    return packets


def ingest_under_fire(tmp_path: Path, kills: int, seconds: int) -> None:
    seed = random.randrange(1 << 32)
    moment = random.Random(seed)
    raw, out = tmp_path / "raw", tmp_path / "archive"
    raw.mkdir()
    lines = raw_file(raw, seconds)
    words = ["ingest", str(raw), "--out", str(out), "--first-an", str(lines[0].an)]
    staging = out / "_staging"
    for life in range(kills):
        process = start(*words)
        # From the moment it has begun to write: before that there is nothing to spoil.
        wait_until(process, lambda: staging.is_dir() and any(staging.glob("*/packets")))
        wait_until(process, lambda: False, moment.random() * 3)
        if life % 2 and process.poll() is None:
            # A worker only: Spark runs its task again, and the job ends well, or this life ends like the others.
            workers = [pid for pid in descendants(process.pid) if is_python_worker(pid)]
            for pid in moment.sample(workers, min(1, len(workers))):
                os.kill(pid, signal.SIGKILL)
            wait_until(process, lambda: False, 3)
        kill_all(process)
        # A reader sees everything or nothing, and every file that the manifest names is whole.
        stored = [packet.an for packet in iterate(out)] if Archive(out).exists() else []
        assert stored in ([], [line.an for line in lines]), f"seed {seed}"
    process = start(*words)
    assert process.wait(timeout=300) == 0, f"seed {seed}"
    assert [packet.an for packet in iterate(out)] == [line.an for line in lines], f"seed {seed}"
    check(out, seed)


def check(out: Path, seed: int) -> None:
    process = start("verify", str(out))
    assert process.wait(timeout=300) == 0, f"seed {seed}"
    named = {file.path for file in Archive(out).manifest().files}
    present = {str(path.relative_to(out)) for path in (out / "packets").rglob("*.parquet")}
    assert present == named, f"seed {seed}"


def record_under_fire(tmp_path: Path, kills: int) -> None:
    """A log that grows while its reader is killed again and again."""
    seed = random.randrange(1 << 32)
    moment = random.Random(seed)
    log, out = tmp_path / "log", tmp_path / "archive"
    packets = [Packet(p.an, p.time * 1_000_000, p.payload) for p in Feed(copies=8).packets(NOON, NOON + 900)]
    step = len(packets) // (kills + 1)
    words = ["record", "--log", str(log), "--out", str(out), "--interval", "0.2", "--max-records", "500"]
    with Writer(log, LogConfig(max_segment_bytes=200_000, sync_bytes=0)) as writer:
        writer.append(packets[:step])
        for life in range(1, kills + 1):
            before = Archive(out).manifest().version
            process = start(*words)
            wait_until(process, lambda at=before: Archive(out).manifest().version > at)
            writer.append(packets[step * life : step * (life + 1)])
            wait_until(process, lambda: False, moment.random() * 2)
            kill_all(process)
        writer.append(packets)  # what is left; repeats are not taken
    process = start(*words, "--once")
    assert process.wait(timeout=300) == 0, f"seed {seed}"
    stored = [(packet.an, packet.payload) for packet in iterate(out)]
    assert stored == [(packet.an, packet.payload) for packet in packets], f"seed {seed}"
    check(out, seed)


@marked
@pytest.mark.soak
def test_ingest_survives_ten_kills(tmp_path):
    ingest_under_fire(tmp_path, kills=KILLS, seconds=3600)


@marked
@pytest.mark.soak
def test_record_survives_ten_kills(tmp_path):
    record_under_fire(tmp_path, kills=KILLS)
