"""What a hub does with its links by address or number: which links a connection carries, and how links end."""

from __future__ import annotations

from dcp.control import Reason
from dcp.guard import guard
from dcp.handshake import Reset
from dcp.links.address import SocketAddress, is_connection
from dcp.links.downlink import Downlink
from dcp.links.uplink import Uplink
from dcp.receiver import Receiver
from dcp.sender import Sender


class Connections:
    def __init__(
        self, uplinks: dict[int, tuple[Receiver, Uplink]], downlinks: dict[int, tuple[Sender, Downlink]]
    ) -> None:
        """The hub's own tables."""
        self._uplinks = uplinks
        self._downlinks = downlinks

    def lost(self, address: SocketAddress) -> None:
        """It has ended, and so have its links: their owners hear of it at once, not after a silence."""
        for receiver, uplink in list(self._uplinks.values()):
            if uplink.address != address:
                continue
            if uplink.up:
                receiver.give_up(uplink.id, Reason.RESET)
            else:
                uplink.forget_way()
        for sender, downlink in list(self._downlinks.values()):
            if downlink.address == address:
                sender.close(downlink.id, Reason.RESET)

    def end(self, link_id: int) -> None:
        """Something went wrong on a link that nobody expected: it ends, and all others go on."""
        up, down = self._uplinks.get(link_id), self._downlinks.get(link_id)
        with guard("close"):
            if up is not None:
                up[0].give_up(link_id, Reason.RESET)
            elif down is not None:
                down[0].close(link_id, Reason.RESET)

    def receive_reset(self, reset: Reset, address: SocketAddress, now: float) -> bool:
        """`reset.link` is the id that *we* put on a packet: the other end's. False when no link is meant."""
        for receiver, uplink in list(self._uplinks.values()):
            if uplink.remote_id == reset.link and uplink.address == address:
                receiver.receive_reset(uplink, now)
                return True
        for sender, downlink in list(self._downlinks.values()):
            if address == downlink.address and reset.link in (downlink.remote_id, downlink.id):
                sender.receive_reset(downlink, now)
                return True
        return False

    def used(self) -> set[SocketAddress]:
        """Those that carry a link. Their peers have echoed a cookie over them, or we have chosen them ourselves."""
        used = {uplink.address for _, uplink in self._uplinks.values()}
        used.update(downlink.address for _, downlink in self._downlinks.values())
        return {address for address in used if is_connection(address)}
