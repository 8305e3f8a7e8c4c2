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
from dcp.links.link import Address

MAX_INQUIRIES = 1_024
MAX_INQUIRY_BYTES = 1_200
REPEAT_INTERVAL = 0.15


@dataclass(slots=True)
class _Inquiry:
    number: int
    address: Address
    body: bytes
    nonce: bytes
    cookie: bytes
    deadline: float
    again_at: float
    tries: int = 0


class Inquiries:
    def __init__(
        self,
        rng: random.Random,
        *,
        emit: Callable[[events.Event], None],
        send_open: Callable[[handshake.Opening, Address], None],
    ) -> None:
        self._rng = rng
        self._emit = emit
        self._send_open = send_open
        self._ours: dict[bytes, _Inquiry] = {}  # by nonce
        self._theirs: dict[int, tuple[bytes, Address]] = {}  # ticket -> (nonce, address)
        self._next_number = 1

    def __contains__(self, nonce: bytes) -> bool:
        """Whether a question of ours with this nonce is open."""
        return nonce in self._ours

    # --- ours ---------------------------------------------------------------------------------------------------------

    def ask(self, address: Address, body: bytes, *, timeout: float, now: float) -> int:
        if len(body) > MAX_INQUIRY_BYTES:
            raise ValueError(f"an inquiry holds at most {MAX_INQUIRY_BYTES} bytes, got {len(body)}")
        if len(self._ours) >= MAX_INQUIRIES:
            raise ValueError("too many open inquiries")
        number = self._take_number()
        nonce = self._rng.randbytes(handshake.NONCE_BYTES)
        inquiry = _Inquiry(number, address, body, nonce, handshake.NO_COOKIE, now + timeout, now + REPEAT_INTERVAL)
        self._ours[nonce] = inquiry
        self._send(inquiry)
        return number

    def receive_challenge(self, challenge: handshake.Challenge, address: Address) -> None:
        inquiry = self._ours[challenge.nonce]
        if inquiry.address == address and inquiry.cookie != challenge.cookie:
            inquiry.cookie = challenge.cookie
            self._send(inquiry)

    def receive_answer(self, answer: handshake.Answer, address: Address) -> bool:
        """False when it answers no question of ours."""
        inquiry = self._ours.get(answer.nonce)
        if inquiry is None or inquiry.address != address:
            return False
        del self._ours[answer.nonce]
        self._emit(events.InquiryAnswered(inquiry.number, address, answer.body))
        return True

    def _send(self, inquiry: _Inquiry) -> None:
        self._send_open(handshake.Inquire(inquiry.nonce, inquiry.cookie, inquiry.body), inquiry.address)

    # --- theirs -------------------------------------------------------------------------------------------------------

    def check(self, inquire: handshake.Inquire) -> None:
        if len(inquire.body) > MAX_INQUIRY_BYTES:
            raise MalformedDatagram("limit", "inquiry")

    def receive(self, inquire: handshake.Inquire, address: Address) -> None:
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
                self._send(inquiry)

    def next_timeout(self) -> float | None:
        return min((min(inquiry.deadline, inquiry.again_at) for inquiry in self._ours.values()), default=None)

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number
