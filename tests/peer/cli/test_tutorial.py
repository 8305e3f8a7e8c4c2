"""Every command of docs/tutorial.md, in the order of the page, in one shell: only names of ports are changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peer.cli.command import REPOSITORY, clean_environment

pytestmark = [
    pytest.mark.net,
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]
PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text()
PORTS = ("4000", "4001", "4002", "4003")


def free_ports(count: int) -> list[int]:
    """Free at this moment, all different."""
    probes = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def session(folder: Path) -> str:
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL))
    assert script.count("skymesh ") > 10
    for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
        assert f"127.0.0.1:{name}" in script
        script = script.replace(f"127.0.0.1:{name}", f"127.0.0.1:{port}")
    command = folder / "skymesh"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m peer "$@"\n')
    command.chmod(0o755)
    return "set -eu\n" + script


@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(tmp_path):
    environment = clean_environment() | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "PEER_BEACON": "false",  # other tests run meshes on this host
    }
    shell = subprocess.Popen(
        ["bash", "-c", session(tmp_path)],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = shell.communicate(timeout=280)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    assert shell.returncode == 0, said
    assert "Traceback" not in said
    assert "accepted" in said
    assert "no gap" in said
    assert "200 flights.jsonl" in said
    assert "every peer has the parents it wants" in said
    lines = [json.loads(line) for line in (tmp_path / "flights.jsonl").read_text().splitlines()]
    ans = [line["an"] for line in lines]
    assert len(ans) == 200
    assert ans == sorted(set(ans))
