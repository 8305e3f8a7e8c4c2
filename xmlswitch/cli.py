"""`python -m xmlswitch explain|match`: ask the switch from a shell.

Exit codes: 0 all answered, 1 some document was refused (the others are answered), 2 a wrong call or a refused query.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from xmlswitch.errors import MalformedDocument, QueryError
from xmlswitch.query.explain import explain
from xmlswitch.query.hints import hint_for
from xmlswitch.query.known_namespaces import KNOWN, read_namespaces
from xmlswitch.query.query import Query
from xmlswitch.switch import Switch

OK, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130


class _CallError(Exception):
    """A wrong call: one sentence for the user."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m xmlswitch",
        description="Match XML documents against XPath queries: all queries in one pass over each document.",
        epilog="Exit codes: 0 all answered; 1 a document was refused; 2 wrong call or refused query.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    explained = commands.add_parser(
        "explain",
        help="how the switch holds a query",
        description="Show a query's canonical form and whether the index decides it alone, and if not, why.",
    )
    explained.add_argument("query", metavar="QUERY")
    matched = commands.add_parser(
        "match",
        help="which queries match which documents",
        description="Print for each document the queries that match it. '-' is standard input.",
        epilog='example: python -m xmlswitch match "/flight/flightleg/altitude > 300" flight1.xml flight2.xml',
    )
    matched.add_argument(
        "arguments", metavar="QUERY | DOCUMENT", nargs="+", help="a query (without --queries), documents"
    )
    matched.add_argument(
        "--queries",
        metavar="FILE",
        help="one query per line; lines are counted from 1, empty ones and `#` comments skipped",
    )
    for command in (explained, matched):
        command.add_argument("--json", action="store_true", help="print JSON, one line a document")
        command.add_argument(
            "--namespace", metavar="PREFIX=URI", action="append", default=[], help="bind a prefix (may be repeated)"
        )
        command.add_argument("--namespaces", metavar="FILE", help="a TOML file of prefixes, or a known set: faa, fixm")
    return parser


def _namespaces(args: argparse.Namespace) -> dict[str, str]:
    bound: dict[str, str] = {}
    if args.namespaces is not None:
        try:
            bound |= KNOWN.get(args.namespaces) or read_namespaces(_read_text(args.namespaces))
        except ValueError as error:
            raise _CallError(f"{args.namespaces}: {error}") from None
    for binding in args.namespace:
        prefix, equals, uri = binding.partition("=")
        if not (prefix and equals and uri):
            raise _CallError(f"--namespace takes PREFIX=URI, not {binding!r}")
        bound[prefix] = uri
    return bound


def _explain(args: argparse.Namespace) -> int:
    explanation = explain(Query.parse(args.query, _namespaces(args)))
    print(json.dumps(explanation.as_dict()) if args.json else explanation)
    return OK


def _match(args: argparse.Namespace) -> int:
    namespaces = _namespaces(args)
    switch: Switch[Query] = Switch(exact=True)
    documents: list[str] = list(args.arguments)
    names: dict[int, str] = {}
    code = OK
    if args.queries is None:
        if len(documents) < 2:
            raise _CallError("match needs a query and at least one document")
        lines = [documents.pop(0)]
    else:
        lines = _read_text(args.queries).splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and not (args.queries is not None and line.lstrip().startswith("#")):
            try:
                query = Query.parse(line.strip(), namespaces)
            except QueryError as error:
                place = f"{args.queries}, line {number}: " if args.queries is not None else ""
                hint = hint_for(line)
                print(f"xmlswitch: {place}{error}" + (f"; hint: {hint}" if hint else ""), file=sys.stderr)
                code = USAGE  # the other queries are answered all the same
                continue
            switch.add_link(number, slot=number)
            switch.subscribe(number, query)
            names[number] = line.strip()
    for document in documents:
        code = max(code, _answer(switch, document, names, args.json))
    return code


def _answer(switch: Switch[Query], document: str, names: dict[int, str], as_json: bool) -> int:
    try:
        packet = sys.stdin.buffer.read() if document == "-" else Path(document).read_bytes()
        found = sorted(number for number in switch.match(packet) if isinstance(number, int))
    except (MalformedDocument, OSError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if as_json:
            print(json.dumps({"file": document, "error": reason}))
        else:
            print(f"{document}: {reason}", file=sys.stderr)
        return REFUSED
    if as_json:
        print(json.dumps({"file": document, "matches": found}))
    elif not found:
        print(f"{document}: no match")
    for number in [] if as_json else found:
        print(f"{document}: {number}: {names[number]}")
    return OK


def _read_text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
        raise _CallError(f"{name}: {reason}") from None


def main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        return _explain(args) if args.command == "explain" else _match(args)
    except (_CallError, QueryError) as error:
        print(f"xmlswitch: {error}", file=sys.stderr)
        return USAGE


def run() -> None:
    """The process: exit codes, a clean Ctrl-C, a closed pipe."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has enough; keep the interpreter from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = OK
    sys.exit(code)
