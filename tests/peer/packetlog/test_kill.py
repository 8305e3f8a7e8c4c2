"""Real processes that die: kill -9 at random moments, a disk that is full, two writers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peer.packetlog import Packet, Reader, Writer

# Appends packets from wherever the log ends, forever, telling on stdout what it has appended.
RECORDER = """
import sys
from peer.packetlog import Gap, LogConfig, Packet, Writer
writer = Writer(sys.argv[1], LogConfig(max_segment_bytes=20_000, sync_bytes=5_000))
an = writer.last_an + 1
while True:
    batch = [Packet(n, n, b"%d " % n * (n % 40)) for n in range(an, an + 7)]
    writer.append(batch)
    an += 7
    print(writer.position, flush=True)
"""

FILLER = """
import resource, sys
from peer.packetlog import LogFull, Packet, Writer
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
writer = Writer(sys.argv[1])
try:
    for an in range(10_000):
        writer.append([Packet(an, an, bytes(100))])
except LogFull as full:
    print(full)
    writer.close()
    sys.exit(3)
"""


def start(code: str, directory: Path) -> subprocess.Popen[str]:
    # -B: no compiled file is written under FILLER's limit on the size of files, which would cut it short.
    return subprocess.Popen([sys.executable, "-B", "-c", code, str(directory)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_and_repeats_nothing(tmp_path):
    """Ten lives of one log. What a life said it had appended is there in the next, and readers never see it change."""
    seed = random.randrange(1 << 32)
    moment = random.Random(seed)
    reader = Reader(tmp_path)
    seen: list[tuple[int, Packet]] = []
    for _ in range(10):
        process = start(RECORDER, tmp_path)
        assert process.stdout is not None
        told = int(process.stdout.readline())
        # Let it live for a random number of its own steps, reading along, then kill it in the middle of one.
        for _ in range(moment.randrange(200)):
            told = int(process.stdout.readline())
            if moment.random() < 0.05:
                seen += reader.iterate(len(seen))
        time.sleep(moment.random() * 0.002)  # not for luck: it moves the moment of death within a step
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        told = max([told, *map(int, rest[:-1])])
        with Writer(tmp_path) as writer:
            assert writer.position >= told, f"seed {seed}"
    seen += reader.iterate(len(seen))
    assert [position for position, _ in seen] == list(range(len(seen))), f"seed {seed}"
    assert [entry for _, entry in seen] == [Packet(n, n, b"%d " % n * (n % 40)) for n in range(len(seen))]
    assert reader.verify()["records"] == len(seen)


def test_a_full_disk_is_told_and_harms_nothing(tmp_path):
    process = start(FILLER, tmp_path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert output.startswith("no room to write")
    whole = Reader(tmp_path).verify()["records"]
    assert whole > 50
    with Writer(tmp_path) as writer:
        assert (writer.repair, writer.position) == (None, whole)
        writer.append([Packet(99_999, 0, b"there is room again")])


def test_a_dead_writer_leaves_no_lock(tmp_path):
    process = start(RECORDER, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    Writer(tmp_path).close()
