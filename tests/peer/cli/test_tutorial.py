"""Every command of docs/tutorial.md and docs/first-steps.md, in the order of the page, in one shell.

Only ports are changed, and for the first steps where peers find each other: other tests run meshes on this host.
"""

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
FIRST_STEPS = (REPOSITORY / "docs" / "first-steps.md").read_text()
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


def tutorial() -> str:
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL))
    assert script.count("skymesh ") > 10
    for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
        assert f"127.0.0.1:{name}" in script
        script = script.replace(f"127.0.0.1:{name}", f"127.0.0.1:{port}")
    return script


def first_steps() -> tuple[str, list[str]]:
    """The commands of the log, with addresses, and what it says that they print."""
    log = "".join(re.findall(r"```console\n(.*?)```", FIRST_STEPS, flags=re.DOTALL)).splitlines()
    commands = [line[2:] for line in log if line.startswith(("$ ", "> "))]
    printed = [line for line in log if not line.startswith(("$ ", "> "))]
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    script = "\n".join(commands).replace("demo:45", "demo:300")
    for old, new in (
        ("root asdi --feed demo:300 --owner asdi.key --name newark", f"--listen {first}"),
        ("root asdi --feed demo:300 --owner asdi.key --name logan", f"--listen {second} --bootstrap {first}"),
        ("join asdi", f"--bootstrap {first} --bootstrap {second}"),
        ("status asdi", f"--bootstrap {first}"),
    ):
        assert f"skymesh {old}" in script, old
        script = script.replace(f"skymesh {old}", f"skymesh {old} {new}")
    host, port = second.split(":")
    joined = f'join("asdi", bootstrap=[("{host}", {port})], beacon=False,'
    assert 'join("asdi",' in script
    return script.replace('join("asdi",', joined), printed


def run_in_shell(folder: Path, script: str) -> str:
    """What it printed; it must end well. Processes that it leaves behind end with it."""
    for name, module in (("skymesh", "-m peer"), ("python", "")):
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        command.chmod(0o755)
    environment = clean_environment() | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "PEER_BEACON": "false",
    }
    shell = subprocess.Popen(
        ["bash", "-c", "set -eu\n" + script],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
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
    return said


def shape(text: str) -> str:
    """A line without what differs from run to run: numbers, addresses, keys, flights, and the width of columns."""
    without_keys = re.sub(r"\b[a-z2-7]{32}\b|\b[A-Z]{3}\d+\b", "#", text)
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.:,]*|-(?= |$)", "#", without_keys)).strip()


@pytest.mark.timeout(300)
def test_the_first_steps_print_what_the_page_shows(tmp_path):
    script, printed = first_steps()
    said = run_in_shell(tmp_path, script)
    shapes = {shape(line) for line in said.splitlines()}
    missing = [line for line in printed if line and shape(line) not in shapes]
    assert not missing, said


@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(tmp_path):
    said = run_in_shell(tmp_path, tutorial())
    assert "accepted" in said
    assert "no gap" in said
    assert "200 flights.jsonl" in said
    assert "every peer has the parents it wants" in said
    lines = [json.loads(line) for line in (tmp_path / "flights.jsonl").read_text().splitlines()]
    ans = [line["an"] for line in lines]
    assert len(ans) == 200
    assert ans == sorted(set(ans))
