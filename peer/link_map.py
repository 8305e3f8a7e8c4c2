"""Which of dcp's links is which of the mesh's: both machines number them for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh.placement.neighbourhood import LinkQuality

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dcp.receiver import Receiver
    from dcp.sender import Sender
    from peer.mesh.events import LinkId
    from peer.presence import LinkRate


class LinkMap:
    """Invariant: a link of the mesh is mapped to at most one of dcp's, up or down."""

    def __init__(self, receiver: Receiver | None, sender: Sender | None) -> None:
        self._receiver, self._sender = receiver, sender
        self._up: dict[int, LinkId] = {}
        self._down: dict[int, LinkId] = {}
        self._dcp_of: dict[LinkId, int] = {}

    def __len__(self) -> int:
        return len(self._dcp_of)

    def add_parent(self, number: int, link: LinkId) -> None:
        self._up[number] = link
        self._dcp_of[link] = number

    def add_child(self, number: int, link: LinkId) -> None:
        self._down[number] = link
        self._dcp_of[link] = number

    def dcp_link(self, link: LinkId) -> int | None:
        """dcp's number for a link of the mesh."""
        return self._dcp_of.get(link)

    def parent(self, number: int) -> LinkId | None:
        return self._up.get(number)

    def child(self, number: int) -> LinkId | None:
        return self._down.get(number)

    def any(self, number: int) -> LinkId | None:
        return self._up.get(number, self._down.get(number))

    def children(self) -> list[LinkId]:
        return list(self._down.values())

    def forget_parent(self, number: int) -> LinkId | None:
        return self._forget(self._up, number)

    def forget_child(self, number: int) -> LinkId | None:
        return self._forget(self._down, number)

    def _forget(self, table: dict[int, LinkId], number: int) -> LinkId | None:
        link = table.pop(number, None)
        if link is not None:
            self._dcp_of.pop(link, None)
        return link

    # What goes over a link of the mesh

    def send(self, link: LinkId, body: bytes) -> None:
        number = self._dcp_of.get(link)
        if number is None:
            return
        if self._receiver is not None and number in self._up:
            self._receiver.send_message(number, body)
        elif self._sender is not None:
            self._sender.send_message(number, body)

    def close(self, link: LinkId, reason: int) -> None:
        number = self._dcp_of.pop(link, None)
        if number is None:
            return
        if self._up.pop(number, None) is not None and self._receiver is not None:
            self._receiver.remove_sender(number, reason)
        elif self._down.pop(number, None) is not None and self._sender is not None:
            self._sender.close(number, reason)

    # What dcp knows about a link of the mesh

    def heard_at(self, link: LinkId) -> float | None:
        """When dcp last heard anything valid on it."""
        number = self._dcp_of.get(link)
        if number is None:
            return None
        if self._receiver is not None and number in self._receiver.links:
            return self._receiver.links[number].heard_at
        if self._sender is not None and number in self._sender.links:
            return self._sender.links[number].heard_at
        return None

    def qualities(self, now: float, rates: Mapping[int, LinkRate]) -> dict[LinkId, LinkQuality]:
        """What dcp measured on the links to parents and children; `rates` are those of the links to parents."""
        measured: dict[LinkId, LinkQuality] = {}
        if self._receiver is not None:
            for up in self._receiver.statistics(now).links:
                if (link := self._up.get(up.link)) is not None:
                    first_share = min(1.0, up.first_copies / up.expected) if up.expected else None
                    rate = rates.get(up.link)
                    measured[link] = LinkQuality(
                        round_trip=up.round_trip,
                        loss=up.loss,
                        rate=rate.now if rate is not None else None,
                        bandwidth=rate.highest if rate is not None else None,
                        first_share=first_share,
                        lateness=up.lateness,
                    )
        if self._sender is not None:
            for down in self._sender.statistics(now).links:
                if (link := self._down.get(down.link)) is not None:
                    measured[link] = LinkQuality(round_trip=down.round_trip)
        return measured
