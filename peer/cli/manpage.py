"""Manual pages in roff, made from the parser itself: `skymesh man > skymesh.1`, `skymesh man join > skymesh-join.1`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from peer.cli.errors import ExitCode

_CODES = {
    ExitCode.OK: "Done; also after SIGTERM.",
    ExitCode.NOT_ALL: "Not everything: a peer lacks parents, or a time limit came before the packets did.",
    ExitCode.USAGE: "A wrong call.",
    ExitCode.NO_DHT: "No DHT answered.",
    ExitCode.STREAM_UNAVAILABLE: "No peer of the stream was found.",
    ExitCode.BAD_QUERY: "A query that is refused.",
    ExitCode.INTERRUPTED: "Ctrl-C.",
}


def page(parser: argparse.ArgumentParser, version: str, command: str | None = None) -> str:
    """The page of the whole program, or of one command."""
    commands = _commands(parser)
    return (
        "\n".join(_of_program(parser, commands, version) if command is None else _of(commands[command], version)) + "\n"
    )


def names(parser: argparse.ArgumentParser) -> list[str]:
    return list(_commands(parser))


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command that does something, by its whole name."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                inner = _commands(child)
                found |= {f"{name} {deeper}": leaf for deeper, leaf in inner.items()} if inner else {name: child}
    return found


def _of_program(
    parser: argparse.ArgumentParser, commands: dict[str, argparse.ArgumentParser], version: str
) -> Iterator[str]:
    yield from _head(parser.prog, version, parser.description or "")
    yield from (".SH SYNOPSIS", f".B {parser.prog}", "COMMAND [OPTION]...")
    yield from (".SH DESCRIPTION", _text(parser.description or ""))
    yield ".SH COMMANDS"
    for name, child in commands.items():
        yield from (".TP", f".B {name}", _text(child.description or ""))
    yield from (".SH EXAMPLES", ".nf", _text(parser.epilog or ""), ".fi")
    yield from (
        ".SH ENVIRONMENT",
        "Every option is also a variable and a key of a TOML file:",
        ".B PEER_PARENTS=3",
        "stands for",
        r".BR \-\-parents\ 3 .",
        "A flag takes precedence over a variable, a variable over the file.",
    )
    yield from (".SH FILES", ".TP", ".B ./skymesh.toml, ~/.config/skymesh/config.toml", "Settings.")
    yield ".SH EXIT STATUS"
    for code, meaning in _CODES.items():
        yield from (".TP", f".B {int(code)}", meaning)
    yield "docs/cli.md lists all of them."
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {parser.prog}\\-{name.replace(' ', chr(92) + '-')} (1)" for name in commands)


def _of(parser: argparse.ArgumentParser, version: str) -> Iterator[str]:
    yield from _head(parser.prog.replace(" ", "-"), version, parser.description or "")
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (".SH SYNOPSIS", _text(usage))
    yield from (".SH DESCRIPTION", _text(parser.description or ""), ".PP", ".nf", _text(parser.epilog or ""), ".fi")
    yield ".SH OPTIONS"
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield ".TP"
            yield ".B " + _text(formatter._format_action_invocation(action))
            yield _text(formatter._expand_help(action) if action.help else "")


def _head(name: str, version: str, summary: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "skymesh {version}" "User Commands"'
    yield from (".SH NAME", _text(f"{name} - {summary.partition('.')[0]}"))


def _text(text: str) -> str:
    """Text that roff prints as it is: no line begins with a control character, and hyphens can be copied."""
    lines = text.replace("\\", r"\e").replace("-", r"\-").splitlines() or [""]
    return "\n".join(r"\&" + line if line.startswith((".", "'")) else line for line in lines)
