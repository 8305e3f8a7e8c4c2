"""What the demo knows of one peer: what it was started as, whether it runs, and what it last said of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import trio

from demo.check.checker import ClientCheck
from demo.run.processes import PeerProcess


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass(slots=True)
class Member:
    name: str
    role: str
    """root, router, leaf or dht."""
    spec: dict[str, Any]
    is_guest: bool = False
    """Came with a storm, and goes when everything is put back."""
    state: State = State.STARTING
    process: PeerProcess | None = None
    address: tuple[str, int] | None = None
    check: ClientCheck | None = None
    status: dict[str, Any] = field(default_factory=dict)
    rates: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By parent's name: what the link brought lately."""
    status_at: float = 0.0
    restarts: int = 0
    earlier_cpu: float = 0.0
    pace: float | None = None
    wanted_query: str | None = None
    lie: str | None = None
    """How it lies to its children; None while it is honest."""
    excused_until: float = 0.0
    """Packets due until then are not timed: this client was itself stopped, slowed or cut off."""
    thawed_at: float = 0.0
    sound: int = 0
    ended: trio.Event = field(default_factory=trio.Event)
    """Set when the last life is over and all that it said is read."""

    @property
    def runs(self) -> bool:
        return self.state is State.RUNNING

    @property
    def wants(self) -> int:
        return 0 if self.role in ("root", "dht") else int(self.spec["parents"])

    @property
    def is_short(self) -> bool:
        return self.runs and self.sound < self.wants

    @property
    def cpu(self) -> float:
        """Seconds, over all its lives."""
        return self.earlier_cpu + float(self.status.get("cpu", 0.0))
