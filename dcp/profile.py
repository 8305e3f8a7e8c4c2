"""What a subscription wants from its stream: how long to wait for a lost packet, in which order, at what cost in bytes.

| profile   | gives up a packet             | more bytes for protection, at most |
|-----------|-------------------------------|------------------------------------|
| reliable  | when nobody can supply it     | 40 %                               |
| latency   | when nobody can supply it     | 100 %                              |
| bandwidth | when nobody can supply it     | none                               |
| newest    | at once, and never asks again | none                               |

A `deadline` gives a packet up so many seconds after the first sign of its loss; `loss_budget` is the share of packets
that may be given up so, and lets the controller (`steer`) spend only the bytes that this needs. `order="arrival"` hands
packets over as they come. Whatever is given up is a `Gap`, always. `confirm="all"` hands a packet over only when all
parents agree about everything up to it (`confirming`).

Wishes that contradict each other are a ValueError here, with one sentence, before anything is opened (rule T15).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

RELIABLE: Final = "reliable"
LATENCY: Final = "latency"
BANDWIDTH: Final = "bandwidth"
NEWEST: Final = "newest"
PROFILES: Final = (RELIABLE, LATENCY, BANDWIDTH, NEWEST)

SEQUENCE: Final = "sequence"
ARRIVAL: Final = "arrival"
ORDERS: Final = (SEQUENCE, ARRIVAL)
CONFIRM_FIRST: Final = "first"
CONFIRM_ALL: Final = "all"
CONFIRMS: Final = (CONFIRM_FIRST, CONFIRM_ALL)

# Bytes for protection, as a share of the bytes of the stream.
BUDGETS: Final = {RELIABLE: 0.4, LATENCY: 1.0, BANDWIDTH: 0.0, NEWEST: 0.0}

MAX_DEADLINE: Final = 60.0
"""Seconds. A packet that may take a minute is one to wait for: without a deadline it is."""
MIN_DEADLINE: Final = 0.001
"""What the wire can say, and less than any round trip."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Use `profile_of`, which checks; `Profile()` is plain DCP, which waits, asks and never protects."""

    name: str = BANDWIDTH
    byte_budget: float = 0.0
    """Bytes that protection may add, as a share of the bytes of the stream."""
    deadline: float | None = None
    """Seconds from the first sign of a packet's loss until it is given up; None: while somebody may have it."""
    loss_budget: float | None = None
    """The share of packets that may be given up for the deadline; None: as few as the bytes allow."""
    order: str = SEQUENCE
    confirms: bool = False
    """Hand over only what all parents agree about."""
    adapts: bool = False
    """Whether a controller chooses the protection of each link (`steer`)."""

    @property
    def asks_again(self) -> bool:
        """Whether lost packets are asked for."""
        return self.deadline is None or self.deadline > 0

    @property
    def is_negotiated(self) -> bool:
        """Whether parents must know of it: they protect the link, or skip ahead when the child lags."""
        return self.adapts or self.deadline is not None


PLAIN: Final = Profile()


def profile_of(
    name: str | None = None,
    *,
    deadline: float | None = None,
    loss_budget: float | None = None,
    order: str = SEQUENCE,
    confirm: str = CONFIRM_FIRST,
    is_client: bool = True,
) -> Profile:
    """The profile that these wishes add up to. `is_client`: no other peer depends on what is received here."""
    if name is not None and name not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, got {name!r}")
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    if confirm not in CONFIRMS:
        raise ValueError(f"confirm must be one of {', '.join(CONFIRMS)}, got {confirm!r}")
    if confirm == CONFIRM_ALL and (deadline is not None or name == NEWEST or order == ARRIVAL):
        raise ValueError("confirm=all waits until all parents agree: leave out deadline, profile=newest, order=arrival")
    if deadline is not None:
        _check_deadline(deadline)
        if name == NEWEST:
            raise ValueError("profile newest gives up every lost packet at once: leave out the deadline")
        if name == RELIABLE:
            raise ValueError("profile reliable never gives up a packet that somebody has: leave out the deadline")
    if loss_budget is not None:
        if deadline is None:
            raise ValueError("a loss budget is what a deadline may cost: give a deadline too")
        if isinstance(loss_budget, bool) or not 0 <= loss_budget < 1:
            raise ValueError(f"loss_budget must be a share in 0..1, got {loss_budget!r}")
    if name == NEWEST and order == ARRIVAL:
        raise ValueError("profile newest never waits for a packet: leave out order=arrival")
    if not is_client:
        _check_router(name, deadline, order)
    chosen = name or (LATENCY if deadline is not None else RELIABLE)
    seconds = 0.0 if name == NEWEST else deadline
    confirms = confirm == CONFIRM_ALL
    return Profile(chosen, BUDGETS[chosen], seconds, loss_budget, order, confirms, adapts=name != NEWEST)


def _check_deadline(deadline: float) -> None:
    if isinstance(deadline, bool) or not MIN_DEADLINE <= deadline <= MAX_DEADLINE or math.isnan(deadline):
        raise ValueError(f"deadline must be in {MIN_DEADLINE:g}..{MAX_DEADLINE:g} seconds, got {deadline!r}")


def _check_router(name: str | None, deadline: float | None, order: str) -> None:
    """A router serves its children from what it receives: what it gives up, they lose."""
    if name == NEWEST:
        wish = "profile newest"
    elif deadline is not None:
        wish = "a deadline"
    elif order == ARRIVAL:
        wish = "order=arrival"
    else:
        return
    raise ValueError(f"{wish} is for clients without children: join as a leaf (--leaf, capacity=0)")
