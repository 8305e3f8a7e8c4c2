"""One line of ASDI text to a message and back, and to the XML packet that the mesh carries.

Pure: no Spark, no I/O, no clock. The live root feed, the built-in feed and the Spark jobs all come through here, so a
packet has the same bytes whichever way it came. The grammar is in docs/asdi.md, the XML in docs/schema/asdi.dtd.

A message keeps the fields of its line as the short texts they are (`290`, `M081`, `OTP/085`): checked for shape here,
taken apart only where XML needs the parts. What the grammar does not cover raises `AsdiError` and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from asdi.messages import (
    MAX_LINE_CHARS,
    Amendment,
    Arrival,
    AsdiError,
    Body,
    Boundary,
    Cancellation,
    Departure,
    Heartbeat,
    Message,
    Oceanic,
    Opaque,
    Plan,
    Reason,
    Report,
    Track,
)

# --- shapes of fields -------------------------------------------------------------------------------------------------
_ID = r"([A-Z0-9]{2,7})(?:/([A-Z0-9]{1,4}))?"
_AIRCRAFT = r"(?:[0-9A-Z]{1,3}/)?[A-Z0-9]{2,4}(?:/[A-Z])?"
_SPEED = r"\d{2,4}|M\d{3}|SC"
_ALTITUDE = r"OTP(?:/\d{1,3})?|VFR(?:/\d{1,3})?|ABV/\d{1,3}|\d{1,3}B\d{1,3}|\d{1,3}[TC]?"
_LATITUDE = r"(?:[0-8]\d|90)[0-5]\d(?:[0-5]\d)?"
_LONGITUDE = r"(?:0\d\d|1[0-7]\d|180)[0-5]\d(?:[0-5]\d)?"
# A missing hemisphere means N and W; with both letters there, some feeds leave out the slash.
_POSITION = rf"({_LATITUDE})(?:([NS])/?|/)({_LONGITUDE})([EW]?)"
_POINT = rf"[A-Z0-9]{{2,12}}|-|{_LATITUDE}[NS]?/{_LONGITUDE}[EW]?"
_TIME = r"[A-Z]?\d{4}"
# A route is one run of non-blank characters that is neither a time nor an altitude by position.
_ROUTE = r"[!-~]+"

_TRACK = re.compile(rf"{_ID} ({_SPEED}|\d)(?: ({_ALTITUDE}))? {_POSITION}")
_PLAN = re.compile(
    rf"{_ID}(?: ({_AIRCRAFT}))?(?: ({_SPEED}))? ({_POINT}) ({_TIME})"
    rf"(?: ({_ALTITUDE})(?= |$))?(?: ({_ALTITUDE})(?= |$))?(?: ({_ROUTE}))?(?: ([ -~]+))?"
)
_BOUNDARY = re.compile(
    rf"{_ID}(?: ({_AIRCRAFT}))?(?: ({_SPEED}))? ({_POINT}) ({_TIME})(?: ({_ALTITUDE})(?= |$))?(?: ({_ROUTE}))?"
)
_DEPARTURE = re.compile(rf"{_ID}(?: ({_AIRCRAFT}))? ({_POINT})(?: ([A-Z]\d{{4}}))? ({_POINT})(?: ({_TIME}))?")
_ARRIVAL = re.compile(rf"{_ID} ({_POINT}) ({_POINT})(?: ({_TIME}))?")
_CANCELLATION = re.compile(rf"{_ID} ({_POINT}) ({_POINT})")
_REPORT_FIRST = re.compile(rf"{_ID} ({_SPEED}|\d)((?: \S+)+)")
_WHOLE_ID = re.compile(_ID)
_WHOLE_POSITION = re.compile(_POSITION)
_AMENDABLE = {
    "02": re.compile(_ID),
    "03": re.compile(_AIRCRAFT),
    "05": re.compile(_SPEED),
    "06": re.compile(_POINT),
    "07": re.compile(_TIME),
    "08": re.compile(_ALTITUDE),
    "09": re.compile(_ALTITUDE),
    "10": re.compile(_ROUTE),
}
_REFERENCE = re.compile(r"\d\d")
_ANY_VALUE = re.compile(r"[!-~]+")
_DAY_TIME = re.compile(r"(?:0[1-9]|[12]\d|3[01])/(?:[01]\d|2[0-3])[0-5]\d")
_WHOLE_ALTITUDE = re.compile(_ALTITUDE)
_WHOLE_POINT = re.compile(_POINT)

_HEADER = re.compile(r"([0-9A-Fa-f]{4})(\d\d)(\d\d)(\d\d)(\d\d)([A-Z0-9]{4})([A-Z]{2})(?: |$)", re.ASCII)
_UNPRINTABLE = re.compile(r"[^ -~]+")


def clean(line: bytes | str) -> str:
    """The line as text, without its end, trailing blanks, and the control and non-ASCII bytes that feeds let slip."""
    text = line.decode("ascii", "ignore") if isinstance(line, bytes) else line
    text = text.rstrip()
    return _UNPRINTABLE.sub("", text) if not (text.isascii() and text.isprintable()) else text


def parse(line: bytes | str) -> Message:
    """One line of the feed. Raises `AsdiError`, and only that, for anything that is not a known message."""
    if len(line) > MAX_LINE_CHARS:
        raise AsdiError(Reason.TOO_LONG, f"{len(line)} characters, maximum {MAX_LINE_CHARS}")
    text = clean(line)
    head = _HEADER.match(text)
    if head is None:
        if not text.strip():
            raise AsdiError(Reason.EMPTY, "only blanks")
        raise AsdiError(Reason.NO_HEADER, f"expected sequence, time, facility and type, found {text[:20]!r}")
    sequence, dd, hh, mm, ss, facility, kind = head.groups()
    day, hour, minute, second = int(dd), int(hh), int(mm), int(ss)
    if not (1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        raise AsdiError(Reason.BAD_TIME, f"{dd}{hh}{mm}{ss} is not a day and time")
    reader = _READERS.get(kind)
    if reader is None:
        raise AsdiError(Reason.UNKNOWN_TYPE, f"message type {kind!r}")
    body = reader(text[19:])
    if body is None:  # blanks in plenty are rare, so they are only looked at when the plain reading fails
        body = reader(" ".join(text[19:].split()))
    if body is None:
        raise AsdiError(Reason.BAD_BODY, f"invalid fields for {kind}: {text[19:79]!r}")
    return Message(int(sequence, 16), day, hour * 3600 + minute * 60 + second, facility, kind, body)


def _read_track(text: str) -> Body | None:
    found = _TRACK.fullmatch(text)
    if found is None:
        return None
    flight, computer, speed, altitude, lat, ns, lon, ew = found.groups()
    return Track(flight, computer or "", speed, altitude or "", lat + (ns or "N"), lon + (ew or "W"))


def _read_plan(text: str) -> Body | None:
    found = _PLAN.fullmatch(text)
    return Plan(*found.groups("")) if found else None


def _read_boundary(text: str) -> Body | None:
    found = _BOUNDARY.fullmatch(text)
    return Boundary(*found.groups("")) if found else None


def _read_departure(text: str) -> Body | None:
    found = _DEPARTURE.fullmatch(text)
    return Departure(*found.groups("")) if found else None


def _read_arrival(text: str) -> Body | None:
    found = _ARRIVAL.fullmatch(text)
    return Arrival(*found.groups("")) if found else None


def _read_cancellation(text: str) -> Body | None:
    found = _CANCELLATION.fullmatch(text)
    return Cancellation(*found.groups("")) if found else None


def _read_amendment(text: str) -> Body | None:
    parts = text.split()
    if len(parts) < 5:
        return None
    head = _CANCELLATION.fullmatch(" ".join(parts[:3]))
    if head is None:
        return None
    changes: list[tuple[str, str]] = []
    at = 3
    while at < len(parts):
        reference = parts[at]
        if not _REFERENCE.fullmatch(reference) or at + 1 == len(parts):
            raise AsdiError(Reason.BAD_AMENDMENT, f"expected a field reference and a value, found {reference[:20]!r}")
        # Remarks (11) are words to the end of the line; every other value is one word.
        value = " ".join(parts[at + 1 :]) if reference == "11" else parts[at + 1]
        if reference != "11" and not _AMENDABLE.get(reference, _ANY_VALUE).fullmatch(value):
            raise AsdiError(Reason.BAD_AMENDMENT, f"{value[:40]!r} is not valid for field {reference}")
        changes.append((reference, value))
        at = len(parts) if reference == "11" else at + 2
    flight, computer, departure, destination = head.groups("")
    return Amendment(flight, computer, departure, destination, tuple(changes))


def _read_oceanic(text: str) -> Body | None:
    found = _REPORT_FIRST.fullmatch(text)
    if found is None:
        return None
    flight, computer, speed, rest = found.groups("")
    reports: list[Report] = []
    ends: list[str] = []
    parts = rest.split()
    at = 0
    # The public sources disagree whether departure and destination stand after the first position or after the last:
    # they are the two words that do not begin a position, wherever they stand.
    while at < len(parts):
        if _DAY_TIME.fullmatch(parts[at]) and at + 2 < len(parts):
            position = _WHOLE_POSITION.fullmatch(parts[at + 2])
            if position is None or not _WHOLE_ALTITUDE.fullmatch(parts[at + 1]):
                return None
            lat, ns, lon, ew = position.groups()
            reports.append(Report(parts[at], parts[at + 1], lat + (ns or "N"), lon + (ew or "W")))
            at += 3
        elif _WHOLE_POINT.fullmatch(parts[at]):
            ends.append(parts[at])
            at += 1
        else:
            return None
    if not 1 <= len(reports) <= 3 or len(ends) != 2:
        return None
    return Oceanic(flight, computer, speed, ends[0], ends[1], tuple(reports))


def _read_heartbeat(text: str) -> Body | None:
    return Heartbeat() if not text.strip() else None


def _read_opaque(text: str) -> Body | None:
    return Opaque(text.strip())


_READERS: dict[str, Callable[[str], Body | None]] = {
    "TZ": _read_track,
    "FZ": _read_plan,
    "AF": _read_amendment,
    "UZ": _read_boundary,
    "DZ": _read_departure,
    "AZ": _read_arrival,
    "RZ": _read_cancellation,
    "TO": _read_oceanic,
    "HB": _read_heartbeat,
    "RT": _read_opaque,
    "BZ": _read_opaque,
}


# --- back to text -----------------------------------------------------------------------------------------------------
def to_text(message: Message) -> str:
    """The message as a line of the feed, in normal form: one blank between fields, hemispheres written."""
    hour, rest = divmod(message.second, 3600)
    minute, second = divmod(rest, 60)
    head = f"{message.sequence:04X}{message.day:02d}{hour:02d}{minute:02d}{second:02d}{message.facility}{message.type}"
    fields = _fields(message.body)
    return f"{head} {fields}" if fields else head


def _fields(body: Body) -> str:
    match body:
        case Heartbeat():
            return ""
        case Opaque():
            return body.text
        case Track():
            words = [body.speed, body.altitude, f"{body.latitude}/{body.longitude}"]
        case Amendment():
            words = [body.departure, body.destination, *(word for change in body.changes for word in change)]
        case Oceanic():
            first, *more = ((r.time, r.altitude, f"{r.latitude}/{r.longitude}") for r in body.reports)
            words = [body.speed, *first, body.departure, body.destination, *(word for r in more for word in r)]
        case _:
            words = list(body[2:])
    flight = f"{body.flight}/{body.computer}" if body.computer else body.flight
    return " ".join([flight, *(word for word in words if word)])
