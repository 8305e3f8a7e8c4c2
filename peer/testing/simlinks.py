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

from peer.mesh.events import (
    AcceptLink,
    CandidatesWanted,
    CloseLink,
    Effect,
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
    from peer.mesh.hostport import HostPort
    from peer.mesh.machine import Mesh
    from peer.testing.network import SimNetwork, VirtualClock

OPEN_RETRY = 0.15
OPEN_TRIES = 6
CLOSE_COPIES = (0.0, 0.05, 0.2)
ASK_RETRY = 0.25
ASK_TRIES = 3
REFUSAL_MEMORY = 1.0


@dataclass(slots=True)
class _Opening:
    target: int
    hello: bytes
    tries: int = 0


class SimLinks:
    """All links of one life of one peer. `life` tells the openings of two lives of a peer apart."""

    def __init__(
        self,
        index: int,
        life: int,
        mesh: Mesh,
        *,
        clock: VirtualClock,
        network: SimNetwork,
        rng: Random,
        end_of: Callable[[HostPort], int | None],
        address_of: Callable[[int], HostPort],
        directory: Callable[[CandidatesWanted | PublishRecord | WithdrawRecord], None],
        is_awake: Callable[[], bool],
        fresh_nonces: bool = True,
    ) -> None:
        self.index, self.life, self.mesh = index, life, mesh
        self._clock, self._network, self._rng = clock, network, rng
        self._end_of, self._address_of, self._directory, self._is_awake = end_of, address_of, directory, is_awake
        self._fresh_nonces = fresh_nonces
        self._openings: dict[LinkId, _Opening] = {}
        self._asked: dict[JoinTicket, tuple[int, int, LinkId]] = {}
        self._tickets = 0
        self._answers: dict[tuple[int, int, LinkId], tuple[tuple[Any, ...], float, int | None]] = {}
        self._inquiries: dict[Inquiry, tuple[int, bytes, int]] = {}
        self.link_of: dict[int, LinkId] = {}
        self.nonce_of: dict[LinkId, int] = {}
        self.end_at: dict[LinkId, int] = {}

    # Effects of the machine

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is SendMessage:
                self._send(effect)  # type: ignore[arg-type]
            elif isinstance(effect, OpenLink):
                target = self._end_of(effect.address)
                if target is not None:
                    self._openings[effect.link] = _Opening(target, effect.hello)
                    self._try_open(effect.link)
                else:
                    self._clock.after(OPEN_RETRY * OPEN_TRIES, self._tired, effect.link)
            elif isinstance(effect, AcceptLink):
                self._accept(effect)
            elif isinstance(effect, RefuseLink):
                key = self._asked.pop(effect.ticket)
                datagram = ("refuse", key[1], key[2], int(effect.reason), effect.body)
                self._answers[key] = (datagram, self._clock.now + REFUSAL_MEMORY, None)
                self._network.send(self.index, key[0], datagram)
            elif isinstance(effect, CloseLink):
                self._close(effect)
            elif isinstance(effect, Inquire):
                target = self._end_of(effect.address)
                self._inquiries[effect.inquiry] = (-1 if target is None else target, effect.request, 0)
                self._try_ask(effect.inquiry)
            elif isinstance(effect, CandidatesWanted | PublishRecord | WithdrawRecord):
                self._directory(effect)

    def _send(self, effect: SendMessage) -> None:
        send, nonces, ends = self._network.send, self.nonce_of, self.end_at
        for link in effect.links:
            nonce = nonces.get(link)
            if nonce is not None:
                send(self.index, ends[link], ("message", nonce, effect.body))

    def _accept(self, effect: AcceptLink) -> None:
        key = self._asked.pop(effect.ticket)
        nonce = self._rng.getrandbits(64) if self._fresh_nonces else key[0] * 1_000_003 + self.index
        if not self._fresh_nonces and nonce in self.link_of:
            self.nonce_of.pop(self.link_of[nonce], None)
        self._enter(effect.link, nonce, key[0])
        datagram = ("accept", key[1], key[2], nonce, effect.reply)
        self._answers[key] = (datagram, float("inf"), nonce)
        self._network.send(self.index, key[0], datagram)

    def _close(self, effect: CloseLink) -> None:
        self._openings.pop(effect.link, None)
        nonce = self.nonce_of.get(effect.link)
        if nonce is None:
            return
        end = self.end_at[effect.link]
        self._forget(effect.link)
        for delay in CLOSE_COPIES:
            self._clock.after(delay, self._send_if_awake, end, ("close", nonce, int(effect.reason)))

    def drop(self, link: LinkId) -> None:
        """Lose a link as if the other end had reset it; the other end is not told."""
        self._forget(link)
        self.mesh.link_reset(link, now=self._clock.now)

    def _send_if_awake(self, end: int, datagram: tuple[Any, ...]) -> None:
        if self._is_awake():
            self._network.send(self.index, end, datagram)

    def _enter(self, link: LinkId, nonce: int, end: int) -> None:
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
            self._clock.after(OPEN_RETRY, self._try_open, link)
            return
        if opening.tries >= OPEN_TRIES:
            self._tired(link)
            return
        opening.tries += 1
        self._network.send(self.index, opening.target, ("open", self.life, link, opening.hello))
        self._clock.after(OPEN_RETRY, self._try_open, link)

    def _tired(self, link: LinkId) -> None:
        self._openings.pop(link, None)
        if self._is_awake() and link in self.mesh.pending:
            self.mesh.open_timed_out(link, now=self._clock.now)
            self.after_input()

    def _try_ask(self, inquiry: Inquiry) -> None:
        asked = self._inquiries.get(inquiry)
        if asked is None or not self._is_awake():
            return
        target, request, tries = asked
        if tries >= ASK_TRIES:
            del self._inquiries[inquiry]
            self.mesh.inquiry_timed_out(inquiry, now=self._clock.now)
            self.after_input()
            return
        self._inquiries[inquiry] = (target, request, tries + 1)
        if target >= 0:
            self._network.send(self.index, target, ("ask", self.life, inquiry, request))
        self._clock.after(ASK_RETRY, self._try_ask, inquiry)

    after_input: Callable[[], None]
    """Set by the simulation: run the effects, look at the events, arm the timer, check."""

    # Datagrams

    def receive(self, source: int, datagram: tuple[Any, ...]) -> None:
        kind = datagram[0]
        now = self._clock.now
        if kind == "message":
            link = self.link_of.get(datagram[1])
            if link is None:
                self._network.send(self.index, source, ("reset", datagram[1]))
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
            answer = self.mesh.answer_inquiry(datagram[3], self._address_of(source), now=now)
            if answer is not None:
                self._network.send(self.index, source, ("answer", datagram[1], datagram[2], answer))
        elif kind == "answer" and datagram[1] == self.life and self._inquiries.pop(datagram[2], None) is not None:
            self.mesh.inquiry_answered(datagram[2], datagram[3], now=now)

    def _on_open(self, source: int, datagram: tuple[Any, ...], now: float) -> None:
        key = (source, datagram[1], datagram[2])
        known = self._answers.get(key)
        if known is not None:
            answer, until, nonce = known
            if now < until and (nonce is None or nonce in self.link_of):
                self._network.send(self.index, source, answer)
                return
            del self._answers[key]
        self._tickets += 1
        ticket = JoinTicket(self._tickets)
        self._asked[ticket] = key
        self.mesh.receive_join(ticket, self._address_of(source), datagram[3], now=now)

    def _on_accept(self, source: int, datagram: tuple[Any, ...], now: float) -> None:
        _, life, link, nonce, reply = datagram
        if life == self.life and link in self._openings:
            del self._openings[link]
            self._enter(link, nonce, source)
            self.mesh.link_opened(link, reply, now=now)
        elif nonce not in self.link_of:
            self._network.send(self.index, source, ("reset", nonce))
