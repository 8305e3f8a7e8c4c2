"""What a switch needs to know about a kind of interest: XPORT's profile methods (section 2.2.1), typed.

XPORT's `match(m, p)`, `merge(p, q)` and the index methods `init`, `add`, `remove`, `match(m, ind)` are here
`Profile.matches`, `Profile.merge`, `Profile.index`, and `ProfileIndex.add`, `.remove`, `.match`; `covers` is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from xmlswitch.query.query import Query

Q = TypeVar("Q")
Q_contra = TypeVar("Q_contra", contravariant=True)


class ProfileIndex(Protocol[Q_contra]):
    """Standing queries of links, by link slot. A link's query is added once and removed once."""

    @property
    def cut_offs(self) -> Counter[int]:
        """By link, how often a packet passed because a query would have cost too much."""
        ...

    def forget(self, link: int) -> None:
        """The link is gone: its slot may be another's soon."""
        ...

    def add(self, query: Q_contra, link: int) -> None: ...

    def remove(self, query: Q_contra, link: int) -> None: ...

    def match(self, packet: bytes, wanted: int) -> int:
        """The links of the mask `wanted` that have a matching query; `MalformedDocument` for a packet of no sense."""
        ...

    def snapshot(self) -> dict[str, int]:
        """Counters by the names of `SwitchStats`."""
        ...


class Profile(Protocol[Q]):
    """One kind of query over one kind of packet."""

    name: str

    def matches(self, packet: bytes, query: Q) -> bool:
        """By evaluation, without an index."""
        ...

    def matches_everything(self, query: Q) -> bool: ...

    def merge(self, queries: Iterable[Q]) -> Q:
        """A query that matches whatever one of the given ones matches, and more where exactness would cost too much."""
        ...

    def covers(self, general: Q, special: Q) -> bool:
        """Sound: if true, no packet matches `special` and not `general`."""
        ...

    def index(
        self, *, strict: bool = False, clock: Callable[[], float] | None = None, exact: bool = False
    ) -> ProfileIndex[Q]:
        """A new, empty index. `strict`, `clock` and `exact` as for `Switch`."""
        ...

    def encode(self, query: Q) -> bytes: ...

    def decode_untrusted(self, data: bytes) -> Q: ...


class XPathProfile:
    """XPath over XML packets: the default."""

    name = "xpath"

    def matches(self, packet: bytes, query: Query) -> bool:
        return query.matches(packet)

    def matches_everything(self, query: Query) -> bool:
        return query.matches_everything

    def merge(self, queries: Iterable[Query]) -> Query:
        from xmlswitch.query.algebra import disjoin

        return disjoin(queries)

    def covers(self, general: Query, special: Query) -> bool:
        from xmlswitch.query.algebra import covers

        return covers(general, special)

    def index(
        self, *, strict: bool = False, clock: Callable[[], float] | None = None, exact: bool = False
    ) -> ProfileIndex[Query]:
        from xmlswitch.match.engine import XPathIndex

        return XPathIndex(strict=strict, clock=clock, exact=exact)

    def encode(self, query: Query) -> bytes:
        return query.encode()

    def decode_untrusted(self, data: bytes) -> Query:
        return Query.decode_untrusted(data)


XPATH = XPathProfile()
