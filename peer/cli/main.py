"""`python -m peer`, also installed as `skymesh`: parse the call, run the command, turn what happens into an exit code.

Nothing heavy is imported here: help and completion must come at once. Each command lives in a file of its own, which
is imported when it is run.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from peer.cli.errors import CliError, ExitCode, explain, nearest
from peer.cli.keys import add_parsers as add_keys
from peer.cli.keys import keys
from peer.cli.verify import add_parser as add_verify
from peer.cli.verify import verify
from peer.version import version

if TYPE_CHECKING:
    from peer.cli.config import Settings

PROGRAM = "skymesh"

_DESCRIPTION = """\
A self-organizing mesh that delivers an XML stream to everyone who asked for a part of it with an XPath query."""
_EPILOG = """\
begin here, in two terminals:
  skymesh root asdi --feed demo:45
  skymesh join asdi --query "/flight/flightleg/altitude > 300"

Every flag is also an environment variable (PEER_PARENTS=3) and a key of a TOML file; see `skymesh config show`.
Exit codes are in docs/cli.md."""

# command -> (module, function, one line of help, further text)
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "join": (
        "peer.cli.join:join",
        "receive a stream, and pass it on to others",
        "Packets go to stdout, everything else to stderr. With --format jsonl a gap is a line of its own:\n"
        '{"gap": [after, until]}. Exit code 1 when --timeout came before --count packets did.\n\n'
        "example:\n  skymesh join asdi --leaf --query \"/flight/id = 'DAL841'\" --format jsonl --count 10",
    ),
    "root": (
        "peer.cli.root:root",
        "feed a stream into the mesh",
        "Two roots of one stream need one owner: give both the same --owner key file, or a --grant each\n"
        "(skymesh keys grant). Without either, a root is its own owner, and no other root is believed beside it.\n\n"
        "examples:\n  skymesh root asdi --feed demo --owner asdi.key\n"
        "  skymesh root asdi --feed asdi:messages.txt --speed 60\n"
        "  producer | skymesh root ticks --feed - --framing nul",
    ),
    "status": (
        "peer.cli.status:status",
        "show the mesh: every peer, its parents and children",
        "Exit code 1 when some peer has fewer parents than it wants.",
    ),
    "streams": (
        "peer.cli.status:streams",
        "list the streams that there are",
        "Asks the peers that the DHT knows. Exit code 4 when none answers.",
    ),
    "bridge": (
        "peer.cli.bridge:bridge",
        "serve a stream over plain TCP to programs that don't speak DCP",
        "A reader that is too slow is disconnected when its queue is full; the others never notice.\n\n"
        "example:\n  skymesh bridge asdi --to tcp-listen://127.0.0.1:9000 --query '//altitude > 300'",
    ),
    "gateway": (
        "peer.cli.gateway:gateway",
        "serve a stream to browsers and other languages",
        "WebSocket and Server-Sent Events, with an XPath query per client (docs/gateway.md).\n\n"
        "example:\n  skymesh gateway asdi --listen :8080 --token-file token.txt\n"
        "  curl -N 'http://localhost:8080/v1/asdi/events?query=//altitude>300'",
    ),
    "record": (
        "peer.cli.record:record",
        "write a stream to a durable log",
        "Every packet that was written survives the death of this process; what was not synced yet (--sync-seconds)\n"
        "does not survive the death of the machine. Started again, it goes on at its last AN.",
    ),
    "combine": (
        "peer.cli.combine:combine",
        "serve several streams under one name",
        "The combined stream NAME of asdi and runways is the pair of streams NAME--asdi and NAME--runways, each with\n"
        "the numbers of its source; `skymesh join NAME` gets both. Two combiners with one --owner serve together.\n\n"
        'example:\n  skymesh combine air --source asdi --source "runways=//closed" --owner air.key\n'
        "  skymesh join air",
    ),
    "replay": (
        "peer.cli.record:replay",
        "print what `record` wrote",
        "To serve it to a mesh again: skymesh root NAME --feed log:DIR",
    ),
}

# What a command takes first, where that is not a stream.
_FIRST = {"replay": "DIR ", "streams": ""}
_PIPE = {
    "send": ("send standard input to its receivers", "capture | skymesh pipe send --name video --listen :4700"),
    "receive": (
        "write what several senders send to standard output",
        "skymesh pipe receive --name video --sender 192.0.2.1:4700 --sender 192.0.2.2:4700 | player",
    ),
}
# Commands of two words.
_PAIRS = ("query check", "goal check", "goal set", "goal show", *(f"pipe {action}" for action in _PIPE))


class _Parser(argparse.ArgumentParser):
    """A wrong call is one sentence, as every other fault is; the usage is a page."""

    def error(self, message: str) -> NoReturn:
        raise CliError(f"{message}; see `{self.prog} --help`", ExitCode.USAGE)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Each command refuses the words that it does not know, and names the nearest of those that it does."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            self.error(f"unknown argument: {unknown[0]}{nearest(word, self._option_string_actions)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            known = nearest(value, action.choices) or f"; there are {', '.join(action.choices)}"
            raise CliError(f"no such command: {value!r}{known}", ExitCode.USAGE)
        super()._check_value(action, value)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of every command, or of `only` one, with the others known by name: that is faster."""
    parser = _Parser(
        prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="store_true", help="version, protocol versions and build")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (_, summary, text) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            usage=f"{PROGRAM} {name} {_FIRST.get(name, 'STREAM ')}[OPTION]...",
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if only in (None, name):
            _fill(command, name)
        if name == "replay":
            command.add_argument("directory", metavar="DIR", help="folder that `record` wrote")
    _add_query(commands, fill=only in (None, "query"))
    _add_goal(commands, fill=only in (None, "goal"))
    _add_pipe(commands, fill=only in (None, "pipe"))
    add_keys(commands)
    add_verify(commands)
    _add_config(commands)
    completion = commands.add_parser(
        "completion", help="print a completion script for a shell", description="Print a completion script for a shell."
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    manual = commands.add_parser(
        "man", help="print a manual page: `skymesh man | man -l -`", description="Print a manual page, in roff."
    )
    manual.add_argument("of", nargs="?", metavar="COMMAND", help="the page of one command, `query check` for example")
    return parser


def _fill(parser: argparse.ArgumentParser, command: str) -> None:
    from peer.cli.settings import settings_for

    for setting in settings_for(command):
        setting.add_to(parser)
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings")


def _add_query(commands: argparse._SubParsersAction[_Parser], *, fill: bool) -> None:
    query = commands.add_parser("query", help="check a query before using it")
    actions = query.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="accepted or why not, indexed or not, and what it matches",
        description="Say whether the mesh takes a query, how it is held, and what it matches in a sample.",
        epilog="Exit code 5 for a query that is refused.",
    )
    check.add_argument("xpath", metavar="XPATH")
    if fill:
        _fill(check, "query check")


