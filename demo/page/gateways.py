"""What every client was handed, for the page's map: a gateway for each, as `skymesh gateway` has it, under its name."""

from __future__ import annotations

from collections.abc import Container

from peer.gateway.app import Gateway
from peer.gateway.history import History
from peer.items import Content

HISTORY_BYTES = 4 << 20
"""Some minutes of the demo's feed: a page that looks at another client sees at once where its flights are."""
MAX_READERS = 16


class Gateways:
    def __init__(self, clients: Container[str]) -> None:
        """`clients`: the names of those that there are, now and later."""
        self._clients = clients
        self._gateways: dict[str, Gateway] = {}

    def put(self, client: str, item: Content) -> None:
        """The client was handed this."""
        self._of(client).put([item])

    def find(self, path: str) -> Gateway | None:
        """By the path of its WebSocket."""
        match path.split("/"):
            case ["", "v1", client, "socket"] if client in self._clients:
                return self._of(client)
        return None

    def _of(self, client: str) -> Gateway:
        gateway = self._gateways.get(client)
        if gateway is None:
            for gone in [name for name in self._gateways if name not in self._clients]:
                del self._gateways[gone]
            gateway = self._gateways[client] = Gateway(client, History(HISTORY_BYTES, max_readers=MAX_READERS))
        return gateway
