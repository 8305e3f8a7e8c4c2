"""The image of docs/operations/Containerfile, built and run, where there are buildah and debootstrap, and root.

No registry of images is asked: the base is a minimal Debian with its own Python, made with debootstrap.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.peer.cli.command import PATIENCE, REPOSITORY, call

TOOLS = ("buildah", "debootstrap", "apt-get")
CAN_BUILD = os.geteuid() == 0 and all(map(shutil.which, TOOLS))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.net,
    pytest.mark.skipif(not CAN_BUILD, reason=f"needs root and {', '.join(TOOLS)}"),
]


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{words}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory):
    """Everything that it stores is in a folder of the test's."""
    folder = tmp_path_factory.mktemp("containers")
    tool = ("buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs")

    def command(*words: str) -> tuple[str, ...]:
        return (*tool, *words)

    yield command
    run(*command("rm", "--all"))
    run(*command("rmi", "--all", "--force"))


@pytest.fixture(scope="module")
def container(buildah, tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    site = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)").split()
    run(
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-venv,ca-certificates",
        site[1],
        str(base),
        site[0],
    )
    (base / "usr" / "bin" / "python").symlink_to("python3")
    empty = run(*buildah("from", "scratch"))
    run(*buildah("add", "--quiet", empty, str(base), "/"))
    run(*buildah("commit", "--quiet", empty, "localhost/base"))
    certificates = ("--volume", "/etc/ssl/certs:/etc/ssl/certs:ro")
    file = str(REPOSITORY / "docs" / "operations" / "Containerfile")
    given = ("--build-arg", "BASE=localhost/base", "--pull-never", "--isolation", "chroot", "--network", "host")
    run(*buildah("bud", "--quiet", *given, *certificates, "-f", file, "-t", "skymesh", str(REPOSITORY)))
    return run(*buildah("from", "--pull-never", "localhost/skymesh"))


@contextmanager
def running(command: tuple[str, ...]):
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def test_the_image_runs_as_a_user_of_its_own_and_serves_a_stream(buildah, container):
    enter = buildah("run", "--isolation", "chroot", "--network", "host", container, "--")
    assert run(*enter, "skymesh", "--version").startswith("skymesh ")
    assert run(*enter, "id", "-un") == "skymesh"
    root = ("skymesh", "root", "asdi", "--feed", "demo:45", "--no-beacon", "--listen", "127.0.0.1:0")
    with running((*enter, *root)) as process:
        assert process.stderr is not None
        place = ""
        deadline = time.monotonic() + PATIENCE
        while "--bootstrap" not in place:
            assert time.monotonic() < deadline
            place = process.stderr.readline()
        address = place.split()[-1]
        done = call("join", "asdi", "--no-beacon", "--bootstrap", address, "--leaf", "--parents", "1", "--count", "3")
        assert done.returncode == 0
        assert done.stdout.count(b"<flight>") == 3
