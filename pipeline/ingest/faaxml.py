"""The FAA's current XML messages (TFMData, SFDPS), one message per packet, passed through.

A document that carries many messages becomes as many packets, each with the elements around its message, so that a path
from the root means the same in a packet as in the document. Nothing in a message is changed. Pure but for lxml.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from lxml import etree

# A packet of the mesh must fit one datagram's reassembly; a longer message goes to the quarantine.
MAX_PACKET_BYTES = 60_000
_MESSAGES = {
    # Root element -> path of its messages; an element that is not here is one message by itself.
    "tfmDataService": ".//*[local-name()='fltdMessage' or local-name()='fiMessage']",
    "MessageCollection": "./*[local-name()='message']",
}
_TIMES = ("sourceTimeStamp", "timestamp", "positionTime", "targetPositionTime")
_FLIGHTS = ("aircraftId", "aircraftIdentification")


class XmlMessage(NamedTuple):
    """A packet and what its own attributes say of it; `problem` is why it is none."""

    payload: bytes
    time_us: int | None
    type: str
    flight: str | None
    facility: str | None
    problem: str | None
    root: str | None = None
    """The local name of its document's root element."""


def split(content: bytes) -> Iterator[XmlMessage]:
    """The messages of a file: one document, or one document a line."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        roots = [etree.fromstring(content, parser)]
    except etree.XMLSyntaxError as whole:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            yield XmlMessage(content[:MAX_PACKET_BYTES], None, "unknown", None, None, f"no XML: {whole}")
            return
        for line in lines:
            try:
                root = etree.fromstring(line, parser)
            except etree.XMLSyntaxError as error:
                yield XmlMessage(line[:MAX_PACKET_BYTES], None, "unknown", None, None, f"no XML: {error}")
                continue
            yield from _of_document(root)
        return
    for root in roots:
        yield from _of_document(root)


def _of_document(root: etree._Element) -> Iterator[XmlMessage]:
    path = _MESSAGES.get(etree.QName(root).localname)
    found = root.xpath(path) if path else None
    messages = [element for element in found if isinstance(element, etree._Element)] if isinstance(found, list) else []
    for message in messages or [root]:
        payload = etree.tostring(_alone(message), with_tail=False)
        problem = f"{len(payload)} bytes, maximum {MAX_PACKET_BYTES}" if len(payload) > MAX_PACKET_BYTES else None
        name = etree.QName(root).localname
        yield XmlMessage(payload, _time(message), _type(message), _flight(message), _facility(message), problem, name)


def _alone(message: etree._Element) -> etree._Element:
    """The message with the elements around it and none of its siblings; blanks between elements go."""
    inner = copy.deepcopy(message)
    inner.tail = None
    parent = message.getparent()
    while parent is not None:
        around = etree.Element(parent.tag, dict(parent.attrib), nsmap=parent.nsmap)
        around.append(inner)
        inner = around
        parent = parent.getparent()
    return inner


def _time(message: etree._Element) -> int | None:
    for name in _TIMES:
        for element in message.iter():
            value = element.get(name) if isinstance(element.tag, str) else None
            if value:
                try:
                    moment = datetime.fromisoformat(value)
                except ValueError:
                    continue
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                return int(moment.timestamp()) * 1_000_000 + moment.microsecond
    return None


def _type(message: etree._Element) -> str:
    kind = message.get("msgType")
    if kind:
        return str(kind)
    first = next((child for child in message if isinstance(child.tag, str)), message)
    return etree.QName(first if etree.QName(message).localname == "message" else message).localname


def _flight(message: etree._Element) -> str | None:
    for element in message.iter():
        if not isinstance(element.tag, str):
            continue
        name = etree.QName(element).localname
        if name in _FLIGHTS and element.text and element.text.strip():
            return element.text.strip()
        identified = element.get("aircraftIdentification")
        if identified:
            return str(identified)
    return None


def _facility(message: etree._Element) -> str | None:
    for element in message.iter():
        if isinstance(element.tag, str):
            value = element.get("sourceFacility") or element.get("centre")
            if value:
                return str(value)
    return None
