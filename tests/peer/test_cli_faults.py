"""What goes wrong: one clear sentence on stderr, no traceback, and an exit code of its own."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dht import Identity
from peer.cli_errors import ExitCode, explain
from tests.peer.command import LOCAL, PATIENCE, REPOSITORY, call, clean_environment, root, running

pytestmark = [pytest.mark.net, pytest.mark.slow]
JOIN = ("join", "--roots-key", "asdi", *LOCAL)


def fails(code: ExitCode, words: str, *arguments: str) -> None:
    done = call(*arguments)
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert words in text
    assert text.startswith("skymesh: ")
    assert text.count("\n") == 1, text
    assert done.stdout == b""


def unused_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_no_dht_names_two_commands_that_would_help():
    fails(
        ExitCode.NO_DHT,
        "skymesh root --roots-key asdi --feed demo",
        *JOIN,
        *("--bootstrap", f"127.0.0.1:{unused_port()}", "--find-timeout", "0.5"),
    )
    fails(ExitCode.NO_DHT, "--bootstrap HOST:PORT", *JOIN, "--find-timeout", "0.2")
    fails(ExitCode.NO_DHT, "no DHT found", "status", "--roots-key", "asdi", *LOCAL, "--find-timeout", "0.2")


def test_a_bad_query_is_told_with_its_place_before_anything_is_opened():
    fails(ExitCode.BAD_QUERY, "at character 4 of '/a['", *JOIN, "--query", "/a[")
    fails(ExitCode.BAD_QUERY, "prefix", *JOIN, "--query", "/x:a")


def test_a_port_in_use():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        fails(ExitCode.PORT_IN_USE, "in use", "join", "--roots-key", "asdi", "--no-beacon", "--listen", listen)


def test_key_files(tmp_path):
    key = tmp_path / "peer.key"
    key.write_text("nonsense")
    key.chmod(0o600)
    fails(ExitCode.KEY_FILE, "is not a skymesh key file", *JOIN, "--identity", str(key))
    open_key = tmp_path / "open.key"
    Identity.generate().save(open_key)
    open_key.chmod(0o644)
    fails(ExitCode.KEY_FILE, "chmod 600", *JOIN, "--identity", str(open_key))
    fails(ExitCode.KEY_FILE, "cannot", *JOIN, "--identity", str(tmp_path))
    serve = ("root", "--roots-key", "asdi", *LOCAL, "--feed", "demo")
    fails(ExitCode.KEY_FILE, "chmod 600", *serve, "--owner", str(open_key))
    fails(ExitCode.KEY_FILE, "grant", *serve, "--grant", str(tmp_path / "none.grant"))


def test_a_stream_of_another_owner(tmp_path):
    owner = tmp_path / "owner.key"
    Identity.generate().save(owner)
    name = f"asdi.{Identity.generate().fingerprint}"
    fails(
        ExitCode.WRONG_OWNER,
        "belongs to another owner",
        *("root", "--roots-key", name, *LOCAL, "--feed", "demo", "--owner", str(owner)),
    )
    with root("--feed", "demo", "--owner", str(owner)) as (_, address):
        # A second root without the owner's word.
        with running("root", "--roots-key", "asdi", *LOCAL, "--feed", "demo", "--bootstrap", address) as second:
            assert second.end() == ExitCode.WRONG_OWNER
            assert "--owner FILE" in second.text
            assert "Traceback" not in second.text
        # A client that has pinned somebody else.
        state = tmp_path / "state"
        pin_other_owner(state)
        with running(*JOIN, "--bootstrap", address, "--state", str(state)) as client:
            assert client.end() == ExitCode.WRONG_OWNER
            assert "belongs to another owner now" in client.text
            assert "Traceback" not in client.text


def pin_other_owner(state: Path) -> None:
    from dht import Pins

    Pins(state / "pins.json").accept("asdi", Identity.generate().peer_id)


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ("/nowhere/at/all", "cannot read the feed /nowhere/at/all"),
        ("archive:/nowhere", "archive:/nowhere"),
        ("log:/nowhere", "no packet log"),
        ("gopher://x:1", "a feed is a file"),
    ],
)
def test_a_feed_that_cannot_be_read(feed, words):
    done = call("root", "--roots-key", "asdi", *LOCAL, "--feed", feed)
    text = done.stderr.decode()
    assert done.returncode == ExitCode.FEED, text
    assert words in text.splitlines()[-1]
    assert "Traceback" not in text


def test_a_full_disk_ends_a_recording_with_what_was_written(tmp_path):
    """A limit on the size of files stands for a disk without room: the same error from the same call."""
    log = tmp_path / "log"
    with root("--feed", "demo", "--rate", "200") as (_, address):
        done = subprocess.run(
            [sys.executable, "-m", "peer", "record", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents",
             "1", "--out", str(log), "--timeout", str(PATIENCE)],
            cwd=REPOSITORY, env=clean_environment(), capture_output=True, timeout=2 * PATIENCE, check=False,
            preexec_fn=limit_files,
        )  # fmt: skip
    text = done.stderr.decode()
    assert done.returncode == ExitCode.DISK, text
    assert "no room" in text
    assert "Traceback" not in text
    assert call("replay", str(log)).stdout.count(b"\n") > 10


def limit_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_too_few_packets_in_time(tmp_path):
    (tmp_path / "feed.xml").write_bytes(b"<a/><b/>")
    with root("--feed", str(tmp_path / "feed.xml"), "--rate", "0") as (_, address):
        done = call(*JOIN, "--leaf", "--parents", "1", "--bootstrap", address, "--from", "oldest", "--count", "3",
                    "--timeout", "15")  # fmt: skip
        assert done.returncode == ExitCode.NOT_ALL, done.stderr
        assert done.stderr == b"skymesh: 2 of 3 packets came in 15 s\n"
        assert done.stdout == b"<a/>\n<b/>\n"


def test_settings_that_make_no_sense(tmp_path):
    fails(ExitCode.USAGE, "--roots-key: 'A B' is no stream name", "join", "--roots-key", "A B")
    fails(ExitCode.USAGE, "--roots-key is missing", "join")
    fails(ExitCode.CONFIG, "cannot read the configuration", *JOIN, "--config", str(tmp_path / "none.toml"))
    fails(ExitCode.CONFIG, "--dictionary", *JOIN, "--dictionary", str(tmp_path / "none.zd"))
    fails(ExitCode.USAGE, "--to takes tcp-listen://HOST:PORT", "bridge", "--roots-key", "asdi", "--to", "tcp://x:1")
    fails(ExitCode.DISK, "no packet log", "replay", str(tmp_path / "none"))


def test_codes_are_distinct():
    assert len({code.value for code in ExitCode}) == len(ExitCode)


def test_a_fault_of_the_program_is_not_explained_away():
    assert explain(RuntimeError("a bug")) is None
    assert explain(ExceptionGroup("", [RuntimeError("a bug")])) is None
