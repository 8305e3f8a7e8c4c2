"""A packet of the mesh as a row of the archive: as `ingest` would have made it, if its line came along. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import asdi
from asdi.origin import split_origin_untrusted
from peer.feeds.stamp import strip_stamp
from pipeline.archive.schema import GAP_TYPE, checksum

_STATUS = {
    b"active": "TZ", b"planned": "FZ", b"amended": "AF", b"boundary": "UZ", b"departed": "DZ", b"arrived": "AZ",
    b"cancelled": "RZ", b"oceanic": "TO",
}  # fmt: skip
_FLIGHT = re.compile(rb"<flight><id[^>]*>([A-Z0-9]{2,7})</id>.{0,80}?<flightleg status=\"([a-z]+)\">", re.DOTALL)
_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")


def describe(packet: bytes) -> tuple[str, str | None]:
    """(type, flight) of a packet as far as its bytes show it: ASDI's types, else the name of the root element."""
    found = _FLIGHT.search(packet)
    if found:
        return _STATUS.get(found[2], "flight"), found[1].decode("ascii")
    if b"<heartbeat/>" in packet:
        return "HB", None
    root = _ROOT.search(packet)
    return (root[1].decode("ascii", "replace") if root else "unknown"), None


def exact(raw: bytes) -> str:
    """The line without its end, every byte a character: `.encode("latin-1")` gives it back."""
    return raw.removesuffix(b"\r").decode("latin-1")


def gap_row(an: int, us: int, after: int) -> tuple[Any, ...]:
    return (an, us, GAP_TYPE, None, None, None, None, None, after, checksum(an, None))


def packet_row(an: int, us: int, payload: bytes) -> tuple[Any, ...]:
    """A packet that came at this time, as the archive keeps it: as `ingest` would have, if its line came along."""
    xml, time, line = split_origin_untrusted(strip_stamp(payload))
    message = _parsed(line, time, xml) if line is not None and time is not None else None
    if message is None or time is None or line is None:
        kind, flight = describe(xml)
        return (an, us, kind, None, flight, None, None, xml, None, checksum(an, xml))
    said = (message.type, message.facility, message.flight, message.sequence)
    return (an, time * 1_000_000, *said, exact(line), xml, None, checksum(an, xml))


def _parsed(line: bytes, time: int, xml: bytes) -> asdi.Message | None:
    """The line's message, if the packet is really made of it, and at that time; a root may lie."""
    try:
        message = asdi.parse(line)
    except asdi.AsdiError:
        return None
    is_then = (message.day, message.second) == (datetime.fromtimestamp(time, UTC).day, time % 86_400)
    return message if is_then and asdi.to_xml(message) == xml else None
