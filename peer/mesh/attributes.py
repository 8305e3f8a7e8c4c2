"""What peers say to each other about the stream's goal, as values and as bytes. The mesh carries it without knowing it.

    version u8, type u8, then:
    ATTRIBUTES  count u8, count x (tag u8, length u8, bytes)       on links, and the answer to ATTRIBUTES_WANTED
    ATTRIBUTES_WANTED  nothing                                     inquiry
    GOAL_WANTED nothing                                            on links, and inquiry
    GOAL        length u16, bytes: as its owner signed it          on links, inquiry (an offer), and answer

The types are those that `encoding.MessageType` leaves free, from 0x20 on. Peers of older versions count these bodies as
malformed and drop them, which costs nothing else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from peer.mesh.messages import VERSION, MalformedMessage

MAX_ATTRIBUTES = 16
MAX_GOAL_DATA = 700
"""Bytes: a goal's text, its version, and the owner's key and signature."""


class AttributeType(IntEnum):
    """Append only: the numbers are the protocol."""

    ATTRIBUTES = 0x20
    ATTRIBUTES_WANTED = 0x21
    GOAL_WANTED = 0x22
    GOAL = 0x23


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a peer says about its goal and its costs, by tag."""

    values: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class AttributesRequest:
    """The time until the answer is a measured round trip, too."""


@dataclass(frozen=True, slots=True)
class GoalRequest:
    """What is the stream's goal?"""


@dataclass(frozen=True, slots=True)
class GoalData:
    """A goal as its owner signed it: the answer to a request, or an offer of a newer one."""

    data: bytes


AttributeMessage = Attributes | AttributesRequest | GoalRequest | GoalData

_HEAD = struct.Struct(">BB")
_COUNT = struct.Struct(">BBB")
_LENGTH = struct.Struct(">BBH")
_TYPES = frozenset(AttributeType)


def is_attribute_message(body: bytes) -> bool:
    """Whether a body belongs to this file."""
    return len(body) >= _HEAD.size and body[0] == VERSION and body[1] in _TYPES


def encode(message: AttributeMessage) -> bytes:
    match message:
        case Attributes(values):
            head = _COUNT.pack(VERSION, AttributeType.ATTRIBUTES, len(values))
            return head + b"".join(bytes((tag, len(value))) + value for tag, value in values)
        case AttributesRequest():
            return _HEAD.pack(VERSION, AttributeType.ATTRIBUTES_WANTED)
        case GoalRequest():
            return _HEAD.pack(VERSION, AttributeType.GOAL_WANTED)
        case GoalData(data):
            return _LENGTH.pack(VERSION, AttributeType.GOAL, len(data)) + data


def decode_untrusted(body: bytes) -> AttributeMessage:
    """Raises `MalformedMessage` and nothing else."""
    if not is_attribute_message(body):
        raise MalformedMessage(f"{len(body)} bytes are not about attributes or a goal")
    match AttributeType(body[1]):
        case AttributeType.ATTRIBUTES:
            return Attributes(_values(body))
        case AttributeType.ATTRIBUTES_WANTED:
            _expect_end(body, _HEAD.size)
            return AttributesRequest()
        case AttributeType.GOAL_WANTED:
            _expect_end(body, _HEAD.size)
            return GoalRequest()
        case AttributeType.GOAL:
            if len(body) < _LENGTH.size:
                raise MalformedMessage(f"a goal ends at byte {len(body)}")
            _, _, size = _LENGTH.unpack_from(body)
            if size > MAX_GOAL_DATA:
                raise MalformedMessage(f"a goal of {size} bytes, at most {MAX_GOAL_DATA} are read")
            _expect_end(body, _LENGTH.size + size)
            return GoalData(body[_LENGTH.size :])


def _values(body: bytes) -> tuple[tuple[int, bytes], ...]:
    count = body[2] if len(body) >= _COUNT.size else MAX_ATTRIBUTES + 1
    if count > MAX_ATTRIBUTES:
        raise MalformedMessage(f"{count} attributes, at most {MAX_ATTRIBUTES} are read")
    at, found = _COUNT.size, []
    for _ in range(count):
        if at + 2 > len(body) or at + 2 + body[at + 1] > len(body):
            raise MalformedMessage(f"an attribute ends at byte {len(body)}")
        found.append((body[at], body[at + 2 : at + 2 + body[at + 1]]))
        at += 2 + body[at + 1]
    _expect_end(body, at)
    return tuple(found)


def _expect_end(body: bytes, end: int) -> None:
    if len(body) != end:
        raise MalformedMessage(f"{len(body)} bytes where {end} were expected")
