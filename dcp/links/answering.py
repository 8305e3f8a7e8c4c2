"""The parent's side of opening a link: requests wait for the owner's answer, then for our own query, then are accepted.

Nothing is kept of a request before its cookie was right (the hub's business) and the cheap checks here have passed. The
owner is asked next; the child's query is parsed only after the owner has said yes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dcp import events, handshake
from dcp.admission import HostBuckets, query_cost
from dcp.child import Child
from dcp.config import Config
from dcp.control import Reason
from dcp.kinds import StreamKind
from dcp.links.carriage import carriage_of
from dcp.links.downlink import Downlink
from dcp.links.keying import Keying, check_request_untrusted, ciphers_of_request_untrusted, split_untrusted
from dcp.links.link import SocketAddress
from dcp.links.sealing import granted_sealing
from dcp.links.tickets import Tickets
from dcp.log import Log

UPGRADE = b"this peer requires encrypted links: upgrade, and leave out --cleartext"
TAMPERED = b"both peers can encrypt, but the request came without keys: somebody on the path removed them"


class Answering:
    """The openings of one stream, and what an accepted child was answered: an accept can be repeated."""

    def __init__(
        self,
        stream: str,
        log: Log,
        kind: StreamKind,
        config: Config,
        rng: random.Random,
        *,
        new_link_id: Callable[[], int],
        emit: Callable[[events.Event], None],
        send_open: Callable[[handshake.Opening, SocketAddress], None],
        keying: Keying,
    ) -> None:
        self.tickets = Tickets()
        self.refused = 0
        self.by_nonce: dict[bytes, Downlink] = {}
        self._accepts: dict[int, tuple[handshake.OpenRequest, handshake.Accept]] = {}  # by link id
        self._stream = stream
        self._log = log
        self._kind = kind
        self._carriage = carriage_of(kind, config)
        self._config = config
        self._rng = rng
        self._new_link_id = new_link_id
        self._emit = emit
        self._send_open = send_open
        self._keying = keying
        self._queries = HostBuckets(config.max_queries_per_second, config.max_queries_per_host)

    def receive_request(
        self, request: handshake.OpenRequest, address: SocketAddress, *, children: int, now: float
    ) -> None:
        """An opening whose cookie was right. Idempotent: the same nonce is the same link. Raises MalformedDatagram."""
        if request.share is not None:
            split_untrusted(request.hello)
            check_request_untrusted(request)
        known = self.by_nonce.get(request.nonce)
        if known is not None:
            is_theirs = (request.share.identity if request.share is not None else b"") == known.public_key
            if known.address == address and is_theirs and not known.child.waiting:
                self.send_accept(known, request.clock)
            return
        if request.nonce in self.tickets:
            return
        if (why := self._why_not(request, children)) is not None:
            self.refuse(request, address, *why)
        elif request.query and not self._queries.allows(now, address[0], query_cost(request.query)):
            self.tickets.dropped += 1
        elif (ticket := self.tickets.add(request, address, now)) is not None:
            # The query has not been looked at yet: that may cost something, and most of those refused need no look.
            key, hello, credentials = b"", request.hello, b""
            if request.share is not None:
                key = request.share.identity
                hello, credentials = split_untrusted(request.hello)
            self._emit(events.OpeningReceived(self._stream, ticket, address, request.query, hello, key, credentials))

    def allows_query(self, now: float, host: str, cost: float) -> bool:
        """Whether a host may have more of its queries read now."""
        return self._queries.allows(now, host, cost)

    def _why_not(self, request: handshake.OpenRequest, children: int) -> tuple[Reason, bytes] | None:
        """What speaks against a request before anybody is asked, the cheapest checks first."""
        if request.mode & handshake.MODE_STREAM != self._kind.mode:
            return Reason.MODE_MISMATCH, b""
        if (why := self._why_not_encrypted(request)) is not None:
            return Reason.ENCRYPTION, why
        if granted_sealing(self._config, request.mode) is None:
            return Reason.MODE_MISMATCH, b"this sender wants sealed packets"
        try:
            self._kind.check_query(request.query)
        except ValueError as error:
            return Reason.MODE_MISMATCH, str(error).encode()
        if children >= self._config.max_links:
            return Reason.FULL, b""
        if len(request.query) > self._config.max_query_bytes:
            return Reason.MODE_MISMATCH, b"query too long"
        return None

    def _why_not_encrypted(self, request: handshake.OpenRequest) -> bytes | None:
        keying = self._keying
        if request.share is not None:
            return None if request.share.suites & keying.suites else b"this peer has no encryption that you offer"
        if keying.suites and request.mode & handshake.MODE_ENCRYPTS:
            return TAMPERED
        return UPGRADE if keying.requires else None

    def refuse(self, request: handshake.OpenRequest, address: SocketAddress, reason: int, body: bytes = b"") -> None:
        self.refused += 1
        self._send_open(handshake.Refuse(request.nonce, reason, body), address)

    def open_link(
        self, request: handshake.OpenRequest, address: SocketAddress, reply: bytes, *, now: float
    ) -> Downlink:
        """The owner has accepted, and the query is one: the link exists from now on, at this end.

        MalformedDatagram if no keys can be made from what the child sent; then nothing has changed.
        """
        link_id, nonce = self._new_link_id(), self._rng.randbytes(handshake.NONCE_BYTES)
        accept = handshake.Accept(request.nonce, link_id, nonce, 0, 0, 0, 0, 0, reply)
        ciphers = None
        if request.share is not None:
            key = self._keying.new_key()
            accept = accept._replace(share=self._keying.share_for(request, key))
            ciphers = ciphers_of_request_untrusted(request, accept, key)
        child = Child(self._log, self._config, request)
        link = Downlink(link_id, address, child, self._config, self._carriage, request, now=now)
        if request.share is not None and ciphers is not None:
            link.encrypt(ciphers, request.share.identity)
        else:
            sealing = granted_sealing(self._config, request.mode)
            assert sealing is not None
            link.seal_in, link.seal_out = sealing.seals(request.nonce, nonce, is_child=False)
        self.by_nonce[request.nonce] = link
        self._accepts[link.id] = (request, accept)
        return link

    def send_accept(self, link: Downlink, clock: int) -> None:
        request, accept = self._accepts[link.id]
        child = link.child
        start = child.proposed_start()
        status = handshake.ACCEPT_RESERVED | (handshake.ACCEPT_STARTED if start is not None else 0)
        if not self._kind.is_dense and self._config.max_protection > 0:
            status |= handshake.ACCEPT_PROTECTS
        accept = accept._replace(epoch=child.epoch, start=start or 0, head=self._log.head, echo=clock, status=status)
        if accept.share is not None:
            accept = self._keying.signed(request, accept)
        self._send_open(accept, link.address)

    def forget(self, link: Downlink) -> None:
        del self.by_nonce[link.child_nonce]
        del self._accepts[link.id]

    def __len__(self) -> int:
        """Accepted openings that are remembered."""
        return len(self._accepts)
