"""The command line without a network: help, settings, queries, completion, and what is imported for them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from peer import packetlog
from peer.cli.config import resolve
from peer.cli.errors import CliError, ExitCode
from peer.cli.main import build_parser
from peer.cli.running import peer_options
from peer.cli.settings import COMMANDS, settings_for
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId
from peer.mesh.placement.walk import WalkPlacement
from peer.placements import placement_of
from peer.role import Role
from tests.peer.cli.command import REPOSITORY, call, clean_environment
from tests.peer.cli.inprocess import call_here

HEAVY = (
    *("trio", "kademlia", "elementpath", "lxml", "pyspark", "cryptography", "asyncio", "dcp", "dht", "xmlswitch"),
    *("dataclasses", "inspect", "pathlib", "json", "logging", "socket", "tomllib", "PySide6", "tkinter"),
)


# Options are fields of dataclasses. `config show` looks for a file and prints JSON when asked to.
DECLARED = ("dataclasses", "inspect")


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], ()),
        (["join", "--help"], DECLARED),
        (["config", "show"], (*DECLARED, "pathlib", "json")),
        (["completion", "bash"], DECLARED),
    ],
)
def test_light_commands_import_nothing_heavy(arguments, allowed):
    program = (
        "import sys\n"
        f"sys.argv = ['peer', *{arguments!r}]\n"
        "from peer.cli.main import run\n"
        "try: run()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert loaded <= set(allowed), done.stdout


def test_query_check_needs_no_network_and_no_elementpath():
    program = (
        "import sys; sys.argv = ['peer', 'query', 'check', '/a/b > 3']\n"
        "from peer.cli.main import main\nassert main(sys.argv[1:]) == 0\n"
        "print('LOADED', *[name for name in ('trio', 'kademlia', 'elementpath', 'pyspark') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, env=clean_environment(), capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_every_setting_has_help_and_every_command_an_example_or_a_sentence():
    for command in COMMANDS:
        settings = settings_for(command)
        names = [setting.name for setting in settings]
        assert len(names) == len(set(names)), command
        assert all(setting.help and not setting.help.endswith(".") for setting in settings)


def test_version_tells_protocols_and_build():
    done = call("--version")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert text.startswith("skymesh ")
    assert "DCP 1" in text
    assert "Python" in text


def test_no_command_is_help_and_a_wrong_call(capfd):
    done = call_here(capfd)
    assert done.code == ExitCode.USAGE
    assert b"skymesh root asdi --feed demo" in done.out


def test_manual_pages_name_every_option(capfd):
    overview = call_here(capfd, "man").out.decode()
    assert overview.startswith('.TH "SKYMESH" "1"')
    for command in COMMANDS:
        manual = call_here(capfd, "man", command).out.decode()
        for setting in settings_for(command):
            assert setting.flag.replace("-", r"\-") in manual
        assert f".B {command}\n" in overview
    assert "no such command: 'flying'" in call_here(capfd, "man", "flying").err


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_manual_pages_are_sound_roff(capfd):
    for command in ((), ("join",), ("query check",)):
        manual = call_here(capfd, "man", *command).out
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z"], input=manual, capture_output=True, check=True)
        assert done.stderr == b""


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_of(command: str, *flags: str, environment: dict[str, str] | None = None):
    arguments = build_parser().parse_args([command, *flags])
    return resolve(settings_for(command), arguments, environment or {}, command=command)


def test_flag_before_environment_before_file_before_default(tmp_path):
    file = tmp_path / "mesh.toml"
    file.write_text(
        'roots_key = "asdi"\nparents = 5\nbootstrap = ["127.0.0.1:1", "127.0.0.1:2"]\n[join]\ncapacity = 9\n'
    )
    environment = {"PEER_CONFIG": str(file), "PEER_PARENTS": "4", "PEER_NAMESPACE": "a=urn:a,b=urn:b"}
    settings = settings_of("join", "--capacity", "3", environment=environment)
    assert settings["roots_key"] == "asdi"
    assert settings["parents"] == 4
    assert settings["capacity"] == 3
    assert settings["bootstrap"] == [("127.0.0.1", 1), ("127.0.0.1", 2)]
    assert settings["namespace"] == [("a", "urn:a"), ("b", "urn:b")]
    assert settings["format"] == "xml"
    assert settings.origins == settings.origins | {
        "parents": "environment PEER_PARENTS",
        "capacity": "flag",
        "bootstrap": f"file {file}",
        "format": "default",
    }


def test_switches_can_be_set_and_unset_at_every_layer(tmp_path):
    assert settings_of("join", "--roots-key", "a")["beacon"] is True
    assert settings_of("join", "--roots-key", "a", "--no-beacon")["beacon"] is False
    assert settings_of("join", "--roots-key", "a", environment={"PEER_BEACON": "off"})["beacon"] is False
    assert settings_of("join", "--roots-key", "a", "--static", environment={"PEER_DYNAMIC": "1"})["dynamic"] is False


@pytest.mark.parametrize("flags", [["a"], ["--roots-key", "a"], ["--stream", "a"], ["a", "--stream", "a"]])
def test_the_stream_is_given_first_or_by_either_flag(flags):
    assert settings_of("join", *flags, "--leaf")["roots_key"] == "a"
    assert settings_of("join", "--leaf", *flags)["roots_key"] == "a"


def test_the_stream_has_a_second_name_in_the_environment_and_the_file(tmp_path):
    (tmp_path / "s.toml").write_text('stream = "b"\n')
    assert settings_of("join", "--config", str(tmp_path / "s.toml"))["roots_key"] == "b"
    assert settings_of("join", environment={"PEER_STREAM": "a"})["roots_key"] == "a"
    assert settings_of("join", environment={"PEER_STREAM": "a", "PEER_ROOTS_KEY": "b"})["roots_key"] == "b"


@pytest.mark.parametrize(
    ("flags", "environment", "sentence"),
    [
        ([], {}, r"STREAM is missing: name it \(join STREAM\), set PEER_ROOTS_KEY"),
        (["a", "--roots-key", "b"], {}, "STREAM is given twice: a and --roots-key b"),
        (["--roots-key", "a", "--parents", "0"], {}, "--parents: expected a whole number, 1 to 16, got '0'"),
        (["--roots-key", "a", "--parents", "two"], {}, "--parents: expected a whole number, got 'two'"),
        (["--roots-key", "a", "--listen", "here"], {}, "--listen: expected HOST:PORT"),
        (["--roots-key", "a", "--namespace", "x"], {}, "--namespace: expected PREFIX=URI"),
        (["--roots-key", "a", "--from", "then"], {}, "--from: expected now, oldest or an AN"),
        (
            ["--roots-key", "a"],
            {"PEER_CAPACITY": "-1"},
            r"capacity \(environment PEER_CAPACITY\): expected a number of children, 0 to 4096",
        ),
        (["--roots-key", "a"], {"PEER_FORMAT": "csv"}, "expected one of xml, jsonl, raw, none, got 'csv'"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_its_place(flags, environment, sentence):
    with pytest.raises(CliError, match=sentence) as caught:
        settings_of("join", *flags, environment=environment)
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("parents = ", "is not TOML"),
        ("parnets = 2", r"unknown key: parnets \(did you mean parents\?\)"),
        ("[join]\nfeed = 'x'", "unknown key"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "mesh.toml"
    file.write_text(text)
    with pytest.raises(CliError, match=sentence) as caught:
        settings_of("join", "--roots-key", "a", "--config", str(file))
    assert caught.value.code == ExitCode.CONFIG


def test_config_show_tells_where_each_value_came_from(tmp_path, capfd):
    file = tmp_path / "mesh.toml"
    file.write_text("[root]\ncapacity = 9\n")
    done = call_here(
        capfd, "config", "show", "root", "--config", str(file), "--json", environment={"PEER_FEED": "demo"}
    )
    shown = json.loads(done.out)
    assert shown["capacity"] == {"value": 9, "from": f"file {file}"}
    assert shown["feed"] == {"value": "demo", "from": "environment PEER_FEED"}
    assert shown["loop"] == {"value": False, "from": "default"}
    done = call_here(capfd, "config", "show", "root", environment={"PEER_FEED": "demo"})
    assert b"environment PEER_FEED" in done.out


# --- queries ----------------------------------------------------------------------------------------------------------


def test_a_query_is_explained_and_tried(tmp_path, capfd):
    sample = tmp_path / "sample.xml"
    sample.write_bytes(b"<a><b>1</b></a>\n<a><b>5</b></a>junk<a><b>7</b></a>")
    done = call_here(capfd, "query", "check", "/a/b > 3", "--sample", str(sample), "--json")
    answer = json.loads(done.out)
    assert done.code == 0
    assert answer["accepted"] is True
    assert answer["how"] == "indexed"
    assert answer["sample"] | {"first": 0} == {"documents": 3, "matched": 2, "refused": 1, "first": 0, "hints": []}
    text = call("query", "check", "/a/b > 3", "--sample", "-", data=sample.read_bytes()).stdout.decode()
    assert "accepted" in text
    assert "2 of 3 documents match, 1 refused" in text


def test_a_bad_query_is_pointed_at(capfd):
    done = call_here(capfd, "query", "check", "/a[b >")
    assert done.code == ExitCode.BAD_QUERY
    lines = done.err.splitlines()
    assert "at character 7" in lines[0]
    assert lines[1] == "  /a[b >"
    assert lines[2] == "  " + " " * 6 + "^"
    assert json.loads(call_here(capfd, "query", "check", "/a[b >", "--json").out)["position"] == 7


def test_what_parents_are_wanted_reaches_the_mesh():
    given = ["--roots-key", "asdi", "--parents", "3", "--resilient-parents", "--selection", "walk", "--network", "wan"]
    settings = settings_of("join", *given, "--fallback", "/a", "--fallback", "/a/b")
    options = peer_options(settings, Role.LEAF)
    mesh = options.core().mesh
    assert (mesh.parents_wanted, mesh.requires_resilient_parents) == (3, True)
    assert mesh.suspect_after == MeshConfig().wan().suspect_after > MeshConfig().suspect_after
    assert isinstance(placement_of(options.selection, PeerId(bytes(20)), stream="asdi"), WalkPlacement)
    assert [query.text for query in options.core().fallbacks] == ["/a", "/a/b"]
    with pytest.raises(ValueError, match="selection must be one of scored, walk, tree, got 'luck'"):
        replace(options, selection="luck")


def test_replay_begins_at_a_time(tmp_path, capfd):
    """The log is indexed by time, too: as ISO 8601, UTC unless it says otherwise."""
    noon = 1_794_830_400  # 2026-11-16 12:00 UTC
    with packetlog.Writer(tmp_path / "log") as writer:
        writer.append([packetlog.Packet(n, (noon + n) * 1_000_000, b"<a>%d</a>" % n) for n in range(1, 61)])
    for time, first in (
        ("2026-11-16T12:00:31", 31),
        ("2026-11-16T12:00:31Z", 31),
        ("2026-11-16T13:00:30.5+01:00", 31),
        ("2026-11-16", 1),
        ("oldest", 1),
        ("7", 7),
    ):
        done = call_here(capfd, "replay", str(tmp_path / "log"), "--from", time, "--count", "1")
        assert done.out == b"<a>%d</a>\n" % first, (time, done)
    assert call_here(capfd, "replay", str(tmp_path / "log"), "--from", "2026-11-17").out == b""
    wrong = call_here(capfd, "replay", str(tmp_path / "log"), "--from", "now")
    assert wrong.code == ExitCode.USAGE
    assert "a time such as 2026-11-16T12:30:00Z" in wrong.err


# --- completion -------------------------------------------------------------------------------------------------------


COMPLETIONS = [
    (["jo"], {"join"}),
    (["root", "--fe"], {"--feed"}),
    (["query", ""], {"check", "--help"}),
    (["query", "check", "--sa"], {"--sample"}),
    (["combine", "--so"], {"--source"}),
    (["join", "--parents", "2", "--lea"], {"--leaf"}),
    (["join", "--format", ""], {"xml", "jsonl", "raw", "none"}),
    (["join", "--parents", ""], set()),  # a number: no flag may stand there
    (["completion", "f"], {"fish"}),
]


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="needs bash")
def test_bash_completes_commands_flags_and_values(capfd):
    script = call_here(capfd, "completion", "bash").out.decode()
    ask = '\nCOMP_WORDS=(skymesh "$@"); COMP_CWORD=$#; _skymesh; echo "${COMPREPLY[@]}"'
    for words, expected in COMPLETIONS:
        done = subprocess.run(
            ["/bin/bash", "-c", script + ask, "bash", *words], capture_output=True, text=True, timeout=30, check=True
        )
        assert set(done.stdout.split()) == expected, (words, done)


def test_bash_completes_the_name_of_a_file(capfd, tmp_path):
    (tmp_path / "peer.key").touch()
    script = call_here(capfd, "completion", "bash").out.decode()
    ask = '\nCOMP_WORDS=(skymesh join --identity pe); COMP_CWORD=3; _skymesh; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["/bin/bash", "-c", script + ask], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "peer.key\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_commands_flags_and_values(capfd):
    script = call_here(capfd, "completion", "fish").out.decode()
    for words, expected in COMPLETIONS:
        if "" not in words[:-1] and expected and "--help" not in expected:
            done = subprocess.run(
                ["fish", "--no-config", "-c", script + "\ncomplete -C " + shlex.quote(" ".join(["skymesh", *words]))],
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
            assert {line.split("\t")[0] for line in done.stdout.splitlines()} == expected, (words, done)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_takes_the_script(capfd):
    script = call_here(capfd, "completion", "zsh").out.decode()
    done = subprocess.run(
        ["zsh", "-f", "-c", f"autoload -U compinit; compinit -u -D\n{script}\necho $_comps[skymesh]"],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert "_skymesh" in done.stdout, done


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script(shell, capfd):
    script = call_here(capfd, "completion", shell).out.decode()
    assert "--roots-key" in script.replace("-l roots-key", "--roots-key")


def test_the_network_of_children_is_read_by_its_own_reader(capfd):
    """`--children-from` was a fault of the program: the option `network` stood in the place of the reader's name."""
    done = call_here(capfd, "join", "asdi", "--children-from", "10.0.0.1/8")
    assert done.code == ExitCode.USAGE
    assert "expected a network such as 10.0.0.0/8, got '10.0.0.1/8'" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--deadline", "0.2"], "a deadline is for clients without children: join as a leaf (--leaf, capacity=0)"),
        (["--order", "arrival"], "order=arrival is for clients without children"),
        (["--leaf", "--profile", "newest", "--deadline", "0.2"], "leave out the deadline"),
        (["--leaf", "--loss-budget", "0.01"], "give a deadline too"),
        (["--leaf", "--deadline", "soon"], "--deadline: expected a number, 0 or more, got 'soon'"),
        (["--profile", "fast"], "invalid choice: 'fast'"),
    ],
)
def test_profiles_that_contradict_are_one_sentence(arguments, said, capfd):
    done = call_here(capfd, "join", "asdi", *arguments)
    assert done.code == ExitCode.USAGE
    assert said in done.err + capfd.readouterr().err


def test_profiles_have_the_same_names_everywhere():
    import dcp.profile
    import peer.options

    assert peer.options.PROFILES == dcp.profile.PROFILES
    assert peer.options.ORDERS == dcp.profile.ORDERS
    assert peer.options.CONFIRMS == dcp.profile.CONFIRMS
