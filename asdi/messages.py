"""What a line of ASDI says: one class a message type, and the one error of reading it.

The fields keep the short texts of the feed (`290`, `M081`, `OTP/085`); an absent optional field is "".
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

# The longest line seen in real feeds is a flight plan of some 400 characters; routes are bounded by NAS far below this.
MAX_LINE_CHARS = 4096


class Reason(StrEnum):
    """Why a line is not a message. The quarantine counts these reasons."""

    EMPTY = "empty"
    TOO_LONG = "too-long"
    NO_HEADER = "no-header"
    BAD_TIME = "bad-time"
    UNKNOWN_TYPE = "unknown-type"
    BAD_BODY = "bad-body"
    BAD_AMENDMENT = "bad-amendment"


class AsdiError(ValueError):
    """The one thing that parsing raises: a reason to count and a detail to read."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail


class Track(NamedTuple):
    """TZ: where a flight is. The only message of which there is one a minute a flight."""

    flight: str
    computer: str
    speed: str
    altitude: str
    latitude: str
    longitude: str


class Plan(NamedTuple):
    """FZ: a filed flight plan."""

    flight: str
    computer: str
    aircraft: str
    speed: str
    fix: str
    time: str
    altitude: str
    requested: str
    route: str
    remarks: str


class Amendment(NamedTuple):
    """AF: one or more (field reference, new value) pairs."""

    flight: str
    computer: str
    departure: str
    destination: str
    changes: tuple[tuple[str, str], ...]


class Boundary(NamedTuple):
    """UZ: a flight passes from one centre to the next."""

    flight: str
    computer: str
    aircraft: str
    speed: str
    fix: str
    time: str
    altitude: str
    route: str


class Departure(NamedTuple):
    """DZ."""

    flight: str
    computer: str
    aircraft: str
    departure: str
    time: str
    destination: str
    estimate: str


class Arrival(NamedTuple):
    """AZ."""

    flight: str
    computer: str
    departure: str
    destination: str
    time: str


class Cancellation(NamedTuple):
    """RZ."""

    flight: str
    computer: str
    departure: str
    destination: str


class Report(NamedTuple):
    """One position of an oceanic report: `dd/hhmm`, altitude, position."""

    time: str
    altitude: str
    latitude: str
    longitude: str


class Oceanic(NamedTuple):
    """TO: the position now, and up to two that are planned."""

    flight: str
    computer: str
    speed: str
    departure: str
    destination: str
    reports: tuple[Report, ...]


class Heartbeat(NamedTuple):
    """HB: the feed is alive; it has no fields."""


class Opaque(NamedTuple):
    """RT and BZ: no public source gives their layout, so the text is carried as it is."""

    text: str


Body = Track | Plan | Amendment | Boundary | Departure | Arrival | Cancellation | Oceanic | Heartbeat | Opaque


class Message(NamedTuple):
    """A parsed line. `second` is the second of the day (UTC); ASDI gives no month and no year."""

    sequence: int
    day: int
    second: int
    facility: str
    type: str
    body: Body

    @property
    def flight(self) -> str | None:
        """The flight it is about, without the computer id (which differs between messages of one flight)."""
        return getattr(self.body, "flight", None)
