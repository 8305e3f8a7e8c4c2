"""Rows of the typed tables from a packet alone: our own XML without its line, TFMData, and FIXM (SFDPS).

Packets are hostile: entities are not resolved, and a packet that can't be read has no rows. What a message does not say
is null.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from lxml import etree

from pipeline.tables.rows import Row
from pipeline.tables.units import degrees, ends, feet, moment, speed

_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
_STATUS = {
    "active": "TZ", "planned": "FZ", "amended": "AF", "boundary": "UZ", "departed": "DZ", "arrived": "AZ",
    "cancelled": "RZ", "oceanic": "TO",
}  # fmt: skip
_TFMS_POSITIONS = ("trackInformation", "oceanicReport")
_TFMS_PLANS = (
    "flightPlanInformation", "flightPlanAmendmentInformation", "boundaryCrossingUpdate", "flightPlanCancellation",
)  # fmt: skip


def rows_of_packet(
    xml: bytes, an: int, time: int, kind: str, facility: str | None, flight: str | None
) -> list[tuple[str, Row]]:
    """(table, row) of a packet with what its row in the archive says."""
    try:
        root = etree.fromstring(xml, _PARSER)
    except (etree.XMLSyntaxError, ValueError):
        return []
    name = etree.QName(root).localname
    try:
        if name == "flight":
            return _own(root, an, time)
        if name == "tfmDataService":
            return _tfms(root, an, time, kind, facility, flight)
        if name in ("NasFlight", "MessageCollection"):
            return _fixm(root, an, time, kind, facility, flight)
    except (ValueError, OverflowError):
        return []  # numbers that are none
    return []


# --- the packet of docs/asdi.md ---------------------------------------------------------------------------------------
def _own(root: etree._Element, an: int, time: int) -> list[tuple[str, Row]]:
    leg = root.find("flightleg")
    identity = root.find("id")
    if leg is None or identity is None:
        return []
    kind = _STATUS.get(leg.get("status", ""))
    key = (an, time * 1_000_000, identity.text, identity.get("computer"), None, kind)
    kit = root.find("aircraft")
    craft = (kit.text, kit.get("equipment")) if kit is not None else (None, None)
    both = (leg.findtext("departure"), leg.findtext("destination"))
    if kind in ("TZ", "TO"):
        place = (degrees(leg.findtext("coordinate/lat", "")), degrees(leg.findtext("coordinate/lon", "")))
        return [("positions", (*key, *place, _level(leg, "altitude"), *_pace(leg)))]
    if kind == "DZ":
        times = (_clock(leg, "departed", time), _clock(leg, "arrival", time))
        return [("departures", (*key, *craft, *both, *times))]
    if kind == "AZ":
        found = leg.find("time")
        return [("arrivals", (*key, *both, moment(found.text or "", time) if found is not None else None))]
    if kind is None:
        return []
    route = leg.findtext("route")
    if kind in ("FZ", "UZ"):
        tag = leg.find("route")
        whole = f"{route}/{tag.get('time')}" if route and tag is not None and tag.get("time") else route
        inner = leg.find("boundary") if kind == "UZ" else leg
        fix = _fix(inner) if inner is not None else None
        clock = inner.find("time") if inner is not None else None
        when = (moment(clock.text or "", time), _letter(clock)) if clock is not None else (None, None)
        return [("plans", (*key, *craft, *ends(whole or ""), fix, *when, *_pace(leg), _level(leg, "altitude"),
                           _level(leg, "altitude[@type='requested']"), whole, leg.findtext("remarks")))]  # fmt: skip
    if kind == "RZ":
        return [("plans", (*key, None, None, *both, *([None] * 9)))]
    return [("plans", (*key, *_own_amended(leg, both, time)))]


def _own_amended(leg: etree._Element, both: tuple[str | None, str | None], time: int) -> Row:
    new = {change.get("field", ""): change for change in leg.findall("amendment")}

    def part(field: str, path: str) -> etree._Element | None:
        return new[field].find(path) if field in new else None

    kit, clock, route, words = part("03", "aircraft"), part("07", "time"), part("10", "route"), part("11", "text")
    path = route.text if route is not None else None
    path = f"{path}/{route.get('time')}" if path and route is not None and route.get("time") else path
    return (
        *((kit.text, kit.get("equipment")) if kit is not None else (None, None)), *both,
        _fix(new["06"]) if "06" in new else None,
        *((moment(clock.text or "", time), _letter(clock)) if clock is not None else (None, None)),
        *(_pace(new["05"]) if "05" in new else (None, None)),
        _level(new["08"], "altitude") if "08" in new else None, _level(new["09"], "altitude") if "09" in new else None,
        path, words.text if words is not None else None,
    )  # fmt: skip


def _level(element: etree._Element, path: str) -> int | None:
    found = element.find(path)
    if found is None or (path == "altitude" and found.get("type") == "requested"):
        return None
    return feet(found.text or "")


def _pace(element: etree._Element) -> tuple[int | None, float | None]:
    found = element.find("speed")
    if found is None:
        return None, None
    return speed(("M" if found.get("type") == "mach" else "") + (found.text or ""))


def _fix(element: etree._Element) -> str | None:
    found = element.find("fix")
    if found is not None:
        return f"{found.text}{found.get('radial', '')}{found.get('distance', '')}"
    place = element.find("coordinate")
    return f"{place.findtext('lat')}/{place.findtext('lon')}" if place is not None else None


def _letter(clock: etree._Element) -> str | None:
    kinds = {"proposed": "P", "estimated": "E", "departed": "D", "actual": "A"}
    return clock.get("code") or kinds.get(clock.get("type", ""))


def _clock(leg: etree._Element, kind: str, time: int) -> int | None:
    found = next((each for each in leg.findall("time") if (each.get("type") == "arrival") == (kind == "arrival")), None)
    return moment(found.text or "", time) if found is not None else None


# --- the FAA's XML ----------------------------------------------------------------------------------------------------
def _texts(root: etree._Element) -> dict[str, str]:
    """The first text of each element by its local name, and attributes as name@attribute."""
    found: dict[str, str] = {}
    for element in root.iter():
        if not isinstance(element.tag, str):
            continue
        name = etree.QName(element).localname
        if element.text and element.text.strip():
            found.setdefault(name, element.text.strip())
        for key, value in element.attrib.items():
            found.setdefault(f"{name}@{etree.QName(key).localname}", str(value))
    return found


def _tfms(
    root: etree._Element, an: int, time: int, kind: str, facility: str | None, flight: str | None
) -> list[tuple[str, Row]]:
    said = _texts(root)
    key = (an, time * 1_000_000, flight, said.get("idNumber"), facility, kind)
    craft_name = "newFlightAircraftSpecs" if "newFlightAircraftSpecs" in said else "flightAircraftSpecs"
    craft = (said.get(craft_name), said.get(f"{craft_name}@equipmentQualifier"))
    both = (_under(root, "departurePoint", "airport"), _under(root, "arrivalPoint", "airport"))
    knots = said.get("filedTrueAirSpeed") or said.get("speed") or said.get("newSpeed")
    pace = (_whole(knots), _decimal(said.get("mach")))
    level = feet(said.get("simpleAltitude", ""))
    if kind in _TFMS_POSITIONS:
        place = (_dms(said, "latitudeDMS"), _dms(said, "longitudeDMS"))
        return [("positions", (*key, *place, level, *pace))] if None not in place else []
    if kind == "departureInformation":
        return [
            ("departures", (*key, *craft, *both, _utc(said.get("timeOfDeparture")), _utc(said.get("timeOfArrival"))))
        ]
    if kind == "arrivalInformation":
        return [("arrivals", (*key, *both, _utc(said.get("timeOfArrival"))))]
    if kind in _TFMS_PLANS:
        asked = _under(root, "requestedAltitude", "simpleAltitude")
        given = _under(root, "assignedAltitude", "simpleAltitude")
        fix = said.get("fixRadialDistance") or said.get("namedFix")
        if "fixRadialDistance" in said:
            parts = (said.get("fixRadialDistance@radial", ""), said.get("fixRadialDistance@distance", ""))
            fix = f"{fix}{parts[0]}{parts[1]}"
        clock = (
            said.get("newCoordinationTime") or said.get("coordinationTime")
            or said.get("boundaryPosition@boundaryCrossingTime")
        )  # fmt: skip
        type_of_time = said.get("newCoordinationTime@type") or said.get("coordinationTime@type")
        route = said.get("newRouteOfFlight@legacyFormat") or said.get("routeOfFlight@legacyFormat")
        return [("plans", (*key, *craft, *both, fix, _utc(clock), type_of_time[:1] if type_of_time else None, *pace,
                           feet(given or ""), feet(asked or ""), route, said.get("remarks")))]  # fmt: skip
    return []


def _fixm(
    root: etree._Element, an: int, time: int, kind: str, facility: str | None, flight: str | None
) -> list[tuple[str, Row]]:
    said = _texts(root)
    key = (an, time * 1_000_000, flight, said.get("flightIdentification@computerId"), facility, kind)
    rows: list[tuple[str, Row]] = []
    both = (said.get("departure@departurePoint"), said.get("arrival@arrivalPoint"))
    position = next((each for each in root.iter("{*}position") if each.get("positionTime")), None)
    pos = position.find(".//{*}pos") if position is not None else None
    if position is not None and pos is not None and pos.text:
        latitude, longitude = (float(part) for part in pos.text.split())
        level = next((float(each.text) for each in position.iter("{*}altitude") if each.text), None)
        knots = next((float(each.text) for each in position.iter("{*}surveillance") if each.text), None)
        rows.append(("positions", (*key, latitude, longitude, _rounded(level), _rounded(knots), None)))
    left, came = _runway(root, "departure", "actual"), _runway(root, "arrival", "actual")
    estimate = _runway(root, "arrival", "estimated")
    if left is not None:
        rows.append(("departures", (*key, said.get("icaoModelIdentifier"), None, *both, left, estimate)))
    if came is not None:
        rows.append(("arrivals", (*key, *both, came)))
    route = said.get("route@nasRouteText") or said.get("nasRouteText")
    if route is not None:
        level = _decimal(_under(root, "assignedAltitude", "simple"))
        filed = _rounded(_decimal(_under(root, "requestedAirspeed", "nasAirspeed")))
        rows.append(("plans", (*key, said.get("icaoModelIdentifier"), None, *both, None, None, None, filed, None,
                               _rounded(level), None, route, None)))  # fmt: skip
    return rows


def _under(root: etree._Element, outer: str, inner: str) -> str | None:
    for around in root.iter(f"{{*}}{outer}"):
        for element in around.iter(f"{{*}}{inner}"):
            if element.text and element.text.strip():
                return element.text.strip()
    return None


def _runway(root: etree._Element, end: str, kind: str) -> int | None:
    for around in root.iter(f"{{*}}{end}"):
        for element in around.iter(f"{{*}}{kind}"):
            return _utc(element.get("time"))
    return None


def _dms(said: dict[str, str], name: str) -> float | None:
    parts = [said.get(f"{name}@{part}") for part in ("degrees", "minutes", "seconds", "direction")]
    if parts[0] is None:
        return None
    value = int(parts[0]) + int(parts[1] or 0) / 60 + int(parts[2] or 0) / 3600
    return -value if parts[3] in ("SOUTH", "WEST") else value


def _utc(text: str | None) -> int | None:
    if not text or not re.match(r"\d{4}-", text):
        return None
    found = datetime.fromisoformat(text)
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(found.timestamp()) * 1_000_000 + found.microsecond


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _decimal(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d+(\.\d+)?", text) else None


def _rounded(value: Any) -> int | None:
    return round(value) if value is not None and abs(value) < 1e6 else None
