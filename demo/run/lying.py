"""A peer of the demo that lies to its children when it is told to, with the lies of `peer.testing`."""

from __future__ import annotations

import random
from typing import Final

import trio

from peer.node import Peer
from peer.testing.liars import TICK, Claims, Omits

EMPTY: Final = "empty"
OMIT: Final = "omit"
LIES: Final = {
    EMPTY: "claims that no packet is coming",
    OMIT: "leaves out every third packet, as if it had never been",
}
OMITTED_SHARE: Final = 1 / 3


class Liar:
    """Honest until `lie` is called."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._claims = Claims()
        self._omits = Omits(share=0.0)
        self._omits.begin(peer.core, random.Random())
        self._how: str | None = None

    def lie(self, how: str | None) -> None:
        """None: be honest from now on. What was left out stays left out."""
        self._how = how
        self._omits.share = OMITTED_SHARE if how == OMIT else 0.0

    async def run(self) -> None:
        while True:
            await trio.sleep(TICK)
            if self._how == EMPTY:
                self._claims.tick(self._peer.core, self._peer.now())
                self._peer.driver.turn()
