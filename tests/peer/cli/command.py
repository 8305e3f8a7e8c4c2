"""The real commands in subprocesses, on loopback, off the beacon: tests wait for what they say, never for time."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE = 60.0
# Warnings are errors for a program as for the tests, but for what trio-asyncio does to Python 3.12 and later.
STRICT = (sys.executable, "-W", "error", "-W", "ignore:'AbstractChildWatcher' is deprecated:DeprecationWarning")
LOCAL = ("--listen", "127.0.0.1:0", "--no-beacon")


class Running:
    """A command that runs. Its output is collected by threads, so that no pipe ever fills."""

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        stdin: int | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "peer", *arguments],
            cwd=REPOSITORY,
            env=clean_environment() | (environment or {}),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._changed = threading.Condition()
        self.out: list[bytes] = []
        self.err: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._threads = [
            threading.Thread(target=self._collect, args=(self.process.stdout, self.out, bytes), daemon=True),
            threading.Thread(target=self._collect, args=(self.process.stderr, self.err, bytes.decode), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, pipe, lines: list, convert) -> None:
        for line in pipe:
            with self._changed:
                lines.append(convert(line))
                self._changed.notify_all()

    def until(self, condition: Callable[[], object]) -> None:
        """Until something it wrote makes the condition true."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, f"waited {PATIENCE} s for {self.process.args}\n{self.text}"
                assert self.process.poll() is None or self._changed.wait(0.5) or condition(), self.text
                self._changed.wait(min(left, 0.5))

    def says(self, words: str) -> str:
        """The first line on stderr with these words."""
        self.until(lambda: any(words in line for line in self.err))
        return next(line for line in self.err if words in line)

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        code = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        return code

    @property
    def text(self) -> str:
        return "".join(self.err)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


def clean_environment() -> dict[str, str]:
    """No settings of whoever runs the tests."""
    dropped = ("PEER_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "PYTHONPYCACHEPREFIX": compiled_folder()}


@functools.cache
def compiled_folder() -> str:
    """Compiled once for all commands that a test process starts, outside the checkout: a start costs half as much."""
    folder = tempfile.mkdtemp(prefix="skymesh-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def running(*arguments: str, **options) -> Iterator[Running]:
    command = Running(*arguments, **options)
    try:
        yield command
    finally:
        command.close()


@contextmanager
def root(*arguments: str, stream: str = "asdi", **options) -> Iterator[tuple[Running, str]]:
    """A root and its address, for --bootstrap."""
    with running("root", "--roots-key", stream, *LOCAL, *arguments, **options) as command:
        line = command.says("skymesh: root of")
        yield command, line.split(" on ")[1].split(",")[0]


def call(*arguments: str, environment: dict[str, str] | None = None, data: bytes = b"") -> subprocess.CompletedProcess:
    """A command that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "peer", *arguments],
        cwd=REPOSITORY,
        env=clean_environment() | (environment or {}),
        input=data,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
