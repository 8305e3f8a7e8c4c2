"""What goes wrong: one clear sentence on stderr, no traceback, and an exit code of its own."""

from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dht import Identity
from dht.addresses import parse_endpoint
from peer.cli.errors import ExitCode, explain
from tests.peer.cli.command import LOCAL, PATIENCE, REPOSITORY, call, clean_environment
from tests.peer.cli.inprocess import call_here, root_here

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("cli")]
JOIN = ("join", "--roots-key", "asdi", *LOCAL)


def check(code: ExitCode, words: str, found: int, text: str, out: bytes) -> None:
    assert found == code, text
    assert words in text
    assert text.startswith("skymesh: ")
    assert text.count("\n") == 1, text
    assert out == b""


@pytest.fixture
def fails(capfd):
    """A call that ends with this code and one sentence with these words: in this process."""

    def call_it(code: ExitCode, words: str, *arguments: str) -> None:
        done = call_here(capfd, *arguments)
        check(code, words, done.code, done.err, done.out)

    return call_it


def fails_as_a_process(code: ExitCode, words: str, *arguments: str) -> None:
    """The same for the real command, as a script sees it: for each kind of fault once."""
    done = call(*arguments)
    check(code, words, done.returncode, done.stderr.decode(), done.stdout)


def unused_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_no_dht_names_two_commands_that_would_help(fails):
    fails_as_a_process(
        ExitCode.NO_DHT,
        "skymesh root asdi --feed demo",
        *JOIN,
        *("--bootstrap", f"127.0.0.1:{unused_port()}", "--find-timeout", "0.5"),
    )
    fails(ExitCode.NO_DHT, "--bootstrap HOST:PORT", *JOIN, "--find-timeout", "0.2")
    fails(ExitCode.NO_DHT, "no DHT found", "status", "--roots-key", "asdi", *LOCAL, "--find-timeout", "0.2")


def test_a_bad_query_is_told_with_its_place_before_anything_is_opened(fails):
    fails_as_a_process(ExitCode.BAD_QUERY, "at character 4 of '/a['", *JOIN, "--query", "/a[")
    fails(ExitCode.BAD_QUERY, "prefix", *JOIN, "--query", "/x:a")


def test_a_port_in_use():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        fails_as_a_process(
            ExitCode.PORT_IN_USE, "in use", "join", "--roots-key", "asdi", "--no-beacon", "--listen", listen
        )


def test_a_tcp_port_in_use_is_told_by_its_flag(fails):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        fails(ExitCode.PORT_IN_USE, f"--metrics {place}: in use by another program", *JOIN, "--metrics", place)
        bridge = ("bridge", "--roots-key", "asdi", *LOCAL, "--to", f"tcp-listen://{place}")
        fails(ExitCode.PORT_IN_USE, f"--to {place}: in use by another program", *bridge)


def test_key_files(tmp_path, fails):
    key = tmp_path / "peer.key"
    key.write_text("nonsense")
    key.chmod(0o600)
    fails_as_a_process(ExitCode.KEY_FILE, "is not a skymesh key file", *JOIN, "--identity", str(key))
    open_key = tmp_path / "open.key"
    Identity.generate().save(open_key)
    open_key.chmod(0o644)
    fails(ExitCode.KEY_FILE, "chmod 600", *JOIN, "--identity", str(open_key))
    fails(ExitCode.KEY_FILE, "cannot", *JOIN, "--identity", str(tmp_path))
    serve = ("root", "--roots-key", "asdi", *LOCAL, "--feed", "demo")
    fails(ExitCode.KEY_FILE, "chmod 600", *serve, "--owner", str(open_key))
    fails(ExitCode.KEY_FILE, "grant", *serve, "--grant", str(tmp_path / "none.grant"))


