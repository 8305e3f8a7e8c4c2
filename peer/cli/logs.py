"""Logs of the command line: lines for people, or with --log-json an object a line for a collector.

What happens in the mesh is logged at INFO with its fields, so that a collector need not read sentences:

    {"time": 1794800005.404646, "level": "info", "logger": "peer.node", "message": "asdi: parent gained: ...",
     "event": "ParentGained", "fields": {"address": "127.0.0.1:4000", "peer_id": "w6ln...", ...}}
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from peer.observe.words import fields_of

CHATTY = ("kademlia", "rpcudp", "trio-asyncio", "asyncio")
"""Libraries that log every datagram at INFO."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        happened = getattr(record, "happened", None)
        if happened is not None:
            line["event"], line["fields"] = named(happened)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def named(happened: object) -> tuple[str, dict[str, Any]]:
    """An event's name and fields; a name alone when it is text."""
    return (happened, {}) if isinstance(happened, str) else (type(happened).__name__, fields_of(happened))


def say(text: str) -> None:
    """A line for people who run a command; an object if they asked for those."""
    if is_json:
        record = logging.LogRecord("peer.cli", logging.INFO, "", 0, text, None, None)
        print(JsonFormatter().format(record), file=sys.stderr, flush=True)
    else:
        print(f"skymesh: {text}", file=sys.stderr, flush=True)


def complain(sentence: str, code: int) -> None:
    """Why a command ends."""
    if is_json:
        record = logging.LogRecord("peer.cli", logging.ERROR, "", 0, sentence, None, None)
        line = json.loads(JsonFormatter().format(record)) | {"exit_code": int(code)}
        print(json.dumps(line), file=sys.stderr, flush=True)
    else:
        print(f"skymesh: {sentence}", file=sys.stderr, flush=True)


is_json = False
"""Whether what goes to stderr is one object per line."""


def set_up(level: str, *, as_json: bool) -> None:
    global is_json
    is_json = as_json
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)
