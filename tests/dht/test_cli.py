"""The operator's commands, as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from dht.cli import build_parser, main
from dht.identity import Identity, parse_id_text
from dht.pins import Pins
from dht.streams import Grant
from tests.dht.build import identity


def test_keygen_makes_a_private_file_and_never_overwrites(tmp_path, capsys):
    path = tmp_path / "key"
    assert main(["keygen", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert parse_id_text(told["peer_id"]) == Identity.load(path).peer_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["keygen", str(path)]) == 1
    assert "never overwritten" in capsys.readouterr().err


def test_grant_prints_one_line_that_verifies(tmp_path, capsys):
    owner = tmp_path / "owner.key"
    identity(9).save(owner)
    peer = identity(1).fingerprint
    assert main(["grant", "--owner", str(owner), "--peer", peer, "--stream", "asdi", "--days", "1"]) == 0
    grant = Grant.from_text(capsys.readouterr().out)
    assert (grant.owner, grant.peer_id, grant.stream) == (identity(9).peer_id, identity(1).peer_id, "asdi")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--peer", "nobody", "--stream", "asdi"], "an id must be 32"),
        (["--peer", identity(1).fingerprint, "--stream", "ASDI"], "not a stream name"),
        (["--peer", identity(1).fingerprint, "--stream", f"asdi.{identity(1).fingerprint}"], "does not own"),
        (["--peer", identity(1).fingerprint, "--stream", "asdi", "--days", "0"], "above 0"),
    ],
)
def test_a_wrong_grant_is_one_clear_sentence(tmp_path, capsys, arguments, told):
    owner = tmp_path / "owner.key"
    identity(9).save(owner)
    assert main(["grant", "--owner", str(owner), *arguments]) == 1
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_pin_accepts_another_owner(tmp_path, capsys):
    path = tmp_path / "pins.json"
    Pins(path).accept("asdi", identity(1).peer_id)
    assert main(["pin", "asdi", identity(2).fingerprint, "--pins", str(path)]) == 0
    assert identity(1).fingerprint in capsys.readouterr().out
    assert Pins(path).owner("asdi") == identity(2).peer_id


def test_a_node_is_for_this_host_alone_unless_told_otherwise():
    assert build_parser().parse_args(["node"]).listen == ("127.0.0.1", 4700)


def test_a_wrong_call_is_exit_code_2(capsys):
    for wrong in (["node", "--nonsense"], ["node", "--listen", "here"], ["get", "asdi", "--bootstrap", "127.0.0.1:"]):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2
    assert "expected HOST:PORT, got '127.0.0.1:'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "python -m dht get asdi" in capsys.readouterr().out


@contextlib.contextmanager
def running_node(home, *arguments):
    """A node in a process of its own; its first line says where it listens."""
    command = [sys.executable, "-m", "dht", "node", "--listen", "127.0.0.1:0", "--no-beacon", "--json"]
    process = subprocess.Popen(
        [*command, "--home", str(home), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    watchdog = threading.Timer(60.0, process.kill)
    watchdog.start()
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.net
@pytest.mark.slow
def test_a_node_runs_is_read_and_stops_cleanly(tmp_path):
    with running_node(tmp_path / "a") as (first, listening):
        endpoint = f"127.0.0.1:{listening['port']}"
        with running_node(tmp_path / "b", "--bootstrap", endpoint, "--status", "0.2") as (second, _):
            while json.loads(second.stdout.readline())["contacts"] == 0:
                pass
            publish(endpoint)
            for reply, code in ((read("asdi", endpoint, tmp_path), 0), (read("other", endpoint, tmp_path), 1)):
                assert reply.returncode == code, reply.stderr
            document = json.loads(read("asdi", endpoint, tmp_path).stdout)
            (record,) = document["records"]
            assert record["peer_id"] == identity(5).fingerprint
            assert (record["role"], record["level"], record["free_slots"]) == ("root", 0, 3)
            assert 0 <= record["age_s"] < 60
            assert 0 < record["expires_in_s"] <= 180
            table = read("asdi", endpoint, tmp_path, "--wait", "5", as_json=False).stdout
            assert identity(5).fingerprint[:12] in table
            second.send_signal(signal.SIGTERM)
            assert second.wait(30) == 0
        first.send_signal(signal.SIGINT)
        assert first.wait(30) == 0
        assert "Traceback" not in first.stderr.read()
    assert (tmp_path / "a" / "node.key").exists()
    assert (tmp_path / "a" / "node-contacts.json").exists()


PUBLISH = """
import asyncio, sys
from dht.identity import Identity
from dht.record import PeerRecord, Role
from dht.shell.service import DirectoryOptions, DirectoryService

async def main():
    who = Identity.from_seed((5).to_bytes(32, "big"))
    options = DirectoryOptions(bootstrap=(("127.0.0.1", int(sys.argv[1])),), beacon=False)
    service = await DirectoryService.open(who, options, loop=asyncio.get_running_loop(), listen=("127.0.0.1", 0))
    assert await service.node.join()
    record = PeerRecord("asdi", who.peer_id, (service.address,), Role.ROOT, capacity=4, free_slots=3)
    assert (await service.directory.publish(record)).replicas >= 2
    service.crash()  # without a goodbye: the record stays

asyncio.run(main())
"""


def publish(endpoint: str) -> None:
    port = endpoint.rpartition(":")[2]
    subprocess.run([sys.executable, "-c", PUBLISH, port], check=True, timeout=60)


def read(stream: str, endpoint: str, home, *arguments: str, as_json: bool = True):
    call = [sys.executable, "-m", "dht", "get", stream, "--bootstrap", endpoint, "--no-beacon", "--home", str(home)]
    return subprocess.run(
        [*call, *arguments, *(["--json"] if as_json else [])], capture_output=True, text=True, timeout=60
    )


@pytest.mark.net
def test_get_without_anybody_there_says_what_to_do(tmp_path, capsys):
    call = ["get", "asdi", "--bootstrap", "127.0.0.1:9", "--no-beacon", "--home", str(tmp_path), "--wait", "0.3"]
    assert main(call) == 1
    assert "--bootstrap HOST:PORT" in capsys.readouterr().err


LIGHT = """
import sys
import dht
heavy = {"asyncio", "kademlia", "cryptography", "trio", "trio_asyncio", "msgpack"} & set(sys.modules)
assert not heavy, heavy
dht.PeerRecord, dht.MemoryDirectory
heavy = {"asyncio", "kademlia", "trio", "trio_asyncio"} & set(sys.modules)
assert not heavy, heavy
missing = [name for name in dht.__all__ if not hasattr(dht, name)]
assert not missing, missing
try:
    dht.nonsense
except AttributeError:
    pass
else:
    raise AssertionError("an unknown name is an error")
"""


def test_importing_the_package_loads_nothing_heavy():
    subprocess.run([sys.executable, "-c", LIGHT], check=True, timeout=60)
