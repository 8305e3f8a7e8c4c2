"""The child's side of a query change: `epochs` says what is to be done, and this does it.

Which epoch and query are in force belongs to the claims; the messages that change them go out through `links.replies`.
"""

from __future__ import annotations

from collections.abc import Callable

from dcp.control import Prepared, Reason
from dcp.epochs import QueryChange
from dcp.intake import Intake
from dcp.links.replies import Replies
from dcp.parent import Parent


class Switching:
    def __init__(
        self, change: QueryChange, intake: Intake, replies: Replies, *, give_up: Callable[[int, int], None]
    ) -> None:
        self._change = change
        self._intake = intake
        self._replies = replies
        self._give_up = give_up

    def receive_prepared(self, parent: Parent, prepared: Prepared, now: float) -> None:
        change = self._change
        if prepared.epoch == change.pending_epoch:
            parent.prepared_epoch = prepared.epoch
            parent.prepared_since = prepared.since
            self.step(now)
        if prepared.epoch == change.epoch and parent.confirmed_epoch != change.epoch:
            parent.confirmed_epoch = change.epoch
            parent.hole = None
            self._replies.request_from([parent], now)

    def step(self, now: float) -> None:
        intake = self._intake
        step = self._change.step(intake.position, list(intake.parents.values()), now)
        for parent in step.too_old:
            self._give_up(parent.link.id, Reason.RENEW)
        self._replies.prepare(step, now)
        self._replies.request_from(step.ask, now)
        if step.switch:
            intake.switch(now)
            if intake.position is not None:
                self._replies.watch(now)

    def next_timeout(self, now: float) -> float | None:
        return self._change.next_timeout(list(self._intake.parents.values()), now)
