"""Questions and answers between peers that have no link: one datagram each way, after a cookie has proved the address.

A question is repeated until it is answered or its time is up. An answer is sent once: a question whose answer was lost
comes again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from dcp import events, handshake, wire
from dcp.errors import MalformedDatagram
from dcp.links.link import SocketAddress
from dcp.links.ways import Ways

MAX_INQUIRIES = 1_024
MAX_INQUIRY_BYTES = 1_200
REPEAT_INTERVAL = 0.15


@dataclass(slots=True)
class _Inquiry:
    number: int
    address: SocketAddress
    body: bytes
    nonce: bytes
    cookie: bytes
    deadline: float
    again_at: float
    tries: int = 0
    asked: tuple[SocketAddress, ...] = ()
    """Where it was sent to: the same peer, over one carrier or several."""


class Inquiries:
    def __init__(
        self,
        rng: random.Random,
        ways: Ways,
        *,
        emit: Callable[[events.Event], None],
        send_open: Callable[[handshake.Opening, SocketAddress], None],
    ) -> None:
        self._rng = rng
        self._ways = ways
        self._emit = emit
        self._send_open = send_open
        self._ours: dict[bytes, _Inquiry] = {}  # by nonce
        self._theirs: dict[int, tuple[bytes, SocketAddress]] = {}  # ticket -> (nonce, address)
        self._next_number = 1

    def __contains__(self, nonce: bytes) -> bool:
        """Whether a question of ours with this nonce is open."""
        return nonce in self._ours

    # --- ours ---------------------------------------------------------------------------------------------------------

    def ask(self, address: SocketAddress, body: bytes, *, timeout: float, now: float) -> int:
        if len(body) > MAX_INQUIRY_BYTES:
            raise ValueError(f"an inquiry holds at most {MAX_INQUIRY_BYTES} bytes, got {len(body)}")
        if len(self._ours) >= MAX_INQUIRIES:
            raise ValueError("too many open inquiries")
        number = self._take_number()
        nonce = self._rng.randbytes(handshake.NONCE_BYTES)
        inquiry = _Inquiry(number, address, body, nonce, handshake.NO_COOKIE, now + timeout, now + REPEAT_INTERVAL)
        self._ours[nonce] = inquiry
        self._send(inquiry, now)
        return number

    def receive_challenge(self, challenge: handshake.Challenge, address: SocketAddress, now: float) -> None:
        inquiry = self._ours[challenge.nonce]
        if inquiry.cookie == challenge.cookie or address not in inquiry.asked:
            return
        if inquiry.cookie == handshake.NO_COOKIE or inquiry.address == address:
            inquiry.address, inquiry.cookie = address, challenge.cookie
            self._ways.answered(address, now)
            self._send(inquiry, now)

    def receive_answer(self, answer: handshake.Answer, address: SocketAddress, now: float) -> bool:
        """False when it answers no question of ours."""
        inquiry = self._ours.get(answer.nonce)
        if inquiry is None or address not in inquiry.asked:
            return False
        self._ways.answered(address, now)
        del self._ours[answer.nonce]
        self._emit(events.InquiryAnswered(inquiry.number, address, answer.body))
        return True

    def _send(self, inquiry: _Inquiry, now: float) -> None:
        if inquiry.cookie == handshake.NO_COOKIE:
            inquiry.asked = self._ways.ask(inquiry.address, now)
            addresses = inquiry.asked
        else:
            addresses = (inquiry.address,)
        for address in addresses:
            self._send_open(handshake.Inquire(inquiry.nonce, inquiry.cookie, inquiry.body), address)

    # --- theirs -------------------------------------------------------------------------------------------------------

    def check(self, inquire: handshake.Inquire) -> None:
        if len(inquire.body) > MAX_INQUIRY_BYTES:
            raise MalformedDatagram("limit", "inquiry")

    def receive(self, inquire: handshake.Inquire, address: SocketAddress) -> None:
        """A question from an address that is proved."""
        while len(self._theirs) >= MAX_INQUIRIES:
            del self._theirs[next(iter(self._theirs))]
        ticket = self._take_number()
        self._theirs[ticket] = (inquire.nonce, address)
        self._emit(events.InquiryReceived(ticket, address, inquire.body))

    def answer(self, ticket: int, body: bytes) -> None:
        asked = self._theirs.pop(ticket, None)
        if asked is not None:
            self._send_open(handshake.Answer(asked[0], body[: wire.DEFAULT_DATAGRAM_BYTES - 64]), asked[1])

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        for nonce, inquiry in list(self._ours.items()):
            if now >= inquiry.deadline:
                del self._ours[nonce]
                self._emit(events.InquiryAnswered(inquiry.number, inquiry.address, None))
            elif now >= inquiry.again_at:
                inquiry.tries += 1
                inquiry.again_at = now + REPEAT_INTERVAL * 2**inquiry.tries
                self._send(inquiry, now)

    def next_timeout(self) -> float | None:
        return min((min(inquiry.deadline, inquiry.again_at) for inquiry in self._ours.values()), default=None)

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number
