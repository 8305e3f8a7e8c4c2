"""One iterative lookup as a pure machine: whom to ask next, and when it is over.

kademlia's crawler asks three and waits for all three, so for the slowest of them: five seconds when one is dead. Here a
request that is late stops counting against `alpha` and another takes its place; the late answer is still welcome. Over
when the k nearest that are neither dead nor late have answered, unless most are late.

Against liars: a few places for one source address (more only when there are not k others), a bounded shortlist, a
bounded number of queries, and an answer counts for the id that was asked only if it comes from that id.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dht.addresses import neighbour_group
from dht.wire import Contact

if TYPE_CHECKING:
    from dht.config import NodeConfig
    from dht.ids import NodeId


class _State(enum.Enum):
    FRESH = enum.auto()
    ASKED = enum.auto()
    LATE = enum.auto()
    ANSWERED = enum.auto()
    FAILED = enum.auto()


class Lookup:
    def __init__(self, target: bytes, *, own_id: NodeId, config: NodeConfig, start: Iterable[Contact]) -> None:
        self._target = int.from_bytes(target, "big")
        self._own_id = own_id
        self._config = config
        self._max_shortlist = 4 * config.k
        self._order: list[tuple[int, Contact]] = []
        self._state: dict[Contact, _State] = {}
        self._of_source: Counter[str] = Counter()
        self._reserve: list[tuple[int, Contact]] = []
        self._in_flight = 0
        self._late = 0
        self._lates_seen = 0
        self._answered = 0
        self.queries = 0
        self.add(start)

    @property
    def is_done(self) -> bool:
        if self._in_flight or self._next_fresh() is not None:
            return False
        # When more are late than answered, it is rather we who are slow, or the way to all of them: wait for them.
        return self._late <= self._answered

    @property
    def nearest_answered(self) -> list[Contact]:
        return [contact for _, contact in self._order if self._state[contact] is _State.ANSWERED][: self._config.k]

    def next_query(self) -> Contact | None:
        """The contact to ask now, marked as asked; None when enough are in flight or none is left."""
        # Where many turn out late or dead, ask more at once: each of them would hold a place for its whole wait.
        if self._in_flight >= min(self._config.alpha + self._lates_seen, self._config.k):
            return None
        contact = self._next_fresh()
        if contact is not None:
            self._state[contact] = _State.ASKED
            self._in_flight += 1
            self.queries += 1
        return contact

    def late(self, contact: Contact) -> None:
        if self._state[contact] is _State.ASKED:
            self._state[contact] = _State.LATE
            self._in_flight -= 1
            self._late += 1
            self._lates_seen += 1

    def failed(self, contact: Contact) -> None:
        self._settle(contact, _State.FAILED)
        self._of_source[neighbour_group(contact.address)] -= 1

    def answered(self, contact: Contact, *, by: NodeId, contacts: Iterable[Contact]) -> bool:
        """Return False if another node answered there: then the contact failed, and the other node is added."""
        if by != contact.id:
            self.failed(contact)
            self.add([Contact(by, contact.address)])
            return False
        self._settle(contact, _State.ANSWERED)
        self.add(contacts)
        return True

    def add(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            if contact in self._state or contact.id == self._own_id:
                continue
            group = neighbour_group(contact.address)
            distance = int.from_bytes(contact.id, "big") ^ self._target
            is_crowded = self._of_source[group] >= self._config.max_per_source_in_lookup
            if is_crowded and not self._drop_beyond(distance, group=group):
                self._keep_in_reserve(distance, contact)
                continue
            if len(self._order) >= self._max_shortlist and not self._drop_beyond(distance):
                continue
            self._state[contact] = _State.FRESH
            self._of_source[group] += 1
            insort(self._order, (distance, contact))

    def _settle(self, contact: Contact, state: _State) -> None:
        if self._state[contact] is _State.ASKED:
            self._in_flight -= 1
        else:
            self._late -= 1
        self._answered += state is _State.ANSWERED
        self._state[contact] = state

    def _drop_beyond(self, distance: int, *, group: str | None = None) -> bool:
        """Make room, in the whole shortlist or among one source: drop the farthest not yet asked, if farther.

        Nearer ones of one source replace each other, or many peers behind one address would never find the nearest.
        """
        for index in range(len(self._order) - 1, -1, -1):
            farther, contact = self._order[index]
            if farther <= distance:
                return False
            its_group = neighbour_group(contact.address)
            if self._state[contact] is _State.FRESH and group in (None, its_group):
                del self._order[index], self._state[contact]
                self._of_source[its_group] -= 1
                if group is not None:
                    self._keep_in_reserve(farther, contact)
                return True
        return False

    def _keep_in_reserve(self, distance: int, contact: Contact) -> None:
        """Of a crowded source: asked only if others do not suffice."""
        if (distance, contact) not in self._reserve:
            insort(self._reserve, (distance, contact))
            del self._reserve[self._max_shortlist :]

    def _next_fresh(self) -> Contact | None:
        if self.queries >= self._config.max_lookup_queries:
            return None
        ahead = 0  # answered, or likely to: the k places that matter
        for _, contact in self._order:
            state = self._state[contact]
            if state is _State.FRESH:
                return contact
            if state in (_State.ANSWERED, _State.ASKED):
                ahead += 1
                if ahead >= self._config.k:
                    return None
        return self._from_reserve()

    def _from_reserve(self) -> Contact | None:
        while self._reserve:
            distance, contact = self._reserve.pop(0)
            if contact not in self._state:
                self._state[contact] = _State.FRESH
                self._of_source[neighbour_group(contact.address)] += 1
                insort(self._order, (distance, contact))
                return contact
        return None
