"""The parent's side of a query: whether the log can serve it, and changing it while packets flow.

A child that wants another query sends PREPARE until it hears PREPARED. Between the two our own query may have to widen
(`WiderQueryWanted`). The change is committed when the child first speaks in the new epoch. PREPARE with an epoch that
is over says which query it had: a child that has just come asks about what it passed before (rule L6).
"""

from __future__ import annotations

from collections.abc import Callable

from dcp import control, events, wire
from dcp.admission import query_cost
from dcp.child import MAX_PREVIOUS_QUERIES, Child
from dcp.config import Config
from dcp.control import Reason
from dcp.guard import fault
from dcp.links.downlink import Downlink
from dcp.log import Interest, Log
from dcp.queries import EVERYTHING
from dcp.query_parts import NO_BASE, UNKNOWN, Collected, Have, Part, encode_have


class QueryService:
    def __init__(
        self,
        stream: str,
        log: Log,
        config: Config,
        *,
        emit: Callable[[events.Event], None],
        post: Callable[[Downlink, bytes], bool],
        close: Callable[[int, int, bytes], None],
        allows: Callable[[float, str, float], bool],
    ) -> None:
        """`allows(now, host, cost)`: whether a host may have more of its queries read now."""
        self.upstream_query: bytes = EVERYTHING
        """The query under which this peer receives. A root has everything."""
        self.revision = 0
        """Rises whenever a child's query, or the one it is about to use, may have changed."""
        self.refused = 0
        """Query changes that came faster than an honest child's can."""
        self._stream = stream
        self._log = log
        self._config = config
        self._emit = emit
        self._post = post
        self._close = close
        self._allows = allows

    def why_not(self, query: bytes) -> str | None:
        """What the owner's policy has against a query from the network; None: nothing."""
        if query == EVERYTHING:
            return None
        try:
            return self._log.policy.check(query)
        except Exception as error:
            fault("query", error)
            return "this query can't be checked"

    def _carries(self, query: bytes) -> bool:
        return self._log.covers(self.upstream_query, query)

    def open_interest(self, link: Downlink, query: bytes) -> Interest | None:
        """None when the policy can't evaluate the query after all: then the link is closed."""
        try:
            return self._log.open_interest(query, is_restricted=link.child.is_restricted)
        except Exception as error:
            fault("query", error)
            self._close(link.id, Reason.MODE_MISMATCH, b"this query can't be evaluated")
            return None

    def try_admit(self, link: Downlink) -> bool:
        """Whether our own query brings what a new child wants; if not, the owner is asked to widen it."""
        child = link.child
        if not self._carries(child.query):
            self._emit(events.WiderQueryWanted(self._stream, link.id, child.query))
            return False
        interest = self.open_interest(link, child.query)
        if interest is None:
            return False
        child.admit(interest)
        return True

    # --- changing it --------------------------------------------------------------------------------------------------

    def receive_prepare(self, link: Downlink, prepare: control.Prepare, now: float) -> None:
        child = link.child
        epoch, query = prepare
        if child.waiting or len(query) > self._config.max_query_bytes:
            return
        if epoch == child.epoch:
            self._send_prepared(link, epoch, child.query)
            return
        if epoch < child.epoch:
            self._recall(child, epoch, query, now)
            return
        pending = child.pending
        if pending is not None and epoch < pending.epoch:
            return
        if pending is None or epoch != pending.epoch:
            if not child.query_changes.allows(now, query_cost(query)):
                self.refused += 1  # the child repeats it a little later
                return
            if self.why_not(query) is not None:
                self._close(link.id, Reason.MODE_MISMATCH, b"not a query")
                return
            self._begin_preparing(link, epoch, query)
        self.try_prepare(link, again=True)

    def _begin_preparing(self, link: Downlink, epoch: int, query: bytes) -> None:
        link.child.collected = None
        link.child.prepare(epoch, query)
        self.revision += 1
        if not self._carries(query):
            self._emit(events.WiderQueryWanted(self._stream, link.id, query))

    def receive_part(self, link: Downlink, part: Part, now: float) -> None:
        """A part of a long query: read it now, and prepare the query when all are there."""
        child = link.child
        if child.waiting or part.epoch < child.epoch:
            return
        if part.epoch == child.epoch:
            self._send_prepared(link, part.epoch, child.query)
        elif child.pending is not None and part.epoch <= child.pending.epoch:
            self.try_prepare(link, again=True)
            self._say_have(link, Have(part.epoch, part.parts))
        else:
            self._collect(link, part, now)

    def _collect(self, link: Downlink, part: Part, now: float) -> None:
        child, policy = link.child, self._log.policy
        collected = child.collected
        old = None if part.base == NO_BASE else child.query_in(part.base)
        if part.base != NO_BASE and old is None:
            self._say_have(link, Have(part.epoch, UNKNOWN))
            return
        if collected is None or (part.epoch >= collected.epoch and not collected.is_of(part)):
            if not child.query_changes.allows(now):
                self.refused += 1
                self._say_have(link, Have(part.epoch, 0))
                return
            collected = child.collected = Collected(part)
        if collected.is_of(part) and part.number not in collected:
            if self._allows(now, link.address[0], query_cost(part.data)):
                read = policy.read_part(part.data)
                if read is None:
                    self._close(link.id, Reason.MODE_MISMATCH, b"not a part of a query")
                    return
                collected.add(part.number, read)
            else:
                self.refused += 1
        if not collected.is_complete:
            self._say_have(link, Have(collected.epoch, collected.have))
            return
        query = collected.whole(old, policy.joined)
        child.collected = None
        if query is None or len(query) > self._config.max_query_bytes:
            self._say_have(link, Have(part.epoch, UNKNOWN))
            return
        self._begin_preparing(link, part.epoch, query)
        self._say_have(link, Have(part.epoch, part.parts))
        self.try_prepare(link, again=True)

    def _say_have(self, link: Downlink, have: Have) -> None:
        self._post(link, link.encode(wire.CONTROL, 0, 0, encode_have(have)))

    def _recall(self, child: Child, epoch: int, query: bytes, now: float) -> None:
        """A query that is over. For a while the child may ask what we have of stretches that it passed under it."""
        if child.interest_in(epoch) is not None or len(child.previous) >= MAX_PREVIOUS_QUERIES:
            return
        if not child.query_changes.allows(now, query_cost(query)):
            self.refused += 1
        elif self.why_not(query) is None:
            try:
                child.recall(epoch, self._log.open_interest(query, is_restricted=child.is_restricted))
            except Exception as error:
                fault("query", error)

    def try_prepare(self, link: Downlink, *, again: bool = False) -> None:
        """Answer the child, if what it is about to want is covered. `again`: even if it was answered before."""
        pending = link.child.pending
        if pending is None or not self._carries(pending.query):
            return
        if pending.interest is None:
            pending.interest = self.open_interest(link, pending.query)
            if pending.interest is None:
                return
        elif not again:
            return
        self._send_prepared(link, pending.epoch, pending.query)

    def _send_prepared(self, link: Downlink, epoch: int, query: bytes) -> None:
        body = control.encode_prepared(control.Prepared(epoch, self._log.covered_since(query)))
        self._post(link, link.encode(wire.CONTROL, 0, 0, body))

    def confirm(self, link: Downlink, epoch: int, position: int) -> bool:
        """Whether the child speaks of its present epoch, and of a position in it.

        A prepared epoch commits; the first position confirms the start.
        """
        child = link.child
        if epoch > child.epoch and child.commit_epoch(epoch):
            self.revision += 1
            if child.floor is not None and position != control.NO_POSITION:
                link.reposition(position)
        if epoch != child.epoch:
            if epoch > child.epoch:
                self._close(link.id, Reason.RESET, b"")  # an epoch that was never prepared: never silence
            return False
        if position == control.NO_POSITION:
            return False
        if child.floor is None:
            link.reposition(position)
            self._emit(events.ChildOpened(self._stream, link.id, link.address))
        return True
