"""What a peer says about its goal and its costs, as attributes (`peer.mesh.attributes`).

    1 goal      version u64, hash of the signed goal, 8 bytes
    2 path      values of the goal's aggregates, f64 each
    3 room      hops u8, free slots u16
    4 standing  cost f64, violation f64
    5 broken    the constraint that is broken most, text
    6 problem   why the goal is not followed here, text
    7 node      what it knows of itself (`course.NODE_MEASURED`), f64 each
    8 below     what our cost is worth to the receiver, f64; links to the farthest peer below, u8
    9 bids      proposals for the root, best first: gain f64, short names of the 3 peers that it touches, 8 bytes each
    10 worst    the highest cost here and below, f64
    11 to 14    a root's choice: its short name, period u32, highest cost f64, short names of those that may move
Other tags are passed over, so that later versions can say more.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from peer.goals.signed import HASH_BYTES
from peer.optimizer.course import MAX_AGGREGATES
from peer.optimizer.periods import MAX_BIDS, MAX_ROOTS, NAME_BYTES, Bid, Choice

(
    _GOAL_TAG,
    _PATH_TAG,
    _ROOM_TAG,
    _STANDING_TAG,
    _BROKEN_TAG,
    _PROBLEM_TAG,
    _NODE_TAG,
    _BELOW_TAG,
    _BIDS_TAG,
    _WORST_TAG,
) = range(1, 11)
_CHOICE_TAGS = range(11, 11 + MAX_ROOTS)
_GOAL = struct.Struct(f">Q{HASH_BYTES}s")
_ROOM = struct.Struct(">BH")
_STANDING = struct.Struct(">dd")
_BELOW = struct.Struct(">dB")
_BID = struct.Struct(f">d{NAME_BYTES}s{NAME_BYTES}s{NAME_BYTES}s")
_WORST = struct.Struct(">d")
_CHOICE = struct.Struct(f">{NAME_BYTES}sId")
MAX_TEXT = 160
MAX_WEIGHT = 1e6
"""Peers below one: a child that claims more is not believed."""
MAX_NODE_VALUES = 24
"""Later versions may measure more."""


@dataclass(frozen=True, slots=True)
class Said:
    """What was not said is None or empty."""

    version: int = 0
    """0: no goal."""
    digest: bytes = b""
    path: tuple[float, ...] = ()
    hops: int = 255
    free: int = 0
    cost: float | None = None
    violation: float = 0.0
    broken: str = ""
    problem: str = ""
    node: tuple[float, ...] = ()
    weight: float = 0.0
    """By how much the sum of all costs grows through the receiver when its own cost grows by 1."""
    height: int = 0
    """Links to the farthest peer below."""
    bids: tuple[Bid, ...] = ()
    worst: float | None = None
    choices: tuple[Choice, ...] = ()

    def as_values(self) -> dict[int, bytes]:
        found = {
            _GOAL_TAG: _GOAL.pack(self.version, self.digest),
            _ROOM_TAG: _ROOM.pack(min(self.hops, 255), min(self.free, 65_535)),
        }
        if self.path:
            found[_PATH_TAG] = struct.pack(f">{len(self.path)}d", *self.path)
        if self.node:
            found[_NODE_TAG] = struct.pack(f">{len(self.node)}d", *self.node)
        if self.weight:
            found[_BELOW_TAG] = _BELOW.pack(self.weight, min(self.height, 255))
        if self.bids:
            found[_BIDS_TAG] = b"".join(_BID.pack(bid.gain, *bid.peers) for bid in self.bids[:MAX_BIDS])
        if self.worst is not None:
            found[_WORST_TAG] = _WORST.pack(self.worst)
        for tag, choice in zip(_CHOICE_TAGS, self.choices, strict=False):
            names = b"".join(choice.names[:MAX_BIDS])
            found[tag] = _CHOICE.pack(choice.root, choice.number, choice.worst) + names
        if self.cost is not None:
            found[_STANDING_TAG] = _STANDING.pack(self.cost, self.violation)
        if self.broken:
            found[_BROKEN_TAG] = self.broken.encode("ascii", "replace")[:MAX_TEXT]
        if self.problem:
            found[_PROBLEM_TAG] = self.problem.encode("ascii", "replace")[:MAX_TEXT]
        return found


def read_said_untrusted(values: Mapping[int, bytes]) -> Said:
    """What of it makes sense; raises nothing."""
    goal, room = values.get(_GOAL_TAG, b""), values.get(_ROOM_TAG, b"")
    version, digest = _GOAL.unpack(goal) if len(goal) == _GOAL.size else (0, b"")
    hops, free = _ROOM.unpack(room) if len(room) == _ROOM.size else (255, 0)
    standing = values.get(_STANDING_TAG, b"")
    cost, violation = _STANDING.unpack(standing) if len(standing) == _STANDING.size else (math.nan, 0.0)
    below = values.get(_BELOW_TAG, b"")
    weight, height = _BELOW.unpack(below) if len(below) == _BELOW.size else (0.0, 0)
    return Said(
        version,
        digest,
        _numbers(values.get(_PATH_TAG, b""), MAX_AGGREGATES),
        hops,
        free,
        cost if math.isfinite(cost) else None,
        violation if math.isfinite(violation) else 0.0,
        _text(values.get(_BROKEN_TAG, b"")),
        _text(values.get(_PROBLEM_TAG, b"")),
        _numbers(values.get(_NODE_TAG, b""), MAX_NODE_VALUES),
        weight if 0 <= weight <= MAX_WEIGHT else 0.0,
        height,
        _bids(values.get(_BIDS_TAG, b"")),
        _worst(values.get(_WORST_TAG, b"")),
        tuple(choice for tag in _CHOICE_TAGS if (choice := _choice(values.get(tag, b""))) is not None),
    )


def _numbers(data: bytes, most: int) -> tuple[float, ...]:
    """None of it if one makes no sense: costs are not negative."""
    if len(data) % 8 or len(data) > 8 * most:
        return ()
    found = struct.unpack(f">{len(data) // 8}d", data)
    return () if any(math.isnan(value) or value < 0 for value in found) else found


def _bids(data: bytes) -> tuple[Bid, ...]:
    if len(data) % _BID.size or len(data) > _BID.size * MAX_BIDS:
        return ()
    found = (Bid(gain, peers) for gain, *names in _BID.iter_unpack(data) if (peers := tuple(names)))
    return tuple(bid for bid in found if math.isfinite(bid.gain) and bid.gain > 0)


def _worst(data: bytes) -> float | None:
    (value,) = _WORST.unpack(data) if len(data) == _WORST.size else (math.nan,)
    return value if math.isfinite(value) else None


def _choice(data: bytes) -> Choice | None:
    names = data[_CHOICE.size :]
    if len(data) < _CHOICE.size or len(names) % NAME_BYTES or len(names) > NAME_BYTES * MAX_BIDS:
        return None
    root, number, worst = _CHOICE.unpack_from(data)
    split = tuple(names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES))
    return Choice(root, number, worst, split) if math.isfinite(worst) else None


def _text(value: bytes) -> str:
    """For a person's terminal: only characters that can be printed."""
    text = value[:MAX_TEXT].decode("ascii", "replace")
    return text if text.isprintable() else ""
