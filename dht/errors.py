"""What can go wrong, in three kinds: the caller's mistake (ValueError), a stranger's (RecordRejected), the network's.

A stranger's mistake is counted by its `Refusal` and dropped at one line; it never travels further than that.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dht.ids import PeerId


class Refusal(enum.IntEnum):
    """Why a record was not taken. Sent on the wire in answers to a store, so: append only."""

    MALFORMED = 0x01  # not the record format at all
    TOO_LARGE = 0x02  # above MAX_RECORD_BYTES
    BAD_SIGNATURE = 0x03  # the signature is not the key's
    EXPIRED = 0x04  # its lifetime is over
    TOO_LONG_LIVED = 0x05  # expires later than any honest record can; often a wrong clock
    STALE = 0x06  # a newer version of the same peer is known
    WRONG_KEY = 0x07  # the record does not belong under that key
    NO_GRANT = 0x08  # calls itself a root of a self-certifying stream, and the owner does not say so
    BAD_GRANT = 0x09  # carries a grant that the owner did not sign for this peer and stream
    KEY_FULL = 0x0A  # the key's set is full of records from other sources
    SOURCE_QUOTA = 0x0B  # one source address holds its share of this key already
    PUBLISHER_QUOTA = 0x0C  # one peer id is under too many keys
    STORE_FULL = 0x0D  # the node's whole store is full
    BAD_TOKEN = 0x0E  # a store without the token that proves the source address
    WRONG_STREAM = 0x0F  # read under one stream, made for another
    OTHER_OWNER = 0x10  # a root of an open stream whose owner is not the pinned one
    HOST_QUOTA = 0x11  # one source address holds its share of the whole store already


class DhtError(Exception):
    """Base of everything this package raises for reasons outside the program."""


class RecordRejected(DhtError):
    """A record or grant that must not be used, and why."""

    def __init__(self, reason: Refusal, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason.name.lower()}: {detail}" if detail else reason.name.lower())


class DirectoryUnavailable(DhtError):
    """Nobody answered: neither a known contact nor a bootstrap address."""


class OwnerError(DhtError):
    """Whom the roots of an open stream belong to is not settled: a person has to decide."""


class StreamOwnerChanged(OwnerError):
    """Every root of an open stream belongs to another owner than the pinned one."""


class SeveralOwners(OwnerError):
    """Roots of several owners serve an open stream for which no owner is pinned yet."""

    def __init__(self, sentence: str, owners: tuple[PeerId, ...]) -> None:
        super().__init__(sentence)
        self.owners = owners


class PinsError(DhtError):
    """A pin file that cannot be read or written: whom to trust must not be forgotten silently."""


class IdentityError(DhtError):
    """A key file that cannot be used: unreadable, damaged, or readable by others."""
