"""Which protection a link should have: arithmetic over what was measured, so that each decision can be explained.

Every second the receiver says how many packets came, how many of them no first copy brought, the round trip and the
time between packets. For each choice the expected delay is computed: half a round trip, and for the share of packets
that is lost the time that mending takes, counted once for every packet that waits behind (in the order of the stream).
The cheapest choice within 2 % of the best is taken, among those within the byte budget.

It changes its mind slowly: up when that is at least 10 % better, down when it costs at most 3 %, after ten seconds.
Profile `latency` would rather spend bytes than time: 0.5, 3 and 1 % there (`Patience`).
Bursts want another parent, not more repairs (rule T7), and no fewer while they last. While the round trip shows a
growing queue nothing is sent that was not asked for: loss from congestion is not mended by sending more.

With a deadline and a loss budget the cheapest choice is taken that loses no more than the budget; a deadline alone
takes the choice that loses least within the bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from dcp.profile import ARRIVAL, LATENCY, Profile

NO_LOSS: Final = "no loss measured"
INTERVAL: Final = 1.0
"""Seconds between two looks."""
MIN_EXPECTED: Final = 8
"""Packets below which a sample says nothing yet."""

NEAR: Final = 1.02
HOLD: Final = 10.0
MAX_LOSS: Final = 0.4

# Of a packet on the wire: UDP and IP, and what dcp puts around the payload of a data packet, a repair, a keep-alive.
_UDP: Final = 28
_DATA: Final = _UDP + 22
_REPAIR: Final = _UDP + 22 + 4 + 6
_KEEP_ALIVE: Final = _UDP + 22 + 43
_FIRST_KEEP_ALIVE: Final = 0.01
_LATE_KEEP_ALIVE: Final = 0.15

CLEAN: Final = 0.0002
"""Below this loss nothing is protected: copies may save bytes there, but they make a third more calls."""
BURST: Final = 2.0
"""Mean length of a run of losses from which on another parent helps more than repairs."""
BURST_OVER: Final = 1.5
MIN_LOST: Final = 8.0
"""Losses, as they are remembered, from which a mean run is taken."""
BURST_LOSS: Final = 0.005
QUEUE_FACTOR: Final = 2.0
QUEUE_SECONDS: Final = 0.03
"""A round trip that is twice the shortest of late, and so much longer, shows a queue."""
RECENT: Final = 6.0
"""Seconds over which the shortest round trip is taken: so long a longer route looks like a queue."""


class Patience(NamedTuple):
    """By which factors delays must differ for another choice."""

    near: float = NEAR
    """The cheapest choice is taken among those that are at most so much worse than the best."""
    better: float = 1.10
    """Up, when the delay is lower by at least this."""
    worse: float = 1.03
    """Down, when it is higher by at most this."""


SAVING: Final = Patience()
HURRIED: Final = Patience(1.005, 1.03, 1.01)
"""Of profile `latency`, for which bytes within the budget are no reason to be later."""


class Choice(NamedTuple):
    """`repairs` repairs after every `every` datagrams, over the last `span` times as many. 1: a copy; 0: nothing."""

    every: int
    repairs: int = 1
    span: int = 4

    @property
    def name(self) -> str:
        if not self.every:
            return "plain"
        return "copy" if self.every == 1 else f"{self.repairs} per {self.every}"


NOTHING: Final = Choice(0, 0, 1)
COPY: Final = Choice(1, 1, 1)
CHOICES: Final = (NOTHING, Choice(8), Choice(4), Choice(2), Choice(3, 2), COPY)


@dataclass(frozen=True, slots=True)
class Path:
    """What is known about the way that packets take."""

    loss: float
    """Share of packets that no first copy brings."""
    round_trip: float
    gap: float
    """Seconds between two packets."""
    size: float
    """Bytes of a packet's payload."""
    in_order: bool = True
    run: float = 1.0
    """Mean length of a run of losses; 1: they come one by one."""


class Cost(NamedTuple):
    delay: float
    """Mean, in seconds, from sending to handing over."""
    bytes: float
    """More than without protection, as a share of the bytes of the stream."""
    lost: float
    """Share of packets that come later than the deadline; 0 without one."""


def copy_delay(round_trip: float, gap: float) -> float:
    """A copy goes out a little later than its packet, so that a short disturbance does not take both."""
    return min(max(round_trip / 8, 0.001), 0.02, gap / 2)


def wait_for_repair(choice: Choice, path: Path) -> float:
    """How long a packet that is missing may still be mended by a repair, before it is worth asking for it."""
    if not choice.every:
        return 0.0
    if choice.every == 1:
        return min(copy_delay(path.round_trip, path.gap), path.round_trip / 2)
    return min(choice.every * path.gap, path.round_trip / 2)


