"""`query check`: whether the mesh takes a query, how it is held, and what it matches in a sample."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.feeds.framing import XmlSplitter
from xmlswitch import Query, QueryError, explain
from xmlswitch.query.advice import Advice, advise
from xmlswitch.query.hints import hint_for, warnings_for
from xmlswitch.query.known_namespaces import KNOWN, read_namespaces


def check(settings: Settings, xpath: str) -> int:
    namespaces = _namespaces(settings)
    try:
        query = Query.parse(xpath, namespaces)
    except QueryError as error:
        hint = hint_for(xpath)
        if settings["json"]:
            refusal = {"accepted": False, "reason": error.reason, "position": error.position + 1, "hint": hint}
            print(json.dumps(refusal))
            return ExitCode.BAD_QUERY
        raise CliError(pointed(xpath, error) + (f"\n  hint: {hint}" if hint else ""), ExitCode.BAD_QUERY) from None
    explanation = explain(query)
    warnings = warnings_for(query, namespaces)
    answer: dict[str, Any] = {"accepted": True} | explanation.as_dict() | {"warnings": warnings}
    sample = None
    if settings["sample"] is not None:
        documents, torn = _documents(settings["sample"])
        sample = advise(query, documents)
        answer["sample"] = {
            "documents": sample.documents,
            "matched": sample.matched,
            "refused": sample.refused + torn,
            "first": list(sample.first),
            "hints": list(sample.hints),
        }
    if settings["json"]:
        print(json.dumps(answer))
        return ExitCode.OK
    print("accepted")
    print(explanation)
    for warning in warnings:
        print(f"warning     {warning}")
    if sample is not None:
        _print_sample(sample, answer["sample"]["refused"])
    return ExitCode.OK


def _print_sample(sample: Advice, refused: int) -> None:
    also = f", {refused} refused by the parser" if refused else ""
    print(f"sample      {sample.matched} of {sample.documents} documents match{also}")
    for first in sample.first:
        print(f"            {first}")
    for hint in sample.hints:
        print(f"hint        {hint}")


def pointed(text: str, error: QueryError) -> str:
    """The reason, and a caret under the character it is about."""
    if not error.text or "\n" in text:
        return f"this query is refused: {error}"
    return f"this query is refused: {error}\n  {text}\n  {' ' * error.position}^"


def _namespaces(settings: Settings) -> dict[str, str]:
    """Those of a file or of a known set, and those that were bound one by one, which go before."""
    name = settings["namespaces"]
    if name is None:
        return dict(settings["namespace"])
    if name in KNOWN:
        return KNOWN[name] | dict(settings["namespace"])
    try:
        return read_namespaces(Path(name).read_text(encoding="utf-8")) | dict(settings["namespace"])
    except OSError as error:
        known = ", ".join(KNOWN)
        raise CliError(f"--namespaces {name}: {error.strerror} (known sets: {known})", ExitCode.CONFIG) from None
    except ValueError as error:
        raise CliError(f"--namespaces {name}: {error}", ExitCode.CONFIG) from None


def _documents(name: str) -> tuple[list[bytes], int]:
    """The documents of a sample, and what is none."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CliError(f"--sample {name}: {error.strerror}", ExitCode.CONFIG) from None
    splitter = XmlSplitter()
    documents = [*splitter.feed(data), *splitter.finish()]
    return documents, splitter.errors.total()
