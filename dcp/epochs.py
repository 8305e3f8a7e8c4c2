"""Changing the query without losing a packet: prepare, then switch.

  idle       one query, one epoch
  preparing  PREPARE(e+1, new query) goes to every sender until it has answered PREPARED(since): from `since` on its
             log covers the new query without a break. The old epoch goes on all the while.
  switching  every sender has prepared (or time has run out) and our position has reached all their `since`: NACKs in
             the new epoch ask for its claims. Claims of the old epoch are taken until the first of the new one applies;
             that moment is the switch.

A sender that joins or comes back later learns the present epoch in the same way. One change is in flight at a time,
the latest wish waits; and the four bits of an epoch are not used again within a datagram's lifetime, so a delayed claim
is never read as one of a later epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dcp.config import Config
from dcp.parent import Parent
from dcp.queries import QueryPolicy

# With it a request fits into a datagram that no network cuts up.
MAX_OPENING_QUERY = 1_000
# The epoch of "nothing" is so much earlier: not one about which anybody still asks, by its four bits either.
_STAND_IN = 8


@dataclass(slots=True)
class Step:
    """What is to be done now."""

    prepare: list[tuple[Parent, int, bytes]] = field(default_factory=list)
    ask: list[Parent] = field(default_factory=list)
    too_old: list[Parent] = field(default_factory=list)
    switch: bool = False


class QueryChange:
    """The query and epoch in force, and the change that is under way."""

    def __init__(self, query: bytes, config: Config, *, policy: QueryPolicy | None = None) -> None:
        """Only a router has a policy."""
        self.query = query
        self._nothing = policy.nothing if policy is not None else None
        self._first = 0 if self._nothing is None else _STAND_IN
        self.epoch = self._first
        self.pending_epoch: int | None = None
        self._config = config
        self._is_router = policy is not None
        self._pending_query = query
        self._wanted: bytes | None = None
        self._switching = False
        self._since = 0.0
        self._asked_at = -1e9
        self._stepped_at = -1e9
        self._ended_at: dict[int, float] = {}  # epoch -> when it ended
        self._parents_behind = False

    @property
    def target(self) -> bytes:
        """What the query will be when all that was asked for is done."""
        if self._wanted is not None:
            return self._wanted
        return self._pending_query if self.pending_epoch is not None else self.query

    @property
    def is_waiting(self) -> bool:
        return self.pending_epoch is not None or self._wanted is not None or self._parents_behind

    def query_of(self, epoch: int) -> bytes:
        """Of the epoch in force, or of the one that is being prepared."""
        return self._pending_query if epoch == self.pending_epoch else self.query

    def opening(self) -> tuple[int, bytes]:
        """The epoch and the query to open a link with. A long query follows, in parts, as that of a later epoch."""
        if self._nothing is None or len(self.query) <= MAX_OPENING_QUERY:
            return self.epoch, self.query
        return self.epoch - _STAND_IN, self._nothing

    @property
    def has_changed(self) -> bool:
        """Whether the query is another one than it was at first."""
        return self.epoch != self._first

    def want(self, query: bytes) -> None:
        if query == self.target:
            return
        self._wanted = query

    # --- which epoch a message belongs to -----------------------------------------------------------------------------

    def extend(self, bits: int) -> int | None:
        """The epoch that four bits on the wire stand for, if it is one that we listen to."""
        if bits == self.epoch & 15:
            return self.epoch
        if self._switching and self.pending_epoch is not None and bits == self.pending_epoch & 15:
            return self.pending_epoch
        return None

    def is_current(self, epoch: int) -> bool:
        return epoch == self.epoch or (self._switching and epoch == self.pending_epoch)

    def current_epochs(self) -> tuple[int, ...]:
        if self._switching and self.pending_epoch is not None:
            return self.epoch, self.pending_epoch
        return (self.epoch,)

    def epoch_for(self, parent: Parent) -> int | None:
        """The epoch in which to speak to a sender; None when it knows none of ours yet."""
        if self._switching and parent.prepared_epoch == self.pending_epoch:
            return self.pending_epoch
        return self.epoch if parent.confirmed_epoch == self.epoch else None

    # --- the change ---------------------------------------------------------------------------------------------------

    def step(self, position: int | None, parents: Sequence[Parent], now: float) -> Step:
        step = Step()
        self._stepped_at = now
        if self.pending_epoch is None and self._wanted is not None:
            self._begin(parents, step, now)
        self._parents_behind = any(parent.up and parent.confirmed_epoch != self.epoch for parent in parents)
        if self.pending_epoch is None:
            for parent in parents:
                if parent.up and parent.confirmed_epoch != self.epoch and self._may_repeat(parent, now):
                    step.prepare.append((parent, self.epoch, self.query))
            return step
        up = [parent for parent in parents if parent.up and parent not in step.too_old]
        for parent in up:
            if parent.prepared_epoch != self.pending_epoch and self._may_repeat(parent, now):
                step.prepare.append((parent, self.pending_epoch, self._pending_query))
        if self._switching:
            self._step_switching(up, step, now)
        else:
            self._step_preparing(position, parents, up, step, now)
        return step

    def _begin(self, parents: Sequence[Parent], step: Step, now: float) -> None:
        assert self._wanted is not None
        epoch = self.epoch + 1
        ended = self._ended_at.get(epoch - 16)
        if ended is not None and now - ended <= self._config.epoch_lifetime:
            return  # its four bits could still be under way: wait
        for parent in parents:
            if parent.up and (parent.confirmed_epoch is None or epoch - parent.confirmed_epoch >= 15):
                step.too_old.append(parent)
        self.pending_epoch = epoch
        self._pending_query = self._wanted
        self._wanted = None
        self._switching = False
        self._since = now
        for parent in parents:
            parent.query_sent_at = -1e9

    def _step_preparing(
        self, position: int | None, parents: Sequence[Parent], up: Sequence[Parent], step: Step, now: float
    ) -> None:
        ready = [parent for parent in up if parent.prepared_epoch == self.pending_epoch]
        waited = now - self._since
        patience = self._config.prepare_patience
        if not parents:
            step.switch = True
        elif ready:
            everybody = len(ready) == len(parents) or waited > patience
            if position is None:  # nothing has flowed yet under the old query: there is no position to switch at
                step.switch = everybody
                return
            all_there = position >= max(p.prepared_since for p in ready) or waited > 2 * patience
            one_there = position >= min(p.prepared_since for p in ready) or waited > 3 * patience
            if everybody and all_there and one_there:
                self._switching = True
                self._since = self._asked_at = now
                step.ask = ready
        elif waited > 4 * patience and not self._is_router:
            step.switch = True  # nobody can: go on with honest gaps

    def _step_switching(self, up: Sequence[Parent], step: Step, now: float) -> None:
        if now - self._since > self._config.prepare_patience or not up:
            step.switch = True
        elif now - self._asked_at > self._config.initial_rtt:
            self._asked_at = now
            step.ask = [parent for parent in up if parent.prepared_epoch == self.pending_epoch]

    def _may_repeat(self, parent: Parent, now: float) -> bool:
        return now - parent.query_sent_at >= max(2 * parent.link.rtt.smoothed, 0.05)

    def switch(self, parents: Sequence[Parent], now: float) -> None:
        """The new query is in force from now on."""
        assert self.pending_epoch is not None
        self._ended_at[self.epoch] = now
        self._ended_at.pop(self.epoch - 16, None)
        self.epoch = self.pending_epoch
        self.query = self._pending_query
        self.pending_epoch = None
        self._switching = False
        for parent in parents:
            if parent.prepared_epoch == self.epoch:
                parent.confirmed_epoch = self.epoch
        self._parents_behind = any(parent.up and parent.confirmed_epoch != self.epoch for parent in parents)

    def next_timeout(self, parents: Sequence[Parent], now: float) -> float | None:
        times: list[float] = []
        if self.pending_epoch is None and self._wanted is not None:
            ended = self._ended_at.get(self.epoch + 1 - 16)
            if ended is not None:
                times.append(ended + self._config.epoch_lifetime + 1e-3)
        target = self.pending_epoch if self.pending_epoch is not None else self.epoch
        for parent in parents:
            known = parent.prepared_epoch if self.pending_epoch is not None else parent.confirmed_epoch
            if parent.up and known != target:
                times.append(parent.query_sent_at + max(2 * parent.link.rtt.smoothed, 0.05))
        if self.pending_epoch is not None:
            patience = self._config.prepare_patience
            if self._switching:
                times += [self._since + patience + 1e-3, self._asked_at + self._config.initial_rtt + 1e-3]
            else:
                times += [at for k in (1, 2, 3, 4) if (at := self._since + k * patience + 1e-3) > self._stepped_at]
        return min(times, default=None)
