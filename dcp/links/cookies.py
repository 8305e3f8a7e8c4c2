"""Proof that an address can be reached, at no cost to the side that asks for it.

A cookie is a MAC over the address and the minute, under a secret of this process. A peer that echoes it has received
what was sent to that address: nobody can aim a stream at a victim. Nothing is remembered until then.
"""

from __future__ import annotations

import hashlib
import hmac
import random

from dcp.handshake import COOKIE_BYTES
from dcp.links.link import SocketAddress

SLOT_SECONDS = 60.0


class CookieJar:
    def __init__(self, rng: random.Random) -> None:
        self._secret = rng.randbytes(32)

    def bake(self, address: SocketAddress, now: float) -> bytes:
        return self._cookie(address, int(now // SLOT_SECONDS))

    def is_ours(self, cookie: bytes, address: SocketAddress, now: float) -> bool:
        """Given within this minute or the one before it."""
        slot = int(now // SLOT_SECONDS)
        return any(hmac.compare_digest(cookie, self._cookie(address, s)) for s in (slot, slot - 1))

    def _cookie(self, address: SocketAddress, slot: int) -> bytes:
        # The carrier too: what a connection echoed proves nothing about the UDP port of the same number.
        carrier = address[2] if len(address) == 3 else ""
        text = f"{address[0]}|{address[1]}|{carrier}|{slot}".encode()
        return hashlib.blake2b(text, key=self._secret, digest_size=COOKIE_BYTES, person=b"dcp1 cookie").digest()
