"""Events of the gateway as text: JSON objects, alone (WebSocket) or as Server-Sent Events."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any

from dcp import Gap, Omitted, Packet, Started
from peer.gateway.history import Event
from peer.items import Content, QuerySwitched
from peer.plaintext import text_of

SHARED = 32
"""Texts that are kept: clients that follow the stream are given the same ones."""


def as_object(event: Event) -> dict[str, Any]:
    """The fields of an event. `type` names it, and docs/gateway.md the rest."""
    found = _fields(event.item)
    if not event.is_filtered:
        found["filtered"] = False
    return found


def _fields(item: Content) -> dict[str, Any]:
    match item:
        case Packet(an, payload):
            return {"type": "packet", "an": an} | _content(payload)
        case Omitted(an, payload):
            return {"type": "omitted", "an": an} | _content(payload)
        case Gap(after, until):
            return {"type": "gap", "after": after, "until": until}
        case Started(position):
            return {"type": "started", "position": position}
        case QuerySwitched(position, query):
            return {"type": "switched", "position": position, "query": query.canonical if query is not None else ""}


def _content(payload: bytes) -> dict[str, str]:
    text = text_of(payload)
    return {"xml": text} if text is not None else {"base64": base64.b64encode(payload).decode("ascii")}


@lru_cache(SHARED)
def as_text(event: Event) -> str:
    return json.dumps(as_object(event), ensure_ascii=False)


@lru_cache(SHARED)
def as_sse(event: Event) -> str:
    """The id is where the stream stands behind the event, so that `Last-Event-ID` resumes there."""
    found = as_object(event)
    return f"event: {found['type']}\nid: {event.position}\ndata: {json.dumps(found, ensure_ascii=False)}\n\n"
