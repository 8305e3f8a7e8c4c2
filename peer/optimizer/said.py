"""What a peer says about its goal and its costs, as attributes (`peer.mesh.attributes`).

    1 goal      version u64, hash of the signed goal, 8 bytes
    2 path      values of the goal's aggregates, f64 each
    3 room      hops u8, free slots u16
    4 standing  cost f64, violation f64
    5 broken    the constraint that is broken most, text
    6 problem   why the goal is not followed here, text
    7 node      what it knows of itself (`course.NODE_MEASURED`), f64 each
Other tags are passed over, so that later versions can say more.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from lazyclass import dataclass
from peer.goals.signed import HASH_BYTES
from peer.optimizer.course import MAX_AGGREGATES

_GOAL_TAG, _PATH_TAG, _ROOM_TAG, _STANDING_TAG, _BROKEN_TAG, _PROBLEM_TAG, _NODE_TAG = range(1, 8)
_GOAL = struct.Struct(f">Q{HASH_BYTES}s")
_ROOM = struct.Struct(">BH")
_STANDING = struct.Struct(">dd")
MAX_TEXT = 160
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

    def as_values(self) -> dict[int, bytes]:
        found = {
            _GOAL_TAG: _GOAL.pack(self.version, self.digest),
            _ROOM_TAG: _ROOM.pack(min(self.hops, 255), min(self.free, 65_535)),
        }
        if self.path:
            found[_PATH_TAG] = struct.pack(f">{len(self.path)}d", *self.path)
        if self.node:
            found[_NODE_TAG] = struct.pack(f">{len(self.node)}d", *self.node)
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
    )


def _numbers(data: bytes, most: int) -> tuple[float, ...]:
    """None of it if one makes no sense: costs are not negative."""
    if len(data) % 8 or len(data) > 8 * most:
        return ()
    found = struct.unpack(f">{len(data) // 8}d", data)
    return () if any(math.isnan(value) or value < 0 for value in found) else found


def _text(value: bytes) -> str:
    """For a person's terminal: only characters that can be printed."""
    text = value[:MAX_TEXT].decode("ascii", "replace")
    return text if text.isprintable() else ""
