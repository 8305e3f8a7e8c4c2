"""Real processes: roots, joins, bridge, record, replay and status on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
import trio

import dcp
import peer
from peer import blocking, packetlog
from peer.cli import record as cli_record
from peer.cli.errors import ExitCode
from peer.trust.recording import ProofWriter
from tests.peer.cli.command import LOCAL, PATIENCE, REPOSITORY, Running, clean_environment, root, running
from tests.peer.cli.inprocess import call_here, root_here

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("cli")]
JOIN = ("join", "--roots-key", "asdi", *LOCAL)
DOCUMENTS = [b"<p><n>%d</n></p>" % number for number in range(60)]


def feed_file(folder: Path) -> str:
    path = folder / "feed.xml"
    path.write_bytes(b"".join(DOCUMENTS))
    return str(path)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A root in this process with sixty packets behind it, for every test that only needs one to be there."""
    with root_here(feed_file(tmp_path_factory.mktemp("feed")), rate=0) as address:
        yield address


def test_what_goes_to_stdout(address, capfd):
    reach = (*JOIN, "--bootstrap", address, "--timeout", str(PATIENCE), "--leaf", "--parents", "1")
    done = call_here(capfd, *reach, "--from", "oldest", "--count", "60")
    assert done.code == 0, done.err
    assert done.out.splitlines() == DOCUMENTS
    done = call_here(
        capfd, *reach, "--from", "11", "--query", "/p/n >= 50", "--format", "jsonl", "--count", "10",
    )  # fmt: skip
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["an"] for line in lines] == list(range(51, 61))
    assert {line["stream"] for line in lines} == {"asdi"}
    assert [line["xml"].encode() for line in lines] == DOCUMENTS[50:]
    assert all(line["received"] > 1e9 and "latency_ms" not in line for line in lines)
    done = call_here(capfd, *reach, "--from", "oldest", "--count", "60", "--format", "raw")
    assert done.out == b"".join(DOCUMENTS)
    done = call_here(capfd, *reach, "--from", "oldest", "--count", "60", "--format", "none")
    assert (done.code, done.out) == (0, b"")


def test_a_file_goes_through_a_router_to_a_client(address, capfd):
    """The router is a process; the client knows only the router's address."""
    with running(*JOIN, "--bootstrap", address, "--parents", "1", "--from", "oldest", "--log-json", "--log-level",
                 "info") as router:  # fmt: skip
        router.until(lambda: len(router.out) == 60)
        gained = json.loads(router.says("ParentGained"))
        assert (gained["event"], gained["level"]) == ("ParentGained", "info")
        assert (gained["fields"]["address"], gained["fields"]["level"]) == (address, 0)
        opened = json.loads(router.says('"Open"'))
        assert opened["message"].startswith("asdi: open on 127.0.0.1:")
        assert all(json.loads(line)["time"] > 1e9 for line in router.err)
        own = opened["message"].rsplit(" ", 1)[1]
        done = call_here(capfd, *JOIN, "--leaf", "--bootstrap", own, "--from", "oldest", "--parents", "2", "--count",
                         "60", "--timeout", str(PATIENCE))  # fmt: skip
        assert done.out.splitlines() == DOCUMENTS


def test_two_roots_with_one_owner_and_the_death_of_one(tmp_path):
    """The demo feed at two roots started apart: one stream, and kill -9 of a root is not even noticed."""
    feed = ("--feed", "demo", "--rate", "50", "--stamp", "--owner", str(tmp_path / "owner.key"))
    with root(*feed) as (first, address), root(*feed, "--bootstrap", address) as (second, other):
        with running(*JOIN, "--leaf", "--bootstrap", address, "--bootstrap", other, "--format", "jsonl",
                     "--status-file", str(tmp_path / "status.json")) as client:  # fmt: skip
            client.until(lambda: len(client.out) > 20 and has_parents(tmp_path / "status.json", 2))
            first.process.kill()
            seen = len(client.out)
            client.until(lambda: len(client.out) > seen + 100)
            assert client.stop() == ExitCode.INTERRUPTED
        lines = [json.loads(line) for line in client.out]
        assert not any("gap" in line for line in lines)
        ans = [line["an"] for line in lines]
        assert ans == list(range(ans[0], ans[0] + len(ans)))
        assert all(line["latency_ms"] > -50 for line in lines)
        assert "Traceback" not in client.text + second.text