def test_a_stream_of_another_owner(tmp_path, capfd):
    owner = tmp_path / "owner.key"
    Identity.generate().save(owner)
    name = f"asdi.{Identity.generate().fingerprint}"
    fails_as_a_process(
        ExitCode.WRONG_OWNER,
        "belongs to another owner",
        *("root", "--roots-key", name, *LOCAL, "--feed", "demo", "--owner", str(owner)),
    )
    with root_here("demo", owner=owner) as address:
        # A second root without the owner's word.
        done = call_here(
            capfd, "root", "--roots-key", "asdi", *LOCAL, "--feed", "demo", "--rate", "50", "--bootstrap", address
        )
        assert done.code == ExitCode.WRONG_OWNER
        assert "--owner FILE" in done.err
        # A client that has pinned somebody else.
        state = tmp_path / "state"
        pin_other_owner(state)
        done = call_here(capfd, *JOIN, "--bootstrap", address, "--state", str(state))
        check(ExitCode.WRONG_OWNER, "now belongs to another owner", done.code, done.err, done.out)


def pin_other_owner(state: Path) -> None:
    from dht import Pins

    Pins(state / "pins.json").accept("asdi", Identity.generate().peer_id)


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ("/nowhere/at/all", "cannot read the feed /nowhere/at/all"),
        ("archive:/nowhere", "archive:/nowhere"),
        ("log:/nowhere", "not a packet log"),
        ("gopher://x:1", "a feed is a file"),
    ],
)
def test_a_feed_that_cannot_be_read(feed, words, capfd):
    done = call_here(capfd, "root", "--roots-key", "asdi", *LOCAL, "--feed", feed)
    assert done.code == ExitCode.FEED, done.err
    assert words in done.err.splitlines()[-1]


def test_a_full_disk_ends_a_recording_with_what_was_written(tmp_path, capfd):
    """A limit on the size of files stands for a disk without room: the same error from the same call.

    It also cuts compiled files short, without a word, so this command must write none: the next would read them.
    """
    log = str(tmp_path / "log")
    with root_here("demo", rate=200) as address:
        record = ("record", "--roots-key", "asdi", *LOCAL, "--bootstrap", address, "--parents", "1", "--out", log)
        begun = call_here(capfd, *record, "--count", "12", "--timeout", str(PATIENCE))
        assert begun.code == ExitCode.OK, begun.err
        done = subprocess.run(
            [sys.executable, "-m", "peer", *record, "--timeout", str(PATIENCE)],
            cwd=REPOSITORY, env=clean_environment() | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
            timeout=2 * PATIENCE, check=False, preexec_fn=limit_files,
        )  # fmt: skip
    text = done.stderr.decode()
    assert done.returncode == ExitCode.DISK, text
    assert "no room" in text
    assert "Traceback" not in text
    replayed = call_here(capfd, "replay", log, "--format", "jsonl")
    kept = [json.loads(line)["an"] for line in replayed.out.splitlines()]
    assert len(kept) >= 12
    assert kept == list(range(kept[0], kept[0] + len(kept)))


def limit_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_too_few_packets_in_time(tmp_path, capfd):
    (tmp_path / "feed.xml").write_bytes(b"<a/><b/>")
    with root_here(str(tmp_path / "feed.xml"), rate=0) as address:
        for command in (JOIN, ("record", "--roots-key", "asdi", *LOCAL, "--out", str(tmp_path / "log"))):
            leaf = ("--leaf",) if command is JOIN else ()
            done = call_here(capfd, *command, *leaf, "--parents", "1", "--bootstrap", address, "--from", "oldest",
                             "--count", "3", "--timeout", "5")  # fmt: skip
            assert done.code == ExitCode.NOT_ALL, done.err
            assert done.err == "skymesh: 2 of 3 packets came in 5 s\n"
            assert done.out == (b"<a/>\n<b/>\n" if command is JOIN else b"")


