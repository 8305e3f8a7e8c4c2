"""How the datagrams of a link are protected against outsiders: chosen by the child's request, allowed by the parent.

These are for links without encryption, for which see `keying` and `secrecy`. Another way is another class here with a
mode bit of its own, and one line in `_WAYS`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dcp.config import Config
from dcp.handshake import MODE_STREAM, MODE_UNSEALED
from dcp.wire import Seal, derive_key


class Seals(NamedTuple):
    """Of the two directions of a link, as one end holds them. None: not sealed."""

    incoming: Seal | None
    outgoing: Seal | None


class Sealing(Protocol):
    @property
    def mode(self) -> int:
        """Its bits in the `mode` of a request."""

    def seals(self, child_nonce: bytes, parent_nonce: bytes, *, is_child: bool) -> Seals: ...


class Sealed:
    """A keyed checksum on every datagram: the default."""

    mode = 0

    def seals(self, child_nonce: bytes, parent_nonce: bytes, *, is_child: bool) -> Seals:
        return Seals(
            incoming=Seal(derive_key(child_nonce, parent_nonce, towards_child=is_child)),
            outgoing=Seal(derive_key(child_nonce, parent_nonce, towards_child=not is_child)),
        )


class Unsealed:
    """No checksum. Both ends must have switched it off."""

    mode = MODE_UNSEALED

    def seals(self, child_nonce: bytes, parent_nonce: bytes, *, is_child: bool) -> Seals:
        return Seals(None, None)


_WAYS: dict[int, Sealing] = {way.mode: way for way in (Sealed(), Unsealed())}


def wanted_sealing(config: Config) -> Sealing:
    """What a child asks its parents for."""
    return _WAYS[0 if config.sealed else MODE_UNSEALED]


def granted_sealing(config: Config, mode: int) -> Sealing | None:
    """What a parent uses with a child that asked for `mode`; None: it refuses."""
    asked = mode & ~MODE_STREAM
    if config.sealed and asked & MODE_UNSEALED:
        return None
    return _WAYS[asked & MODE_UNSEALED]
