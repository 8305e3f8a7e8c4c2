"""A joined peer that somebody else drives: a thread (`peer.blocking`) or the loop of a desktop program (`peer.guest`).

Content goes to `take`, everything else to `tell`, both under trio. A program that did not listen for so long that its
peer let its parents go is joined again as soon as it takes what was left: it sees a gap at worst.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import trio

from peer.errors import Overrun
from peer.items import Content

if TYPE_CHECKING:
    from peer.node import Event, Peer

log = logging.getLogger(__name__)


class Session:
    """All methods belong to trio's thread."""

    def __init__(self, opening: AbstractAsyncContextManager[Peer]) -> None:
        self.peer: Peer | None = None
        self._wanted: tuple[str | None, Mapping[str, str] | None] | None = None
        self._opening = opening
        self._scope = trio.CancelScope()

    def close(self) -> None:
        """Leave the mesh and end `run`; before `run` too."""
        self._scope.cancel()

    def change_query(self, query: str | None, namespaces: Mapping[str, str] | None = None) -> None:
        """As `Peer.change_query`; before the peer is open, as soon as it is."""
        if self.peer is None:
            self._wanted = query, namespaces
        else:
            self.peer.change_query(query, namespaces)

    async def run(
        self,
        take: Callable[[list[Content]], Awaitable[None]],
        tell: Callable[[Event], None] | None = None,
        *,
        statistics_every: float | None = None,
        opened: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        """Until `close`, or for good. The peer has left the mesh when this returns."""
        with self._scope:
            async with self._opening as peer, trio.open_nursery() as nursery:
                if tell is not None:
                    nursery.start_soon(_forward, peer.events(statistics_every=statistics_every), tell)
                self.peer = peer
                if self._wanted is not None:
                    peer.change_query(*self._wanted)
                opened(peer)
                await _pump(peer, take)
                nursery.cancel_scope.cancel()


async def _pump(peer: Peer, take: Callable[[list[Content]], Awaitable[None]]) -> None:
    while True:
        try:
            items = await peer.receive_many()
        except Overrun:
            log.warning("%s: the program is taking packets again; joining again", peer.options.stream)
            peer.rejoin()
            continue
        if not items:
            return
        await take(items)


async def _forward(events: trio.MemoryReceiveChannel[Event], tell: Callable[[Event], None]) -> None:
    async for event in events:
        tell(event)
