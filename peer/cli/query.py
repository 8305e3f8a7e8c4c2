"""`query check`: whether the mesh takes a query, how it is held, and what it matches in a sample."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.feeds.framing import XmlSplitter
from xmlswitch import MalformedDocument, Query, QueryError, explain


def check(settings: Settings, xpath: str) -> int:
    try:
        query = Query.parse(xpath, dict(settings["namespace"]))
    except QueryError as error:
        if settings["json"]:
            print(json.dumps({"accepted": False, "reason": error.reason, "position": error.position + 1}))
            return ExitCode.BAD_QUERY
        raise CliError(pointed(xpath, error), ExitCode.BAD_QUERY) from None
    explanation = explain(query)
    answer: dict[str, Any] = {"accepted": True} | explanation.as_dict()
    sample = _sample(query, settings["sample"]) if settings["sample"] is not None else None
    if sample is not None:
        answer["sample"] = sample
    if settings["json"]:
        print(json.dumps(answer))
        return ExitCode.OK
    print("accepted")
    print(explanation)
    if sample is not None:
        refused = f", {sample['refused']} refused by the parser" if sample["refused"] else ""
        print(f"sample      {sample['matched']} of {sample['documents']} documents match{refused}")
        for first in sample["first"]:
            print(f"            {first}")
    return ExitCode.OK


def pointed(text: str, error: QueryError) -> str:
    """The reason, and a caret under the character it is about."""
    if not error.text or "\n" in text:
        return f"this query is refused: {error}"
    return f"this query is refused: {error}\n  {text}\n  {' ' * error.position}^"


def _sample(query: Query, name: str) -> dict[str, Any]:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CliError(f"--sample {name}: {error.strerror}", ExitCode.CONFIG) from None
    splitter = XmlSplitter()
    documents = [*splitter.feed(data), *splitter.finish()]
    matched, refused = [], splitter.errors.total()
    for document in documents:
        try:
            if query.matches(document):
                matched.append(document)
        except MalformedDocument:
            refused += 1
    return {
        "documents": len(documents),
        "matched": len(matched),
        "refused": refused,
        "first": [document.decode("utf-8", "replace")[:100] for document in matched[:3]],
    }
