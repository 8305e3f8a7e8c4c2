"""Packets that reach only peers with the owner's grant for them: the root marks them, inside what it signs.

The mark is an envelope of its own around the packed content, so that no hop need know the root's queries, no relay can
take it off a signed packet, and packets in the logs of hops stay withheld whatever the root withholds later:

    kind 1 (0x05) | random 16 | inner envelope

The random bytes keep those who see the packet's hash, in the path of a packet that was signed together with it, from
finding out its content by guessing. This file is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dcp.errors import PayloadRefused
from peer.trust.batches import SIGNED, inner_at_untrusted
from xmlswitch import MalformedDocument, Query, Switch

WITHHELD = 0x05
WITHHELD_MARK = b"\x05"
RANDOM_BYTES = 16
_INNER_AT = 1 + RANDOM_BYTES


class Withholding:
    """At a root: which packets are marked. One that is not XML, and so can't be looked at, is marked too."""

    def __init__(self, queries: Iterable[Query], random: Callable[[], bytes]) -> None:
        """`random()` gives 16 fresh bytes."""
        self._random = random
        self._switch: Switch[Query] = Switch(exact=True)
        self._switch.add_link(0, slot=0)
        for query in queries:
            self._switch.subscribe(0, query)
        self.marked = 0

    def mark(self, content: bytes, packed: bytes) -> bytes:
        """`packed`, in the envelope of a withheld packet if the content is to be withheld."""
        try:
            matches = self._switch.match_mask(content) != 0
        except MalformedDocument:
            matches = True
        if not matches:
            return packed
        self.marked += 1
        return WITHHELD_MARK + self._random() + packed


def is_withheld_untrusted(envelope: bytes) -> bool:
    """Whether a packet, as it travels, is marked. PayloadRefused if it can't be told."""
    if envelope and envelope[0] == SIGNED:
        return envelope[inner_at_untrusted(envelope)] == WITHHELD
    return envelope[:1] == WITHHELD_MARK


def unmarked_untrusted(inner: bytes) -> bytes:
    """The packed content of what a root has signed, marked or not."""
    if inner[:1] != WITHHELD_MARK:
        return inner
    if len(inner) <= _INNER_AT:
        raise PayloadRefused("a withheld packet that is cut off")
    return inner[_INNER_AT:]
