"""A stand-in for dcp's links: what the border promises to the mesh machine, and nothing more.

The child asks again until it is answered or tires. The parent's owner is asked once for an opening; the nonce is
random, entered before the answer goes out, carried by all traffic of the link, and an unknown one gets a reset. Closing
is sent a few times and may be lost altogether. Inquiries are asked a few times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from peer.mesh.events import (
    AcceptLink,
    CandidatesWanted,
    CloseLink,
    Event,
    Inquire,
    Inquiry,
    JoinTicket,
    LinkId,
    OpenLink,
    PublishRecord,
    RefuseLink,
    SendMessage,
    WithdrawRecord,
)

if TYPE_CHECKING:
    from dcp.links.link import SocketAddress
    from dcp.testing import VirtualClock
    from peer.mesh.hostport import HostPort
    from peer.mesh.machine import Mesh

OPEN_RETRY = 0.15
OPEN_TRIES = 6
CLOSE_COPIES = (0.0, 0.05, 0.2)
ASK_RETRY = 0.25
ASK_TRIES = 3
REFUSAL_MEMORY = 1.0


@dataclass(slots=True)
class _Opening:
    target: SocketAddress
    hello: bytes
    tries: int = 0


class SimLinks:
    """All links of one life of one peer, and with its mesh machine a host of `dcp.testing.Network`.

    `life` tells the openings of two lives of a peer apart.
    """

    def __init__(
        self,
        life: int,
        mesh: Mesh,
        *,
        clock: VirtualClock,
        rng: Random,
        directory: Callable[[CandidatesWanted | PublishRecord | WithdrawRecord], None],
        is_awake: Callable[[], bool],
        after_input: Callable[[], None],
        fresh_nonces: bool = True,
    ) -> None:
        """`after_input` is called when a timer of the links, not of the network, has given the mesh an input."""
        self.life, self.mesh = life, mesh
        self._clock, self._rng = clock, rng
        self._directory, self._is_awake, self._after_input = directory, is_awake, after_input
        self._fresh_nonces = fresh_nonces
        self._outbox: list[tuple[Any, SocketAddress]] = []
        self._openings: dict[LinkId, _Opening] = {}
        self._asked: dict[JoinTicket, tuple[SocketAddress, int, LinkId]] = {}
        self._tickets = 0
        self._answers: dict[tuple[SocketAddress, int, LinkId], tuple[tuple[Any, ...], float, int | None]] = {}
        self._inquiries: dict[Inquiry, tuple[SocketAddress, bytes, int]] = {}
        self.link_of: dict[int, LinkId] = {}
        self.nonce_of: dict[LinkId, int] = {}
        self.end_at: dict[LinkId, SocketAddress] = {}

    # A host of the network

    def receive_datagram(self, data: tuple[Any, ...], address: SocketAddress, *, now: float) -> bool:
        self._receive(address, data, now)
        self._run_effects()
        return True

    def handle_timeout(self, *, now: float) -> None:
        due = self.mesh.next_timeout()
        if due is not None and due <= now:
            self.mesh.handle_timeout(now=now)
            self._run_effects()

    def datagrams_to_send(self, *, now: float) -> list[tuple[Any, SocketAddress]]:
        self._run_effects()  # of commands
        outbox = self._outbox
        if outbox:
            self._outbox = []
        return outbox

    def next_timeout(self, *, now: float) -> float | None:
        return self.mesh.next_timeout()

    def next_event(self) -> Event | None:
        return self.mesh.next_event()

    # Effects of the machine

    def _run_effects(self) -> None:
        for effect in self.mesh.take_effects():
            kind = type(effect)
            if kind is SendMessage:
                self._send_message(effect)  # type: ignore[arg-type]
            elif isinstance(effect, OpenLink):
                self._openings[effect.link] = _Opening(effect.address, effect.hello)
                self._try_open(effect.link)
            elif isinstance(effect, AcceptLink):
                self._accept(effect)
            elif isinstance(effect, RefuseLink):
                key = self._asked.pop(effect.ticket)
                datagram = ("refuse", key[1], key[2], int(effect.reason), effect.body)
                self._answers[key] = (datagram, self._clock.now + REFUSAL_MEMORY, None)
                self._send(key[0], datagram)
            elif isinstance(effect, CloseLink):
                self._close(effect)
            elif isinstance(effect, Inquire):
                self._inquiries[effect.inquiry] = (effect.address, effect.request, 0)
                self._try_ask(effect.inquiry)
            elif isinstance(effect, CandidatesWanted | PublishRecord | WithdrawRecord):
                self._directory(effect)

    def _send_message(self, effect: SendMessage) -> None:
        for link in effect.links:
            nonce = self.nonce_of.get(link)
            if nonce is not None:
                self._outbox.append((("message", nonce, effect.body), self.end_at[link]))

    def _accept(self, effect: AcceptLink) -> None:
        key = self._asked.pop(effect.ticket)
        nonce = self._rng.getrandbits(64) if self._fresh_nonces else crc32(repr((key[0], self.mesh.peer_id)).encode())
        if not self._fresh_nonces and nonce in self.link_of:
            self.nonce_of.pop(self.link_of[nonce], None)
        self._enter(effect.link, nonce, key[0])
        datagram = ("accept", key[1], key[2], nonce, effect.reply)
        self._answers[key] = (datagram, float("inf"), nonce)
        self._send(key[0], datagram)

    def _close(self, effect: CloseLink) -> None:
        self._openings.pop(effect.link, None)
        nonce = self.nonce_of.get(effect.link)
        if nonce is None:
            return
        end = self.end_at[effect.link]
        self._forget(effect.link)
        for delay in CLOSE_COPIES:
            self._later(delay, self._send_if_awake, end, ("close", nonce, int(effect.reason)))

    def drop(self, link: LinkId) -> None:
        """Lose a link as if the other end had reset it; the other end does not know."""
        self._forget(link)
        self.mesh.link_reset(link, now=self._clock.now)

    def _send(self, end: SocketAddress, datagram: tuple[Any, ...]) -> None:
        self._outbox.append((datagram, end))

    def _send_if_awake(self, end: SocketAddress, datagram: tuple[Any, ...]) -> None:
        if self._is_awake():
            self._send(end, datagram)

    def _later(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        self._clock.after(delay, self._now, call, arguments)

    def _now(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        call(*arguments)
        if self._is_awake():
            self._after_input()

    def _enter(self, link: LinkId, nonce: int, end: SocketAddress) -> None:
        self.link_of[nonce], self.nonce_of[link], self.end_at[link] = link, nonce, end

    def _forget(self, link: LinkId) -> None:
        nonce = self.nonce_of.pop(link)
        if self.link_of.get(nonce) == link:
            del self.link_of[nonce]
        del self.end_at[link]

    def _try_open(self, link: LinkId) -> None:
        opening = self._openings.get(link)
        if opening is None:
            return
        if not self._is_awake():
            self._later(OPEN_RETRY, self._try_open, link)
            return
        if opening.tries >= OPEN_TRIES:
            self._tired(link)
            return
        opening.tries += 1
        self._send(opening.target, ("open", self.life, link, opening.hello))
        self._later(OPEN_RETRY, self._try_open, link)

    def _tired(self, link: LinkId) -> None:
        self._openings.pop(link, None)
        if self._is_awake() and link in self.mesh.pending:
            self.mesh.open_timed_out(link, now=self._clock.now)

    def _try_ask(self, inquiry: Inquiry) -> None:
        asked = self._inquiries.get(inquiry)
        if asked is None or not self._is_awake():
            return
        target, request, tries = asked
        if tries >= ASK_TRIES:
            del self._inquiries[inquiry]
            self.mesh.inquiry_timed_out(inquiry, now=self._clock.now)
            return
        self._inquiries[inquiry] = (target, request, tries + 1)
        self._send(target, ("ask", self.life, inquiry, request))
        self._later(ASK_RETRY, self._try_ask, inquiry)

    # Datagrams

    def _receive(self, source: SocketAddress, datagram: tuple[Any, ...], now: float) -> None:
        kind = datagram[0]
        if kind == "message":
            link = self.link_of.get(datagram[1])
            if link is None:
                self._send(source, ("reset", datagram[1]))
                return
            self.mesh.receive_message(link, datagram[2], now=now)
        elif kind == "open":
            self._on_open(source, datagram, now)
        elif kind == "accept":
            self._on_accept(source, datagram, now)
        elif kind == "refuse":
            if datagram[1] == self.life and self._openings.pop(datagram[2], None) is not None:
                self.mesh.link_refused(datagram[2], datagram[3], datagram[4], now=now)
        elif kind in ("close", "reset"):
            link = self.link_of.get(datagram[1])
            if link is not None and self.end_at[link] == source:
                self._forget(link)
                if kind == "close":
                    self.mesh.link_closed(link, datagram[2], now=now)
                else:
                    self.mesh.link_reset(link, now=now)
        elif kind == "ask":
            answer = self.mesh.answer_inquiry(datagram[3], _host_port(source), now=now)
            if answer is not None:
                self._send(source, ("answer", datagram[1], datagram[2], answer))
        elif kind == "answer" and datagram[1] == self.life and self._inquiries.pop(datagram[2], None) is not None:
            self.mesh.inquiry_answered(datagram[2], datagram[3], now=now)

    def _on_open(self, source: SocketAddress, datagram: tuple[Any, ...], now: float) -> None:
        key = (source, datagram[1], datagram[2])
        known = self._answers.get(key)
        if known is not None:
            answer, until, nonce = known
            if now < until and (nonce is None or nonce in self.link_of):
                self._send(source, answer)
                return
            del self._answers[key]
        self._tickets += 1
        ticket = JoinTicket(self._tickets)
        self._asked[ticket] = key
        self.mesh.receive_join(ticket, _host_port(source), datagram[3], now=now)

    def _on_accept(self, source: SocketAddress, datagram: tuple[Any, ...], now: float) -> None:
        _, life, link, nonce, reply = datagram
        if life == self.life and link in self._openings:
            del self._openings[link]
            self._enter(link, nonce, source)
            self.mesh.link_opened(link, reply, now=now)
        elif nonce not in self.link_of:
            self._send(source, ("reset", nonce))


def _host_port(address: SocketAddress) -> HostPort:
    return address[0], address[1]
