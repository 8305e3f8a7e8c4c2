"""A mesh of an earlier version, upgraded peer by peer in the order that docs/operations gives: nothing is lost.

The earlier version is real: taken out of the repository's history, and run as processes beside the present one.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("processes")]

HOME = Path(__file__).parents[3]
EARLIER = "a7a1da4"
"""The last commit before links were encrypted and packets signed."""
RATE = 50
PATIENCE = 60.0


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The folder of the earlier version."""
    folder = tmp_path_factory.mktemp("earlier")
    archive = subprocess.run(
        ["git", "archive", EARLIER, "asdi", "dcp", "dht", "peer", "pipeline", "xmlswitch"],
        cwd=HOME,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"needs the repository's history with {EARLIER}: {archive.stderr.decode().strip():.200}")
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return folder


class Worker:
    """A process; `items` is what it was handed."""

    def __init__(self, home, **given):
        self.given = given
        self.items = []
        self._answers = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", Path(__file__).with_name("worker.py"), json.dumps(given)],
            env=os.environ | {"PYTHONPATH": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        said = self._answers.get(timeout=PATIENCE)
        self.address = said["address"]
        assert Path(said["home"]).is_relative_to(home)

    def _read(self):
        for line in self._process.stdout:
            said = json.loads(line)
            if "an" in said or "gap" in said:
                self.items.append(said)
            else:
                self._answers.put(said)

    def tell(self, *command):
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def ask(self, *command):
        self.tell(*command)
        return self._answers.get(timeout=PATIENCE)

    def leave(self):
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._reader.join()
        self._process.stdout.close()

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
            self.leave()

    @property
    def last(self):
        return next((said["an"] for said in reversed(self.items) if "an" in said), 0)


class Mesh:
    def __init__(self, folder, earlier):
        self.folder, self.versions = folder, {"old": earlier, "new": HOME}
        self.workers = {}
        self.handed = {}
        self.start_at = time.monotonic() + 3_600
        self.end = 1 << 40

    def start(self, version, name, make="join", **given):
        given["identity"] = str(self.folder / f"{name}.key")
        if make == "root":
            given |= {"owner": str(self.folder / "owner.key"), "keep_numbers": False}
        others = [worker.address for key, worker in self.workers.items() if key.startswith("root") and key != name]
        given = {"make": make, "stream": "s", "bootstrap": others} | given
        self.workers[name] = Worker(self.versions[version], **given)
        if make == "root" and time.monotonic() > self.start_at:
            self.workers[name].tell("feed", self.start_at, RATE, self.end)

    def feed(self):
        self.start_at = time.monotonic()
        for name, worker in self.workers.items():
            if name.startswith("root"):
                worker.tell("feed", self.start_at, RATE, self.end)

    def upgrade(self, name, **more):
        """In the place of the old one. A client goes on after the last packet that it was handed."""
        old = self.workers[name]
        old.leave()
        self.handed.setdefault(name, []).extend(old.items)
        given = {key: value for key, value in old.given.items() if key not in ("bootstrap", "start", "unsigned")}
        if given["make"] == "join" and old.items:
            given["start"] = str(self._last(name) + 1)
        self.start("new", name, **given | {"listen": old.address} | more)
        if given["make"] == "join":
            self.workers[name].ask("parents", 2)

    def _last(self, name):
        return max((said["an"] for said in self.handed[name] if "an" in said), default=0)

    def everything_of(self, name):
        return self.handed.get(name, []) + self.workers[name].items

    def wait_for_more(self, packets=RATE):
        """Every client is handed so many more packets."""
        wanted = {name: worker.last + packets for name, worker in self.workers.items() if name.startswith("client")}
        deadline = time.monotonic() + PATIENCE
        while any(self.workers[name].last < an for name, an in wanted.items()):
            assert time.monotonic() < deadline, {name: self.workers[name].last for name in wanted} | {"for": wanted}
            time.sleep(0.05)


@pytest.fixture
def mesh(tmp_path, earlier):
    running = Mesh(tmp_path, earlier)
    yield running
    for worker in running.workers.values():
        worker.kill()


@pytest.mark.timeout(300)
def test_every_peer_is_upgraded_in_turn_and_no_client_misses_a_packet(mesh):
    for name in ("root0", "root1"):
        mesh.start("old", name, "root")
    mesh.start("old", "router", parents=2)
    mesh.start("old", "client0", parents=2, capacity=0, query="/p/c > 2")
    mesh.start("old", "client1", parents=2, capacity=0)
    for name in ("router", "client0", "client1"):
        mesh.workers[name].ask("parents", 2)
    mesh.feed()
    mesh.wait_for_more()
    for name in ("router", "client0", "client1"):
        mesh.upgrade(name)
        mesh.wait_for_more()
    for name in ("root0", "root1"):
        mesh.upgrade(name)  # and now it signs
        mesh.wait_for_more()
    for name in ("client0", "client1"):
        items = mesh.everything_of(name)
        assert [said for said in items if "gap" in said] == []
        handed = [said["an"] for said in items]
        wanted = [an for an in range(handed[0], handed[-1] + 1) if name == "client1" or an % 5 > 2]
        assert handed == wanted
        state = mesh.workers[name].ask("state")
        assert (set(state.pop("encrypted")), state) == ({True}, {"signed": True, "disputed": 0})
