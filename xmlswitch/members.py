"""One link's subscription as a set of queries that changes step by step: the parent's side of `Interest`.

members = Members(switch, "child 1")
members.change(added=[query], removed=[digest])
members.digest          # the same at both ends, or one of them missed a change
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from xmlswitch.errors import QueryTooExpensiveError
from xmlswitch.query.interest import MemberLimits
from xmlswitch.query.member_wire import DIGEST_BYTES, MemberSize, digest_of
from xmlswitch.query.query import Query
from xmlswitch.switch import Switch


class Members:
    """The queries of a link that is in the switch. A change takes place as a whole, or not at all."""

    def __init__(self, switch: Switch[Query], link: Hashable, limits: MemberLimits | None = None) -> None:
        self._switch = switch
        self._link = link
        self._limits = limits or MemberLimits()
        self._held: dict[bytes, Query] = {}
        self._total = 0
        self._size = MemberSize()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(self._held.values())

    @property
    def size(self) -> int:
        """About how many bytes the set takes on the wire."""
        return self._size.bytes

    @property
    def digest(self) -> bytes:
        """Of the set, in whatever order it came together."""
        return self._total.to_bytes(DIGEST_BYTES, "big")

    def change(self, added: Iterable[Query] = (), removed: Iterable[bytes] = ()) -> None:
        """Add queries and remove others by digest.

        `KeyError` for a digest that is not held: the other end must send its set again. `QueryTooExpensiveError` when
        there would be too many, or they would be too large.
        """
        new = {digest_of(query): query for query in added}
        gone = dict.fromkeys(removed)
        for digest in gone:
            if digest not in self._held:
                raise KeyError(f"no member {digest.hex()}")
        new = {digest: query for digest, query in new.items() if digest in gone or digest not in self._held}
        number = len(self._held) - len(gone) + len(new)
        for query in new.values():
            self._size.add(query)
        for digest in gone:
            self._size.remove(self._held[digest])
        if number > self._limits.max_members or self._size.bytes > self._limits.max_bytes:
            detail = f"{number} members of {self._size.bytes} bytes"
            for query in new.values():
                self._size.remove(query)
            for digest in gone:
                self._size.add(self._held[digest])
            most = f"the limits are {self._limits.max_members} and {self._limits.max_bytes}"
            raise QueryTooExpensiveError(f"{detail}; {most}")
        for digest, query in new.items():
            self._switch.subscribe(self._link, query)
            self._total ^= int.from_bytes(digest, "big")
        for digest in gone:
            self._switch.unsubscribe(self._link, self._held.pop(digest))
            self._total ^= int.from_bytes(digest, "big")
        self._held.update(new)