def has_parents(path: Path, count: int) -> bool:
    return path.exists() and json.loads(path.read_text())["parents_sound"] == count


def test_ctrl_c_leaves_the_mesh_and_withdraws_the_record(tmp_path, capfd):
    """And the demo feed at 120 times its speed: at its own it says a few things a second."""
    with root("--feed", "demo", "--speed", "120") as (serving, address):
        with running(*JOIN, "--bootstrap", address, "--parents", "1", "--format", "none",
                     "--status-file", str(tmp_path / "status.json")) as router:  # fmt: skip
            router.until(lambda: has_parents(tmp_path / "status.json", 1))
            router.until(lambda: json.loads((tmp_path / "status.json").read_text())["packets"] > 150)
            listed = wait_for_peers(capfd, address, 2)
            assert sorted(peer["role"] for peer in listed["peers"]) == ["root", "router"]
            assert router.stop(signal.SIGINT) == ExitCode.INTERRUPTED
            assert "Traceback" not in router.text
        shown = wait_for_peers(capfd, address, 1)
        assert [peer["role"] for peer in shown["peers"]] == ["root"]
        assert serving.stop(signal.SIGTERM) == ExitCode.OK
        assert "Traceback" not in serving.text


def wait_for_peers(capfd, address: str, count: int) -> dict:
    """The mesh as `status` sees it, once it has so many peers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        done = call_here(capfd, "status", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--json")
        view = json.loads(done.out)
        if len(view["peers"]) == count:
            return view
        assert time.monotonic() < deadline, view


def test_status_as_tree_graph_and_exit_code(capfd, tmp_path):
    with root_here(feed_file(tmp_path), rate=0) as address:
        host, port = address.split(":")
        # One root can't give two parents: the mesh works, and is less safe than was asked for.
        with blocking.join("asdi", bootstrap=[(host, int(port))], beacon=False, parents=2, query="/p/n > 5") as router:
            assert isinstance(router.get(PATIENCE), peer.Started)
            view = wait_for_peers(capfd, address, 2)
            assert sorted((each["role"], each["query"]) for each in view["peers"]) == [
                ("root", None),
                ("router", "/p/n > 5"),
            ]
            reach = ("--roots-key", "asdi", *LOCAL, "--bootstrap", address)
            done = call_here(capfd, "status", *reach)
            text = done.out.decode()
            assert done.code == ExitCode.NOT_ALL, text
            assert "2 peers, 1 root; 1 with fewer parents than wanted" in text
            assert " 1/2! " in text
            assert text.count("└ ") == 1
            graph = call_here(capfd, "status", *reach, "--dot").out.decode()
            assert graph.startswith('digraph "asdi" {')
            assert graph.count("->") == 1


def test_streams_lists_what_there_is_and_status_refuses_what_there_is_not(capfd, tmp_path):
    with root_here(feed_file(tmp_path), rate=0) as address:
        host, port = address.split(":")
        with blocking.join("asdi", bootstrap=[(host, int(port))], beacon=False, parents=1, name="tower") as router:
            assert isinstance(router.get(PATIENCE), peer.Started)
            view = wait_for_peers(capfd, address, 2)
            assert sorted(each["name"] for each in view["peers"]) == ["", "tower"]
            reach = (*LOCAL, "--bootstrap", address)
            found = json.loads(call_here(capfd, "streams", *reach, "--json").out)
            assert [(each["stream"], each["roots"], each["peers"]) for each in found] == [("asdi", 1, 2)]
            assert call_here(capfd, "streams", *reach).out.startswith(b"STREAM  ROOTS  PEERS  PACKETS/S\nasdi ")
            done = call_here(capfd, "status", "asdj", *reach, "--find-timeout", "0.2")
            assert done.code == ExitCode.STREAM_UNAVAILABLE
            assert done.out == b""


def test_join_says_when_it_has_fewer_parents_than_it_asked_for_and_when_that_changes(tmp_path):
    owner = str(tmp_path / "o.key")
    with root("--feed", "demo", "--owner", owner) as (_, place):
        reach = (*LOCAL, "--bootstrap", place)
        with running("join", "asdi", "--parents", "2", "--format", "jsonl", *reach) as join:
            join.until(lambda: "1 of 2 parents: no spare yet" in join.text)
            with running("root", "asdi", "--feed", "demo", "--owner", owner, *reach):
                join.until(lambda: "2 of 2 parents\n" in join.text)
            assert join.text.count("1 of 2 parents") == 1
            assert join.stop() == ExitCode.INTERRUPTED


def test_status_watches_until_it_is_stopped(address):
    with running("status", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--json", "--watch", "--interval",
                 "0.1") as status:  # fmt: skip
        status.until(lambda: len(status.out) >= 3)
        assert status.stop() == ExitCode.INTERRUPTED
        assert status.text == ""


def test_a_recording_goes_on_where_it_was_killed(tmp_path, address, capfd):
    log = str(tmp_path / "log")
    reach = ("--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--out", log)
    done = call_here(capfd, "record", *reach, "--from", "oldest", "--count", "25", "--timeout", str(PATIENCE))
    assert done.code == 0, done.err
    # The rest of what the parent has comes next, without gap or repeat; kill -9 takes nothing of it back.
    with running("record", *reach) as recording:
        recording.says("going on after AN 25")
        wait_for_packets(log, 60)
        recording.process.kill()
        recording.end()
    replayed = call_here(capfd, "replay", log, "--format", "jsonl")
    lines = [json.loads(line) for line in replayed.out.splitlines()]
    assert {line["stream"] for line in lines} == {"asdi"}, "not the name of the folder"
    assert [line["an"] for line in lines] == list(range(1, 61))
    assert [line["xml"].encode() for line in lines] == DOCUMENTS
    assert call_here(capfd, "replay", log, "--from", "31", "--count", "2").out.splitlines() == DOCUMENTS[30:32]
    with root_here(f"log:{log}", stream="again", rate=0) as second:
        done = call_here(
            capfd, "join", "--roots-key", "again", *LOCAL, "--bootstrap", second, "--leaf", "--parents", "1", "--from",
            "oldest", "--count", "60", "--timeout", str(PATIENCE),
        )  # fmt: skip
        assert done.out.splitlines() == DOCUMENTS


def wait_for_packets(log: str, count: int) -> None:
    from peer.packetlog import Reader

    reader = Reader(log, durable=False)
    deadline = time.monotonic() + PATIENCE
    while reader.end_position() < count:
        assert time.monotonic() < deadline, f"only {reader.end_position()} of {count} packets were recorded"
        time.sleep(0.05)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)])
def test_a_recording_that_is_told_twice_to_end_is_synced(tmp_path, numbers):
    """Spark's end did that: the second signal cut the first one's farewell short, and the log's tail was not marked."""
    log = tmp_path / "log"
    with (
        root_here("demo", rate=300) as address,
        running("record", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--out", str(log),
                "--sync-seconds", "60") as recording,
    ):  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not (log.is_dir() and packetlog.Reader(log, durable=False).end_position() > 50):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for number in numbers:
            recording.process.send_signal(number)
        assert recording.end() == ExitCode.OK
    assert packetlog.Reader(log).end_position() == packetlog.Reader(log, durable=False).end_position() > 50


