"""Events of the mesh for a person who reads a log: words and values, not the way Python writes objects."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


def fields_of(event: object) -> dict[str, Any]:
    """The fields of an event as plain values: addresses and peers as text."""
    names = [declared.name for declared in dataclasses.fields(event)]  # type: ignore[arg-type]
    return {name: _plain(name, getattr(event, name)) for name in names}


def _plain(name: str, value: object) -> Any:
    if isinstance(value, bytes):
        from dht import id_text

        return id_text(value) if name == "peer_id" else f"{len(value)} bytes"
    if isinstance(value, tuple) and len(value) >= 2 and isinstance(value[0], str):
        from peer.observe.statistics import address_text

        return address_text(value)
    return value


class InWords:
    """`str` of it is the event in words; made only if somebody logs it."""

    __slots__ = ("_event",)

    def __init__(self, event: object) -> None:
        self._event = event

    def __str__(self) -> str:
        name = _HUMP.sub(" ", type(self._event).__name__).lower()
        values = ", ".join(
            f"{field.replace('_', ' ')} {_short(value)}" for field, value in fields_of(self._event).items()
        )
        return f"{name}: {values}" if values else name


def _short(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(getattr(value, "name", value)).lower()
