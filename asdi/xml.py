"""A message as the XML packet of the paper's Figure 12, one packet per message.

Written with f-strings: building a tree costs two and a half times as much, and every text that goes in here was
checked for shape by the parser, but for routes, remarks and opaque texts, which are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asdi import messages as asdi

_PROLOG = '<?xml version="1.0"?>'
_COORDINATE = re.compile(r"(\d{4,6}[NS]?)/(\d{5,7}[EW]?)")
_RADIAL = re.compile(r"([A-Z0-9]{2,6})(\d{3})(\d{3})")
_TIMES = {"P": "proposed", "E": "estimated", "D": "departed", "A": "actual"}
# One altitude or aircraft occurs in thousands of packets: its XML is made once. Bounded, and the oldest goes.
_CACHED = 16_384


def to_xml(message: asdi.Message) -> bytes:
    """The packet that the mesh carries for this message. As in the paper, the message id is not in it."""
    return _WRITERS[message.type](message.body).encode("ascii")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _identity(body: Any) -> str:
    if body.computer:
        return f'<id computer="{body.computer}">{body.flight}</id>'
    return f"<id>{body.flight}</id>"


@lru_cache(_CACHED)
def _altitude(text: str, kind: str) -> str:
    """Whatever the mode, the number itself is the element's text, so that `altitude > 300` means what it says."""
    if not text:
        return ""
    mode, number, high = "plain", text, ""
    if text[:3] in {"OTP", "VFR", "ABV"}:
        mode, number = text[:3].lower(), text[4:]
    elif text[-1] == "T":
        mode, number = "interim", text[:-1]
    elif text[-1] == "C":
        mode, number = "modec", text[:-1]
    elif "B" in text:
        mode = "block"
        number, _, top = text.partition("B")
        high = f' high="{top}"'
    return f'<altitude type="{kind}" mode="{mode}"{high}>{number}</altitude>'


@lru_cache(_CACHED)
def _speed(text: str) -> str:
    if not text:
        return ""
    if text[0] == "M":
        return f'<speed type="mach">{text[1:]}</speed>'
    return f'<speed type="{"classified" if text == "SC" else "filed"}">{text}</speed>'


@lru_cache(_CACHED)
def _aircraft(text: str) -> str:
    """`count-or-wake/type/equipment`, the outer two optional; equipment is one letter and a type is at least two."""
    if not text:
        return ""
    parts = text.split("/")
    equipment = parts.pop() if len(parts) > 1 and len(parts[-1]) == 1 else ""
    prefix = parts[0] if len(parts) == 2 else ""
    special = f' special="{prefix}"' if prefix else ""
    fitted = f' equipment="{equipment}"' if equipment else ""
    return f"<aircraft{special}{fitted}>{parts[-1]}</aircraft>"


@lru_cache(_CACHED)
def _point(text: str) -> str:
    place = _COORDINATE.fullmatch(text)
    if place is not None:
        lat, lon = place.groups()
        return _coordinate(lat if lat[-1] in "NS" else lat + "N", lon if lon[-1] in "EW" else lon + "W")
    radial = _RADIAL.fullmatch(text)
    if radial is not None:
        return f'<fix radial="{radial[2]}" distance="{radial[3]}">{radial[1]}</fix>'
    return f"<fix>{text}</fix>"


def _coordinate(latitude: str, longitude: str) -> str:
    return f"<coordinate><lat>{latitude}</lat><lon>{longitude}</lon></coordinate>"


def _time(text: str, default: str) -> str:
    if not text:
        return ""
    kind = _TIMES.get(text[0], "other") if text[0].isalpha() else default
    letter = f' code="{text[0]}"' if kind == "other" else ""
    return f'<time type="{kind}"{letter}>{text[-4:]}</time>'


def _route(text: str) -> str:
    """`/hhmm` at the end is an elapsed time in flight plans and a clock time elsewhere: it is called neither."""
    if not text:
        return ""
    path, slash, hhmm = text.rpartition("/")
    if slash and len(hhmm) == 4 and hhmm.isdigit():
        return f'<route time="{hhmm}">{_escape(path)}</route>'
    return f"<route>{_escape(text)}</route>"


def _ends(body: Any) -> str:
    return f"<departure>{body.departure}</departure><destination>{body.destination}</destination>"