async def test_a_recording_is_on_the_disk_before_its_peer_leaves_the_mesh(tmp_path):
    """Leaving takes seconds on a busy machine, and whoever ended the recorder may not wait: its tail was unmarked."""

    class Source:
        def __init__(self):
            self.items = [[dcp.Packet(an, b"<p/>") for an in range(50)]]
            self.is_logged = trio.Event()

        def keep_envelopes(self, keep):
            return None

        async def receive_many(self):
            if self.items:
                return self.items.pop()
            self.is_logged.set()
            await trio.sleep_forever()

    source = Source()
    settings = {"count": None, "timeout": None, "sync_seconds": 60.0}
    with packetlog.Writer(tmp_path) as writer:
        async with trio.open_nursery() as nursery:
            proofs = ProofWriter(tmp_path, writer.config, "s")
            nursery.start_soon(cli_record._write, source, writer, proofs, settings)
            await source.is_logged.wait()
            nursery.cancel_scope.cancel()
        assert packetlog.Reader(tmp_path).end_position() == 50


def test_a_bridge_serves_plain_tcp():
    separator = b"\0"  # a newline by default: tests/peer/test_tcp.py
    with (
        root_here("demo", rate=100) as address,
        running("bridge", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--to",
                "tcp-listen://127.0.0.1:0", "--query", "//altitude > 100", "--separator", "nul", "--metrics",
                "127.0.0.1:0") as bridge,
    ):  # fmt: skip
        port = int(bridge.says("readers connect to").rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as reader:
            came = b""
            while came.count(separator) < 5:
                came += reader.recv(4_096)
        assert all(part.startswith(b"<?xml") and b"<altitude" in part for part in came.split(separator)[:5])
        assert b"\n" not in came
        assert "skymesh_packets_total" in scrape(bridge)
        assert bridge.stop() == ExitCode.INTERRUPTED
        assert "Traceback" not in bridge.text


@pytest.mark.parametrize("framing", ["nul", "length"])
def test_a_framed_file_is_served_again_and_again(tmp_path, framing, capfd):
    """--framing, --loop and --rate of a root."""
    file = tmp_path / "feed.bin"
    parts = {"nul": lambda d: d + b"\0", "length": lambda d: len(d).to_bytes(4, "big") + d}
    file.write_bytes(b"".join(map(parts[framing], DOCUMENTS)))
    with root("--feed", str(file), "--framing", framing, "--loop", "--rate", "400") as (serving, address):
        done = call_here(
            capfd, *JOIN, "--leaf", "--parents", "1", "--bootstrap", address, "--count", "130", "--timeout",
            str(PATIENCE),
        )  # fmt: skip
        assert done.code == ExitCode.OK, done.err + serving.text
    lines = done.out.splitlines()
    start = DOCUMENTS.index(lines[0])
    assert lines == (DOCUMENTS * 4)[start : start + 130], "the file begins again at its end"


def test_several_streams_under_one_name(capfd, tmp_path):
    with (
        root_here(feed_file(tmp_path), stream="one", rate=400, loop=True) as first,
        running("combine", "--roots-key", "air", *LOCAL, "--source", "one=/p/n > 39", "--parents", "1", "--owner",
                str(tmp_path / "air.key"), "--bootstrap", first) as combiner,
    ):  # fmt: skip
        place = combiner.says("root of air--one").split(" on ")[1].split(",")[0]
        host, port = place.split(":")
        with blocking.join("air--one", bootstrap=[(host, int(port))], beacon=False, parents=1, capacity=0) as stream:
            came = list(islice((item.payload for item in stream if isinstance(item, peer.Packet)), 45))
        wanted = DOCUMENTS[40:] * 4
        start = wanted.index(came[0])
        assert came == wanted[start : start + 45], "the part that was asked for, in order and whole"
        whole = combiner.says("join all of it with").rsplit(" ", 1)[1].strip()
        done = call_here(
            capfd, "join", "air", *LOCAL, "--bootstrap", whole, "--parents", "1", "--count", "5", "--timeout",
            str(PATIENCE), "--format", "jsonl",
        )  # fmt: skip
        assert done.code == ExitCode.OK, done.err
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert [line["stream"] for line in lines] == ["air--one"] * 5
        assert "air combines one" in done.err
        assert combiner.stop() == ExitCode.INTERRUPTED
        assert "Traceback" not in combiner.text


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_pipe_feeds_and_a_closed_pipe_ends():
    feeder = subprocess.Popen(
        [sys.executable, "-c", "import time\nfor n in range(10**9): print(f'<t>{n}</t>', flush=True); time.sleep(.01)"],
        stdout=subprocess.PIPE,
        env=clean_environment(),
    )
    try:
        with root("--feed", "-", "--first", "--metrics", "127.0.0.1:0", stdin=feeder.stdout) as (serving, address):
            client = subprocess.Popen(
                [sys.executable, "-m", "peer", *JOIN, "--leaf", "--parents", "1", "--bootstrap", address],
                cwd=REPOSITORY, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            assert client.stdout is not None
            assert client.stderr is not None
            first = client.stdout.readline()
            assert first.startswith(b"<t>")
            client.stdout.close()
            assert client.wait(PATIENCE) == ExitCode.BROKEN_PIPE
            assert client.stderr.read() == b""
            client.stderr.close()
            assert "skymesh_packets_total" in scrape(serving)
    finally:
        feeder.kill()
        feeder.wait()
        assert feeder.stdout is not None
        feeder.stdout.close()


def test_a_reader_that_stops_is_told_and_asks_for_less():
    """Nobody reads stdout: the words come on stderr at the usual log level, and the fallback takes over."""
    with root_here("demo", rate=2_000) as address:
        client = subprocess.Popen(
            [sys.executable, "-m", "peer", *JOIN, "--leaf", "--parents", "1", "--bootstrap", address, "--fallback",
             "/flight[id='NOBODY']"],
            cwd=REPOSITORY, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert client.stderr is not None
            told = list(islice(client.stderr, 2))
            assert "packets come faster than they are taken here" in told[0]
            assert "asking for less" in told[1]
            assert "NOBODY" in told[1]
        finally:
            client.kill()
            client.communicate()


def test_parents_by_the_papers_walk_and_on_a_long_network(tmp_path, capfd):
    """--selection walk, --resilient-parents and --network wan, from the flags to a packet."""
    with root("--feed", feed_file(tmp_path), "--rate", "0", "--network", "wan") as (serving, address):
        done = call_here(
            capfd, *JOIN, "--leaf", "--parents", "1", "--bootstrap", address, "--from", "oldest", "--count", "3",
            "--selection", "walk", "--resilient-parents", "--network", "wan", "--timeout", str(PATIENCE),
        )  # fmt: skip
        assert done.code == ExitCode.OK, done.err + serving.text


def scrape(command: Running) -> str:
    port = int(command.says("metrics on").split(":")[-1].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as page:
        page.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return page.makefile("rb").read().decode()


def test_a_grant_is_as_good_as_the_owners_key(tmp_path, capfd):
    """Compressed, from a granted root that leaves at the end of its feed: the client has had everything by then."""
    from dht import Grant, Identity

    owner, peer = Identity.generate(), Identity.generate()
    peer.save(tmp_path / "root.key")
    grant = Grant.issue(owner, stream="asdi", peer_id=peer.peer_id, expires_at=int(time.time()) + 3600)
    (tmp_path / "root.grant").write_text(grant.to_text())
    owner.save(tmp_path / "owner.key")
    feed = feed_file(tmp_path)
    vouched = ("--identity", str(tmp_path / "root.key"), "--grant", str(tmp_path / "root.grant"))
    with (
        root_here(feed, rate=0, owner=tmp_path / "owner.key") as address,
        root(
            "--feed", feed, "--rate", "20", "--compress", "zstd", "--exit-at-end", *vouched, "--bootstrap", address
        ) as (granted, place),
    ):  # fmt: skip
        done = call_here(
            capfd, *JOIN, "--leaf", "--bootstrap", place, "--from", "oldest", "--count", "60", "--timeout",
            str(PATIENCE),
        )  # fmt: skip
        assert done.code == ExitCode.OK, done.err
        assert done.out.splitlines() == DOCUMENTS
        assert granted.end() == ExitCode.OK
        assert "Traceback" not in granted.text


def test_a_live_line_on_a_terminal():
    import pty

    with root_here("demo", rate=50) as address:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "peer", *JOIN, "--parents", "1", "--bootstrap", address, "--format", "none"],
            cwd=REPOSITORY, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while not re.search(rb"level \d+  parents 1/1 \[.* ms.*\]  children 0  [1-9]\d* packets/s  gaps 0", shown):
                shown += os.read(ours, 4_096)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == ExitCode.INTERRUPTED
        finally:
            process.kill()
            process.wait()
            os.close(ours)
        assert b"Traceback" not in shown
