"""What a hub knows about connections that carry datagrams instead of UDP: which links each carries, and its end."""

from __future__ import annotations

from dcp.control import Reason
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

    def used(self) -> set[SocketAddress]:
        """Those that carry a link. Their peers have echoed a cookie over them, or we have chosen them ourselves."""
        used = {uplink.address for _, uplink in self._uplinks.values()}
        used.update(downlink.address for _, downlink in self._downlinks.values())
        return {address for address in used if is_connection(address)}