def _track(body: asdi.Track) -> str:
    return (
        f'{_PROLOG}<flight>{_identity(body)}<flightleg status="active"><speed type="ground">{body.speed}</speed>'
        f"{_altitude(body.altitude, 'reported')}<coordinate><lat>{body.latitude}</lat><lon>{body.longitude}</lon>"
        "</coordinate></flightleg></flight>"
    )


def _plan(body: asdi.Plan) -> str:
    remarks = f"<remarks>{_escape(body.remarks)}</remarks>" if body.remarks else ""
    return (
        f'{_PROLOG}<flight>{_identity(body)}{_aircraft(body.aircraft)}<flightleg status="planned">{_speed(body.speed)}'
        f"{_point(body.fix)}{_time(body.time, 'other')}{_altitude(body.altitude, 'assigned')}"
        f"{_altitude(body.requested, 'requested')}{_route(body.route)}{remarks}</flightleg></flight>"
    )


def _change(reference: str, value: str) -> str:
    match reference:
        case "02":
            flight, _, computer = value.partition("/")
            computed = f' computer="{computer}"' if computer else ""
            inner = f"<id{computed}>{flight}</id>"
        case "03":
            inner = _aircraft(value)
        case "05":
            inner = _speed(value)
        case "06":
            inner = _point(value)
        case "07":
            inner = _time(value, "other")
        case "08":
            inner = _altitude(value, "assigned")
        case "09":
            inner = _altitude(value, "requested")
        case "10":
            inner = _route(value)
        case _:
            inner = f"<text>{_escape(value)}</text>"
    return f'<amendment field="{reference}">{inner}</amendment>'


def _amended(body: asdi.Amendment) -> str:
    changes = "".join(_change(reference, value) for reference, value in body.changes)
    return f'{_PROLOG}<flight>{_identity(body)}<flightleg status="amended">{_ends(body)}{changes}</flightleg></flight>'


def _boundary(body: asdi.Boundary) -> str:
    return (
        f'{_PROLOG}<flight>{_identity(body)}{_aircraft(body.aircraft)}<flightleg status="boundary">{_speed(body.speed)}'
        f"<boundary>{_point(body.fix)}{_time(body.time, 'other')}</boundary>{_altitude(body.altitude, 'reported')}"
        f"{_route(body.route)}</flightleg></flight>"
    )


def _departed(body: asdi.Departure) -> str:
    estimate = f'<time type="arrival">{body.estimate[-4:]}</time>' if body.estimate else ""
    return (
        f'{_PROLOG}<flight>{_identity(body)}{_aircraft(body.aircraft)}<flightleg status="departed">{_ends(body)}'
        f"{_time(body.time, 'departed')}{estimate}</flightleg></flight>"
    )


def _arrived(body: asdi.Arrival) -> str:
    return (
        f'{_PROLOG}<flight>{_identity(body)}<flightleg status="arrived">{_ends(body)}{_time(body.time, "arrival")}'
        "</flightleg></flight>"
    )


def _cancelled(body: asdi.Cancellation) -> str:
    return f'{_PROLOG}<flight>{_identity(body)}<flightleg status="cancelled">{_ends(body)}</flightleg></flight>'


def _oceanic(body: asdi.Oceanic) -> str:
    now, *planned = (
        f'<time type="position" day="{report.time[:2]}">{report.time[3:]}</time>'
        f"{_altitude(report.altitude, kind)}{_coordinate(report.latitude, report.longitude)}"
        for report, kind in zip(body.reports, ("reported", "planned", "planned"), strict=False)
    )
    later = "".join(f"<planned>{position}</planned>" for position in planned)
    return (
        f'{_PROLOG}<flight>{_identity(body)}<flightleg status="oceanic">{_ends(body)}'
        f'<speed type="ground">{body.speed}</speed>{now}{later}</flightleg></flight>'
    )


def _heartbeat(_body: asdi.Heartbeat) -> str:
    return f"{_PROLOG}<heartbeat/>"


def _opaque(kind: str) -> Callable[[asdi.Opaque], str]:
    return lambda body: f'{_PROLOG}<message type="{kind}">{_escape(body.text)}</message>'


_WRITERS: dict[str, Callable[[Any], str]] = {
    "TZ": _track,
    "FZ": _plan,
    "AF": _amended,
    "UZ": _boundary,
    "DZ": _departed,
    "AZ": _arrived,
    "RZ": _cancelled,
    "TO": _oceanic,
    "HB": _heartbeat,
    "RT": _opaque("RT"),
    "BZ": _opaque("BZ"),
}
