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
from pathlib import Path

import pytest

from peer.cli_errors import ExitCode
from tests.peer.command import LOCAL, PATIENCE, REPOSITORY, call, clean_environment, root, running

pytestmark = [pytest.mark.net, pytest.mark.slow]
JOIN = ("join", "--roots-key", "asdi", *LOCAL)
DOCUMENTS = [b"<p><n>%d</n></p>" % number for number in range(60)]


def feed_file(folder: Path) -> str:
    path = folder / "feed.xml"
    path.write_bytes(b"".join(DOCUMENTS))
    return str(path)


def test_a_file_goes_through_a_router_to_a_client(tmp_path):
    with root("--feed", feed_file(tmp_path), "--rate", "0") as (_, address):
        reach = ("--bootstrap", address, "--timeout", str(PATIENCE))
        done = call(*JOIN, *reach, "--leaf", "--parents", "1", "--from", "oldest", "--count", "60")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == DOCUMENTS
        done = call(
            *JOIN, *reach, "--leaf", "--parents", "1", "--from", "11", "--query", "/p/n >= 50", "--format", "jsonl",
            "--count", "10",
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["an"] for line in lines] == list(range(51, 61))
        assert {line["stream"] for line in lines} == {"asdi"}
        assert [line["xml"].encode() for line in lines] == DOCUMENTS[50:]
        assert all(line["received"] > 1e9 and "latency_ms" not in line for line in lines)


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


def test_ctrl_c_leaves_the_mesh_and_withdraws_the_record(tmp_path):
    with root("--feed", feed_file(tmp_path)) as (serving, address):
        with running(*JOIN, "--bootstrap", address, "--parents", "1", "--format", "none",
                     "--status-file", str(tmp_path / "status.json")) as router:  # fmt: skip
            router.until(lambda: has_parents(tmp_path / "status.json", 1))
            listed = wait_for_peers(address, 2)
            assert sorted(peer["role"] for peer in listed["peers"]) == ["root", "router"]
            assert router.stop(signal.SIGINT) == ExitCode.INTERRUPTED
            assert "Traceback" not in router.text
        shown = wait_for_peers(address, 1)
        assert [peer["role"] for peer in shown["peers"]] == ["root"]
        assert serving.stop(signal.SIGTERM) == ExitCode.OK
        assert "Traceback" not in serving.text


def wait_for_peers(address: str, count: int) -> dict:
    """The mesh as `status` sees it, once it has so many peers: `--watch` looks again and again."""
    with running("status", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--json", "--watch", "--interval",
                 "0.2") as status:  # fmt: skip
        status.until(lambda: any(len(json.loads(line)["peers"]) == count for line in status.out))
        return next(view for view in map(json.loads, status.out) if len(view["peers"]) == count)


def test_status_as_tree_graph_and_exit_code(tmp_path):
    with root("--feed", feed_file(tmp_path)) as (_, address):
        reach = ("--roots-key", "asdi", *LOCAL, "--bootstrap", address)
        with running("join", *reach, "--parents", "2", "--format", "none",
                     "--status-file", str(tmp_path / "status.json")) as router:  # fmt: skip
            # One root can't give two parents: the mesh works, and is less safe than was asked for.
            router.until(lambda: has_parents(tmp_path / "status.json", 1))
            wait_for_peers(address, 2)
            done = call("status", *reach)
            text = done.stdout.decode()
            assert done.returncode == ExitCode.NOT_ALL, text
            assert "2 peers, 1 root, 1 with fewer parents than wanted" in text
            assert "parents 1/2!" in text
            assert text.count("─ ") == 2
            graph = call("status", *reach, "--dot").stdout.decode()
            assert graph.startswith('digraph "asdi" {')
            assert graph.count("->") == 1


def test_a_recording_goes_on_where_it_was_killed(tmp_path):
    log = str(tmp_path / "log")
    with root("--feed", feed_file(tmp_path), "--rate", "0") as (_, address):
        reach = ("--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--out", log)
        done = call("record", *reach, "--from", "oldest", "--count", "25", "--timeout", str(PATIENCE))
        assert done.returncode == 0, done.stderr
        # The rest of what the parent has comes next, without gap or repeat; kill -9 takes nothing of it back.
        with running("record", *reach) as recording:
            recording.says("going on after AN 25")
            wait_for_packets(log, 60)
            recording.process.kill()
            recording.end()
        replayed = call("replay", log, "--format", "jsonl")
        lines = [json.loads(line) for line in replayed.stdout.splitlines()]
        assert [line["an"] for line in lines] == list(range(1, 61))
        assert [line["xml"].encode() for line in lines] == DOCUMENTS
    with root("--feed", f"log:{log}", "--rate", "0", stream="again") as (_, address):
        done = call(
            "join", "--roots-key", "again", *LOCAL, "--bootstrap", address, "--leaf", "--parents", "1", "--from",
            "oldest", "--count", "60", "--timeout", str(PATIENCE),
        )  # fmt: skip
        assert done.stdout.splitlines() == DOCUMENTS


def wait_for_packets(log: str, count: int) -> None:
    from peer.packetlog import Reader

    reader = Reader(log, durable=False)
    deadline = time.monotonic() + PATIENCE
    while reader.end_position() < count:
        assert time.monotonic() < deadline, f"only {reader.end_position()} of {count} packets were recorded"
        time.sleep(0.05)


def test_a_bridge_serves_plain_tcp(tmp_path):
    with (
        root("--feed", "demo", "--rate", "50") as (_, address),
        running("bridge", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--to",
                "tcp-listen://127.0.0.1:0", "--query", "//altitude > 100") as bridge,
    ):  # fmt: skip
        port = int(bridge.says("readers connect to").rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as reader:
            lines = [line for line, _ in zip(reader.makefile("rb"), range(5), strict=False)]
        assert len(lines) == 5
        assert all(line.startswith(b"<?xml") and b"<altitude" in line for line in lines)
        assert bridge.stop() == ExitCode.INTERRUPTED
        assert "Traceback" not in bridge.text


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
            port = int(serving.says("metrics on").split(":")[-1].split("/")[0])
            assert "skymesh_packets_total" in scrape(port)
    finally:
        feeder.kill()
        feeder.wait()
        assert feeder.stdout is not None
        feeder.stdout.close()


def scrape(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as page:
        page.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return page.makefile("rb").read().decode()


def test_a_grant_is_as_good_as_the_owners_key(tmp_path):
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
        root("--feed", feed, "--rate", "0", "--owner", str(tmp_path / "owner.key")) as (_, address),
        running(*JOIN, "--leaf", "--bootstrap", address, "--from", "oldest", "--count", "60") as client,
        root(
            "--feed", feed, "--rate", "20", "--compress", "zstd", "--exit-at-end", *vouched, "--bootstrap", address
        ) as (
            granted,
            _,
        ),
    ):
        assert client.end() == ExitCode.OK
        assert [line.rstrip() for line in client.out] == DOCUMENTS
        assert granted.end() == ExitCode.OK
        assert "Traceback" not in granted.text + client.text


def test_a_live_line_on_a_terminal(tmp_path):
    import pty

    with root("--feed", "demo", "--rate", "50") as (_, address):
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
