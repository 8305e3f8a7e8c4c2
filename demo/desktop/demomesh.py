"""Two roots with the built-in feed, each a process of its own: what `--demo` shows; kill one to see the lamp."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from demo.run import scratch
from demo.run.lifeline import die_with_parent
from dht.addresses import endpoint_text, parse_endpoint

PATIENCE = 10.0


class DemoMesh:
    def __init__(self, stream: str, speed: float, roots: int = 2) -> None:
        self._stream, self._speed, self._roots = stream, speed, roots
        scratch.sweep()
        self._folder = tempfile.TemporaryDirectory(prefix=scratch.prefix())
        self.processes: list[subprocess.Popen[str]] = []
        self.addresses: list[tuple[str, int]] = []

    def __enter__(self) -> DemoMesh:
        try:
            for _ in range(self._roots):
                self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self) -> None:
        reach = [word for address in self.addresses[:1] for word in ("--bootstrap", endpoint_text(address))]
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "peer", "root", "--roots-key", self._stream, "--feed", "demo"),
                *("--speed", f"{self._speed:g}", "--owner", str(Path(self._folder.name) / "owner.key")),
                *("--listen", "127.0.0.1:0", "--no-beacon", *reach),
            ],
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=die_with_parent,
        )
        self.processes.append(process)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "root of" in line and " on " in line:
                self.addresses.append(parse_endpoint(line.split(" on ", 1)[1].split(",", 1)[0]))
                return
        raise RuntimeError(f"a root did not start: {''.join(said).strip()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()
        self._folder.cleanup()