def _add_goal(commands: argparse._SubParsersAction[_Parser], *, fill: bool) -> None:
    goal = commands.add_parser("goal", help="what a mesh should be good at: check a goal before using it")
    actions = goal.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="accepted or why not, what state it needs and what traffic it costs",
        description="Say whether the mesh understands a goal, what it means and what it costs (docs/optimizer.md).",
        epilog="Exit code 14 for a goal that is refused.\n\nexample:\n"
        '  skymesh goal check "minimize average(path sum(link.latency)) over clients subject to fanout <= 6"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    change = actions.add_parser(
        "set",
        usage=f"{PROGRAM} goal set STREAM GOAL --owner FILE [OPTION]...",
        help="give a running mesh a goal",
        description="Sign a goal with the key of the stream's owner, and hand it to the peers of the stream.",
        epilog='example:\n  skymesh goal set --stream asdi --owner asdi.key "minimize max(path sum(link.latency))"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show = actions.add_parser(
        "show",
        usage=f"{PROGRAM} goal show STREAM [OPTION]...",
        help="the goal of a running mesh, and what each peer costs",
        description="Show the goal that peers hold, what each costs, and which constraints are broken where.",
        epilog="Exit code 1 when a constraint is broken, or when some peer does not follow the goal.",
    )
    for name, parser in (("goal check", check), ("goal set", change), ("goal show", show)):
        if fill:
            _fill(parser, name)
    for parser in (check, change):
        parser.add_argument("goal", metavar="GOAL")


def _add_pipe(commands: argparse._SubParsersAction[_Parser], *, fill: bool) -> None:
    pipe = commands.add_parser("pipe", help="carry bytes from standard input to standard output, over several senders")
    actions = pipe.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, (summary, example) in _PIPE.items():
        parser = actions.add_parser(
            action,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog="Needs no mesh and no DHT. Senders that are given the same bytes back each other up.\n\n"
            f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if fill:
            _fill(parser, f"pipe {action}")


def _add_config(commands: argparse._SubParsersAction[_Parser]) -> None:
    config = commands.add_parser("config", help="show settings and where they come from")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show",
        help="every setting, its value and its origin",
        description="Flags go before PEER_* variables, those before the TOML file, that before the defaults.",
    )
    show.add_argument("of", nargs="?", default="join", choices=sorted([*_COMMANDS, *_PAIRS]), metavar="COMMAND",
                      help="whose settings (default: join)")  # fmt: skip
    show.add_argument("--config", metavar="FILE", help="TOML file with settings")
    show.add_argument("--json", action="store_true", help="as JSON")


