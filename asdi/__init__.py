"""The FAA's ASDI format: one line of text to a message, and to the XML packet that the mesh carries. Pure."""

from asdi.line import clean, parse, to_text
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
from asdi.time import Calendar, Unwrapper, date_near
from asdi.xml import to_xml

__all__ = [
    "MAX_LINE_CHARS",
    "Amendment",
    "Arrival",
    "AsdiError",
    "Body",
    "Boundary",
    "Calendar",
    "Cancellation",
    "Departure",
    "Heartbeat",
    "Message",
    "Oceanic",
    "Opaque",
    "Plan",
    "Reason",
    "Report",
    "Track",
    "Unwrapper",
    "clean",
    "date_near",
    "parse",
    "to_text",
    "to_xml",
]
