"""Namespaces by name: those of the FAA's feeds and of FIXM, and files of one's own.

A file is TOML, `prefix = "uri"` per line, at the top or in a table `[namespaces]`.
"""

from __future__ import annotations

import tomllib

KNOWN: dict[str, dict[str, str]] = {
    "faa": {
        "ds": "urn:us:gov:dot:faa:atm:tfm:tfmdataservice",
        "fdm": "urn:us:gov:dot:faa:atm:tfm:flightdata",
        "nxce": "urn:us:gov:dot:faa:atm:tfm:tfmdatacoreelements",
        "nxcm": "urn:us:gov:dot:faa:atm:tfm:flightdatacommonmessages",
        "smes": "urn:us:gov:dot:faa:atm:terminal:entities:smes:surfacemovementevent",
        "smestypes": "urn:us:gov:dot:faa:atm:terminal:entities:smes:smestypes",
        "tais": "urn:us:gov:dot:faa:atm:terminal:entities:v3-0:tais:terminalautomationinformation",
        "nas": "http://www.faa.aero/nas/3.0",
    },
    "fixm": {
        "fb": "http://www.fixm.aero/base/3.0",
        "fx": "http://www.fixm.aero/flight/3.0",
        "ff": "http://www.fixm.aero/foundation/3.0",
        "nas": "http://www.faa.aero/nas/3.0",
    },
}


def read_namespaces(text: str) -> dict[str, str]:
    """Of the text of a file; `ValueError` says in one sentence what is wrong with it."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    found = table.get("namespaces", table)
    if not isinstance(found, dict):
        raise ValueError("[namespaces] must be a table")
    for prefix, uri in found.items():
        if not isinstance(uri, str) or not uri:
            raise ValueError(f"the namespace of prefix {prefix!r} must be a text")
    return found