def main(argv: Sequence[str]) -> int:
    """Run one call; errors come out as exceptions that `run` explains."""
    parser = build_parser(only=argv[0] if argv and argv[0] not in ("completion", "man") else None)
    arguments = parser.parse_args(argv)
    if arguments.command not in _COMMANDS:
        _collect_from_now_on()
    if arguments.version:
        return _print_version()
    match arguments.command:
        case None:
            parser.print_help()
            return ExitCode.USAGE
        case "config":
            return _show_config(arguments)
        case "completion":
            from peer.cli.completion import script

            sys.stdout.write(script(arguments.shell, parser))
            return ExitCode.OK
        case "man":
            return _print_manual(parser, arguments.of)
        case "pipe":
            from peer.cli import pipe

            action = pipe.send if arguments.action == "send" else pipe.receive
            return action(_settings(f"pipe {arguments.action}", arguments))
        case "keys":
            return keys(arguments)
        case "verify":
            return verify(arguments)
        case "query":
            from peer.cli.query import check

            return check(_settings("query check", arguments), arguments.xpath)
        case "goal":
            if arguments.action == "check":
                from peer.cli.goal import check as check_goal

                return check_goal(_settings("goal check", arguments), arguments.goal)
            from peer.cli import mesh_goal

            settings = _settings(f"goal {arguments.action}", arguments)
            return (
                mesh_goal.set_goal(settings, arguments.goal) if arguments.action == "set" else mesh_goal.show(settings)
            )
    module, _, function = _COMMANDS[arguments.command][0].partition(":")
    command = getattr(importlib.import_module(module), function)
    _collect_from_now_on()
    settings = _settings(arguments.command, arguments)
    if arguments.command == "replay":
        return int(command(settings, arguments.directory))
    return int(command(settings))


def _collect_from_now_on() -> None:
    """What is loaded stays: the collector need not look at it, which would take tens of milliseconds each time."""
    gc.freeze()
    gc.enable()


def _settings(command: str, arguments: argparse.Namespace) -> Settings:
    from peer.cli.config import resolve
    from peer.cli.settings import all_names, settings_for

    settings = resolve(
        settings_for(command), arguments, os.environ, command=command.partition(" ")[0], others=all_names()
    )
    if "log_level" in settings.values:  # before anything is said
        from peer.cli.logs import set_up

        set_up(settings["log_level"], as_json=settings["log_json"])
    return settings


def _show_config(arguments: argparse.Namespace) -> int:
    import json

    from peer.cli.config import resolve
    from peer.cli.settings import all_names, settings_for

    known = [setting.optional() for setting in settings_for(arguments.of)]
    file_only = argparse.Namespace(config=arguments.config)
    settings = resolve(known, file_only, os.environ, command=arguments.of.partition(" ")[0], others=all_names())
    if arguments.json:
        print(json.dumps({name: {"value": value, "from": origin} for name, value, origin in settings.rows()}))
        return ExitCode.OK
    print(f"# settings of {PROGRAM} {arguments.of}; file: {settings.file or 'none'}")
    for name, value, origin in settings.rows():
        print(f"{name:<14} {_shown(value):<28} {origin}")
    return ExitCode.OK


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple) and len(value) == 2:
        from dht.addresses import endpoint_text

        return endpoint_text(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_manual(parser: argparse.ArgumentParser, command: str | None) -> int:
    from peer.cli.manpage import names, page

    if command is not None and command not in names(parser):
        known = nearest(command, names(parser)) or f"; there are {', '.join(names(parser))}"
        raise CliError(f"no such command: {command!r}{known}", ExitCode.USAGE)
    sys.stdout.write(page(parser, version(), command))
    return ExitCode.OK


def _print_version() -> int:
    import platform

    from dcp.wire import VERSION as DCP_VERSION
    from peer.mesh.messages import VERSION as MESH_VERSION

    build = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    print(f"{PROGRAM} {version()} (DCP {DCP_VERSION}, mesh {MESH_VERSION}; {build})")
    return ExitCode.OK


def run() -> None:
    """The process: the only place that ends it."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:
        explained = explain(error)
        if explained is None:
            import traceback

            traceback.print_exc()
            explained = ExitCode.INTERNAL, "this is a fault of the program; please report it with the lines above"
        code, sentence = explained
        if sentence:
            from peer.cli.logs import complain

            complain(sentence, code)
    if code == ExitCode.BROKEN_PIPE:
        # Nobody reads any more; keep the interpreter from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(int(code))


__all__ = ["CliError", "build_parser", "main", "run"]