def cost_of(choice: Choice, path: Path, deadline: float | None = None) -> Cost:
    p, rtt, gap = path.loss, path.round_trip, path.gap

    def blocked(time: float) -> float:
        """What a loss that is mended after `time` costs: all that come meanwhile wait for it."""
        if not path.in_order:
            return time
        behind = int(time / gap)
        return time * (1 + behind) - gap * behind * (behind + 1) / 2

    beside = max(p, 1 - 1 / path.run)  # the odds that the next one is lost as well
    again = 1 - (1 - p) ** 2
    asked = min(gap, max(_FIRST_KEEP_ALIVE, min(rtt, 2 * gap))) + max(0.001, min(0.005, rtt)) + rtt
    once = asked
    retry = 1.5 * max(rtt, 0.01)
    asked += again / max(0.05, 1 - again) * retry
    late = p * _late(once, retry, again, deadline)
    if not choice.every:
        return Cost(rtt / 2 + p * blocked(asked), 0.0, late)
    if choice.every == 1:
        wait = copy_delay(rtt, gap)
        delay = rtt / 2 + p * ((1 - beside) * blocked(wait) + beside * blocked(asked))
        return Cost(delay, _copy_bytes(path), late * (beside if deadline is None or wait <= deadline else 1.0))
    every, repairs, span = choice
    # In the end, when fewer than all repairs of the window are needed for others, counted in whole runs; at once, when
    # that holds for the very next ones. Else it is mended later, or asked for.
    run = max(1, round(path.run))
    fails = 1 - _at_most(span * repairs // run - 1, max(0, span * (every + repairs) // run - 1), p)
    at_once = _at_most(repairs - 1, every + repairs - 1, beside)
    mended = unmended = 0.0
    for before in range(every):
        later = (1 - fails) * min(blocked((before + 1.5 * every) * gap), blocked(asked)) + fails * blocked(asked)
        mended += (at_once * min(blocked(before * gap), blocked(asked)) + (1 - at_once) * later) / every
        in_time = 0.0
        if deadline is None or before * gap <= deadline:
            in_time = at_once
        if deadline is None or (before + 1.5 * every) * gap <= deadline:
            in_time = max(in_time, at_once + (1 - at_once) * (1 - fails))
        unmended += (1 - in_time) / every
    symbol = _REPAIR + every * span + path.size
    return Cost(rtt / 2 + p * mended, repairs * symbol / every / (_DATA + path.size), late * unmended)


def _at_most(most: int, among: int, p: float) -> float:
    """The odds that at most so many of `among` datagrams are lost, each with the odds `p`."""
    odds, term = 0.0, (1 - p) ** among
    for lost in range(most + 1):
        odds += term
        term *= (among - lost) / (lost + 1) * p / (1 - p)
    return min(1.0, odds)


def _late(once: float, retry: float, again: float, deadline: float | None) -> float:
    """Of what is asked for, the share that does not come before the deadline."""
    if deadline is None:
        return 0.0
    if deadline < once:
        return 1.0
    return float(again ** (1 + int((deadline - once) / retry)))


def _copy_bytes(path: Path) -> float:
    """A copy, less the early keep-alives that it makes unnecessary (rule T6)."""
    first = max(_FIRST_KEEP_ALIVE, min(path.round_trip, 2 * path.gap))
    saved = _keep_alives(first, path.gap) - _keep_alives(max(first, _LATE_KEEP_ALIVE), path.gap)
    return (_REPAIR + 1 + path.size - saved * _KEEP_ALIVE) / (_DATA + path.size)


def _keep_alives(first: float, gap: float) -> int:
    """How many fit between two packets, each twice as long after the one before."""
    count, at = 0, first
    while at < gap and count < 16:
        count += 1
        at += first * 2.0**count
    return count


class Sample(NamedTuple):
    """What was counted since the last look."""

    packets: int
    lost: int
    """Of them, those that no first copy brought."""
    breaks: int
    """Runs of losses on one link, and..."""
    lost_there: int
    """...the packets lost there."""
    bytes: int
    seconds: float
    round_trip: float

    def and_then(self, more: Sample) -> Sample:
        return Sample(
            self.packets + more.packets,
            self.lost + more.lost,
            self.breaks + more.breaks,
            self.lost_there + more.lost_there,
            self.bytes + more.bytes,
            self.seconds + more.seconds,
            more.round_trip,
        )


_EMPTY: Final = Sample(0, 0, 0, 0, 0, 0.0, 0.0)


class Steering:
    """The controller of one receiver. `look` every `INTERVAL`."""

    def __init__(self, profile: Profile, fixed: Choice | None = None) -> None:
        """`fixed`: always this, for measurements."""
        self.choice = fixed or NOTHING
        self.since = 0.0
        self.why = "fixed" if fixed is not None else NO_LOSS
        self.changes = 0
        self.loss = 0.0
        self.run = 1.0
        """Mean length of a run of losses."""
        self.wants_parent = False
        self.path: Path | None = None
        self._fixed = fixed
        self._profile = profile
        self._held_since = 0.0
        self._gap: float | None = None
        self._size = 0.0
        self._round_trips: deque[tuple[float, float]] = deque()
        """When, and what; of the last `RECENT` seconds, and at least one from before the present look."""
        self._lost = self._breaks = 0.0
        self._pending = _EMPTY

    def look(self, sample: Sample, now: float) -> bool:
        """Whether the choice has changed."""
        sample = self._pending.and_then(sample)
        if sample.packets < MIN_EXPECTED and sample.seconds < HOLD:
            self._pending = sample
            return False
        self._pending = _EMPTY
        self._measure(sample)
        if self.path is None or self._fixed is not None:
            return False
        return self._decide(self.path, self._is_congested(sample.round_trip, now), now)

    def _measure(self, sample: Sample) -> None:
        if sample.packets:
            share = min(1.0, max(0.0, sample.lost / sample.packets))
            weight = min(0.5, sample.packets / (200 if share > self.loss else 400))
            self.loss += weight * (share - self.loss)
            gap = sample.seconds / sample.packets
            self._gap = gap if self._gap is None else self._gap + 0.3 * (gap - self._gap)
            size = sample.bytes / sample.packets
            self._size = size if not self._size else self._size + 0.3 * (size - self._size)
        self._lost = 0.9 * self._lost + max(0, sample.lost_there)
        self._breaks = 0.9 * self._breaks + max(0, sample.breaks)
        if self._lost >= MIN_LOST and self._breaks > 0:
            self.run = max(1.0, self._lost / self._breaks)
        elif self._lost < 1:
            self.run = 1.0
        limit = BURST_OVER if self.wants_parent else BURST
        self.wants_parent = self.run >= limit and self.loss >= BURST_LOSS
        if self._gap is not None and sample.round_trip > 0:
            in_order = self._profile.order != ARRIVAL
            run = self.run if self.run >= BURST_OVER else 1.0
            self.path = Path(min(MAX_LOSS, self.loss), sample.round_trip, self._gap, self._size, in_order, run)

    def _is_congested(self, round_trip: float, now: float) -> bool:
        while len(self._round_trips) > 1 and self._round_trips[0][0] <= now - RECENT:
            self._round_trips.popleft()
        self._round_trips.append((now, round_trip))
        least = min(earlier for _, earlier in self._round_trips)
        return round_trip > QUEUE_FACTOR * least and round_trip > least + QUEUE_SECONDS

    def _decide(self, path: Path, is_congested: bool, now: float) -> bool:
        if is_congested:
            return self._take(NOTHING, f"the round trip has grown to {path.round_trip * 1e3:.0f} ms: a queue", now)
        deadline = self._profile.deadline
        costs = {choice: cost_of(choice, path, deadline) for choice in {*CHOICES, self.choice}}
        allowed = [choice for choice in CHOICES if costs[choice].bytes <= self._profile.byte_budget + 1e-9]
        if path.loss < CLEAN:
            allowed = [NOTHING]
        if deadline is not None:
            return self._decide_for_deadline(path, costs, allowed, now)
        best = min(allowed, key=lambda choice: costs[choice].delay)
        patience = HURRIED if self._profile.name == LATENCY else SAVING
        near = [choice for choice in allowed if costs[choice].delay <= patience.near * costs[best].delay]
        cheap = min(near, key=lambda choice: costs[choice].bytes)
        present = costs[self.choice]
        words = (
            f"loss {path.loss:.1%}, round trip {path.round_trip * 1e3:.3g} ms, a packet every {path.gap * 1e3:.3g} ms"
        )
        is_better = costs[cheap].delay < present.delay / patience.better
        # During bursts the formulas still promise too much of fewer repairs.
        is_cheaper = costs[cheap].bytes < present.bytes and costs[cheap].delay <= patience.worse * present.delay
        is_cheaper = is_cheaper and (self.run < BURST_OVER or path.loss < BURST_LOSS)
        if self.choice not in allowed or is_better or (is_cheaper and now - self._held_since > HOLD):
            return self._take(cheap, words, now)
        if self.choice == NOTHING:
            self.why = words if path.loss >= CLEAN else NO_LOSS
        return False

    def _decide_for_deadline(self, path: Path, costs: dict[Choice, Cost], allowed: list[Choice], now: float) -> bool:
        budget = self._profile.loss_budget
        enough = [choice for choice in allowed if budget is not None and costs[choice].lost <= budget]
        if enough:
            chosen = min(enough, key=lambda choice: costs[choice].bytes)
        else:
            least = min(costs[choice].lost for choice in allowed)
            near = [choice for choice in allowed if costs[choice].lost <= NEAR * least + 1e-5]
            chosen = min(near, key=lambda choice: costs[choice].bytes)
        words = f"loss {path.loss:.1%}, {costs[chosen].lost:.2%} later than the deadline"
        is_needed = costs[chosen].lost < costs[self.choice].lost
        if self.choice not in allowed or is_needed or now - self._held_since > HOLD:
            return self._take(chosen, words, now)
        return False

    def _take(self, choice: Choice, why: str, now: float) -> bool:
        if choice == self.choice:
            if choice == NOTHING:
                self.why = why
            return False
        self.choice, self.why, self.since, self._held_since = choice, why, now, now
        self.changes += 1
        return True