def test_settings_that_make_no_sense(tmp_path, fails):
    fails(
        ExitCode.USAGE,
        "unknown argument: --rootskey (did you mean --roots-key?); see `skymesh join --help`",
        "join",
        "--rootskey",
    )
    fails(ExitCode.USAGE, "no such command: 'frob'; there are join, root", "frob")
    fails(ExitCode.USAGE, "--bootstrap: expected one argument; see `skymesh join --help`", "join", "--bootstrap")
    fails(ExitCode.USAGE, "invalid choice: 'csv'", *JOIN, "--format", "csv")
    fails(ExitCode.USAGE, "STREAM: 'A B' is not a stream name", "join", "--roots-key", "A B")
    fails(ExitCode.USAGE, "STREAM is missing", "join")
    fails(ExitCode.USAGE, "no such command: 'jion' (did you mean join?)", "jion")
    fails(ExitCode.USAGE, "no such command: 'chekc' (did you mean check?)", "query", "chekc")
    fails(ExitCode.USAGE, "unknown argument: --quary=x (did you mean --query?)", *JOIN, "--quary=x")
    fails(ExitCode.USAGE, "unknown argument: asdj; see `skymesh join --help`", "join", "asdi", "asdj")
    fails(ExitCode.CONFIG, "cannot read the configuration", *JOIN, "--config", str(tmp_path / "none.toml"))
    fails(ExitCode.CONFIG, "--dictionary", *JOIN, "--dictionary", str(tmp_path / "none.zd"))
    fails(ExitCode.USAGE, "--to takes tcp-listen://HOST:PORT", "bridge", "--roots-key", "asdi", "--to", "tcp://x:1")
    fails(ExitCode.DISK, "not a packet log", "replay", str(tmp_path / "none"))
    fails(ExitCode.USAGE, "give --source", "combine", "--roots-key", "air")
    fails(ExitCode.USAGE, "the same name", "combine", "--roots-key", "air", "--source", "a", "--source", "a")
    fails(ExitCode.BAD_QUERY, "at character 4", "combine", "--roots-key", "air", "--source", "a=/b[")
    fails(ExitCode.USAGE, "--source: 'A B'", "combine", "--roots-key", "air", "--source", "A B")


def test_codes_are_distinct_and_on_the_page():
    assert len({code.value for code in ExitCode}) == len(ExitCode)
    page = (REPOSITORY / "docs" / "cli.md").read_text()
    for code in ExitCode:
        assert re.search(rf"^\| {code.value} \|", page, flags=re.MULTILINE), code


def test_a_fault_of_the_program_is_not_explained_away():
    assert explain(RuntimeError("a bug")) is None
    assert explain(ExceptionGroup("", [RuntimeError("a bug")])) is None


def test_several_owners_at_first_sight_are_one_sentence_that_says_how_to_choose(tmp_path, capfd):
    from dht import id_text

    owner, impostor = tmp_path / "owner.key", tmp_path / "impostor.key"
    names = []
    for path in (owner, impostor):
        identity = Identity.generate()
        identity.save(path)
        names.append(id_text(identity.peer_id))
    with (
        root_here("demo", owner=owner) as address,
        root_here("demo", owner=impostor, owner_id=names[1], bootstrap=[parse_endpoint(address)]),
    ):
        reach = ("--roots-key", "asdi", *LOCAL, "--bootstrap", address)
        for command in (("join", *reach, "--timeout", "30"), ("status", *reach)):
            for _ in range(100):  # the second record is on its way
                done = call_here(capfd, *command, *(("--count", "1") if command[0] == "join" else ()))
                if done.code == ExitCode.WRONG_OWNER:
                    break
            check(ExitCode.WRONG_OWNER, "--owner-id FINGERPRINT", done.code, done.err, done.out)
            assert all(name in done.err for name in names)
        done = call_here(capfd, "status", *reach, "--owner-id", names[0])
        assert done.code == 0
        assert names[1] in done.err, "the other owner is not passed over in silence"
        done = call_here(capfd, "status", *reach, "--owner-id", "nonsense")
        check(ExitCode.USAGE, "--owner-id", done.code, done.err, done.out)


def test_with_log_json_every_line_is_an_object(tmp_path):
    key = tmp_path / "o.key"
    done = call("root", "asdi", "--feed", "-", "--first", "--no-beacon", "--log-json", "--owner", str(key))
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[0]["message"].startswith("made the owner key")
    assert lines[-1]["exit_code"] == done.returncode == ExitCode.FEED
    assert lines[-1]["level"] == "error"
