"""The roots that the desktop example starts for itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.peer.cli.command import REPOSITORY, clean_environment

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]
STARTER = """
import time
from demo.desktop.demomesh import DemoMesh
with DemoMesh("air", 1.0, roots=1) as mesh:
    print(*(process.pid for process in mesh.processes), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_roots_do_not_outlive_a_killed_window():
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=clean_environment()
    )
    assert starter.stdout is not None
    root = Path("/proc", starter.stdout.readline().strip())
    assert root.exists()
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    deadline = time.monotonic() + 60
    while root.exists() and "Z (zombie)" not in (root / "status").read_text():
        assert time.monotonic() < deadline, "the root outlived what started it"
        time.sleep(0.02)
