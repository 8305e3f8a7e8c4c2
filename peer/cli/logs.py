"""Logs of the command line: lines for people, or with --log-json an object a line for a collector.

What happens in the mesh is logged at INFO with its fields, so that a collector need not read sentences:

    {"time": 1794800005.404646, "level": "info", "logger": "peer.node", "message": "asdi: ParentGained(...)",
     "event": "ParentGained", "fields": {"address": "127.0.0.1:4000", "peer_id": "w6ln...", ...}}
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from typing import Any

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
    if isinstance(happened, str):
        return happened, {}
    names = [field.name for field in dataclasses.fields(happened)]  # type: ignore[arg-type]
    return type(happened).__name__, {name: _plain(name, getattr(happened, name)) for name in names}


def _plain(name: str, value: object) -> Any:
    if isinstance(value, bytes):
        from dht import id_text

        return id_text(value) if name == "peer_id" else f"{len(value)} bytes"
    if isinstance(value, tuple) and len(value) >= 2 and isinstance(value[0], str):
        from peer.observe.statistics import address_text

        return address_text(value)
    return value


def set_up(level: str, *, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)
