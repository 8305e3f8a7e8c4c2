"""`python -m demo` as a process, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from demo.run.lifeline import die_with_parent

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SMALL = ["--roots", "2", "--routers", "2", "--clients", "2", "--dht-nodes", "1", "--copies", "2"]
PATIENCE = 120.0


def demo(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, **options)


class RunningDemo:
    """With its page. A session of its own, so that everything that belongs to it can be found."""

    def __init__(self, *arguments: str) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "demo", *arguments],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
            preexec_fn=die_with_parent,  # a test run that is killed leaves none behind either
        )
        self.url = ""

    def wait_page(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "http://127.0.0.1:" in line, line
        self.url = line.split("open")[1].strip()
        return self.url

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    def processes(self) -> list[int]:
        """All that are alive and were started by it, itself included."""
        return [pid for pid, session, state in _all_processes() if session == self._process.pid and state != "Z"]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def said(self) -> str:
        """What it wrote to stderr so far."""
        self._said.seek(0)
        return self._said.read().decode()

    def close(self) -> None:
        """AssertionError when it had ended by itself."""
        code = self._process.poll()
        if code is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        said = self.said()
        self._said.close()
        assert code in (None, 130, -signal.SIGKILL), f"the demo ended by itself with {code}: {said[-3000:]}"


def wait_for(condition, what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come true within {patience:.0f} s"
        time.sleep(0.05)


def _all_processes() -> list[tuple[int, int, str]]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found.append((int(name), int(fields[3]), fields[0]))
    return found
