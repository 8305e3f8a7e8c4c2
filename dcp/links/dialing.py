"""The child's side of opening a link, and of noticing that it has ended.

A request goes out again and again until the parent answers: first with a challenge, whose cookie is echoed, then with
an accept or a refusal. After that, a link that is silent for too long is given up; if somebody says that the other end
does not know the link, the parent is asked, and the link is lost if nothing valid comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dcp import control, handshake
from dcp.config import Config
from dcp.control import Reason
from dcp.errors import MalformedDatagram
from dcp.handshake import Start
from dcp.kinds import StreamKind
from dcp.links.keying import Ciphers, Keying, split_untrusted
from dcp.links.link import SocketAddress, clock_of
from dcp.links.sealing import wanted_sealing
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.links.ways import Ways

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

REQUEST_INTERVAL = 0.1
NO_ENCRYPTION_THERE = b"encryption is required here, and that peer has none, or somebody on the path hides it"


class Wish(NamedTuple):
    """What a request asks for: it may change between two of them."""

    epoch: int
    query: bytes
    start: Start
    position: int
    room: int


class Dialing:
    def __init__(
        self,
        stream: str,
        kind: StreamKind,
        config: Config,
        uplinks: Uplinks,
        ways: Ways,
        keying: Keying,
        *,
        send_open: Callable[[handshake.Opening, SocketAddress], None],
        wish: Callable[[], Wish],
        accepted: Callable[[Uplink, handshake.Accept, float], None],
    ) -> None:
        self.resets = 0
        """Links that were lost because the other end did not know them."""
        self._stream = stream.encode()
        self._sealing = wanted_sealing(config)
        groups = handshake.MODE_GROUPS if config.multicast and not kind.is_dense else 0
        encrypts = handshake.MODE_ENCRYPTS if keying.suites else 0
        self._mode = kind.mode | self._sealing.mode | groups | encrypts
        self._config = config
        self._uplinks = uplinks
        self._ways = ways
        self._keying = keying
        self._send_open = send_open
        self._wish = wish
        self._accepted = accepted

    def send_request(self, link: Uplink, now: float) -> None:
        wish = self._wish()
        request = handshake.OpenRequest(
            mode=self._mode,
            link=link.id,
            nonce=link.nonce,
            cookie=link.cookie,
            epoch=wish.epoch,
            start=wish.start,
            position=wish.position,
            room=wish.room,
            clock=clock_of(now),
            stream=self._stream,
            query=wish.query,
            hello=link.hello,
        )
        if link.key is not None:
            request = link.request = self._keying.keyed(request, link.key)
        has_answered = link.cookie != handshake.NO_COOKIE
        if not has_answered:
            link.asked = self._ways.ask(link.address, now)
        for address in (link.address,) if has_answered else link.asked:
            self._send_open(request, address)
        link.request_at = now + REQUEST_INTERVAL * 2 ** min(link.requests, 2)
        if not has_answered and (further_at := self._ways.next_at(link.address, now)) is not None:
            link.request_at = min(link.request_at, further_at)
        link.requests += 1

    def receive_answer(
        self, message: handshake.Challenge | handshake.Accept | handshake.Refuse, address: SocketAddress, now: float
    ) -> bool:
        """An answer to one of our openings; False when it is not ours. Raises MalformedDatagram."""
        link = self._uplinks.opened_with(message.nonce, address)
        if link is None:
            return False
        if link.parent.up:
            return True
        has_answered = link.cookie != handshake.NO_COOKIE
        if has_answered and address != link.address:
            return True  # over another carrier, and later: the first answer has decided
        if isinstance(message, handshake.Accept):
            if link.key is not None:
                ciphers = self._ciphers_untrusted(link, link.key, message)
                if ciphers is None:
                    return True
                reply, link.credentials = split_untrusted(message.reply)
                link.encrypt(ciphers, message.share.identity if message.share is not None else b"")
                message = message._replace(reply=reply)
                link.key = None
                self._keying.remember(link.dialled, now)
            elif message.share is not None:
                raise MalformedDatagram("key", "not asked for")
            elif self._keying.must_encrypt(link.dialled, now):
                raise MalformedDatagram("cleartext", "an accept without keys")
        link.address = address
        self._ways.answered(address, now)
        if isinstance(message, handshake.Challenge):
            if link.cookie != message.cookie:
                self._take_cookie(link, message, now)
        elif isinstance(message, handshake.Refuse):
            self._uplinks.lose(link, message.reason, message.body)
        else:
            self._bind(link, message, now)
            self._accepted(link, message, now)
        return True

    def _take_cookie(self, link: Uplink, challenge: handshake.Challenge, now: float) -> None:
        """Ask again, with our keys if the parent can encrypt."""
        keying = self._keying
        link.cookie = challenge.cookie
        link.requests = 0
        if challenge.suites & keying.suites:
            link.key = link.key or keying.new_key()
        elif keying.must_encrypt(link.dialled, now):
            self._uplinks.lose(link, Reason.ENCRYPTION, NO_ENCRYPTION_THERE)
            return
        self.send_request(link, now)

    def _ciphers_untrusted(self, link: Uplink, key: X25519PrivateKey, accept: handshake.Accept) -> Ciphers | None:
        """None: it was signed, but by another peer than the one that we asked for."""
        assert link.request is not None
        ciphers = self._keying.ciphers_of_accept_untrusted(link.request, accept, key)
        assert accept.share is not None
        if link.is_expected is not None and not link.is_expected(accept.share.identity):
            self._uplinks.lose(link, Reason.OTHER_PEER, accept.share.identity)
            return None
        return ciphers

    def _bind(self, link: Uplink, accept: handshake.Accept, now: float) -> None:
        """The link is open: from now on its datagrams carry the parent's id and our seal."""
        link.remote_id = accept.link
        link.epoch = accept.epoch
        if not link.is_encrypted:
            link.seal_in, link.seal_out = self._sealing.seals(link.nonce, accept.parent_nonce, is_child=True)
        link.heard_at = now
        if accept.echo:
            elapsed = (clock_of(now) - accept.echo) & 0xFFFFFFFF
            if elapsed < 1 << 20:
                link.rtt.sample(elapsed * control.TICK)

    def doubt(self, link: Uplink, now: float) -> bool:
        """Somebody says that the parent does not know this link. Whether it is to be asked now."""
        if not link.parent.up or link.reset_at is not None:
            return False
        link.reset_at = now + 3 * link.rtt.timeout(self._config.min_rto, self._config.max_rto)
        return True

    def look_after(self, link: Uplink, now: float) -> bool:
        """The timers of one link; True when it is time to tell the parent again where we start."""
        config = self._config
        if not link.parent.up:
            if now - link.opened_at > config.open_timeout:
                self._uplinks.lose(link, Reason.TIMED_OUT)
            elif now >= link.request_at:
                self.send_request(link, now)
        elif link.reset_at is not None and now >= link.reset_at:
            self.resets += 1
            self._uplinks.lose(link, Reason.RESET)
        elif now - link.heard_at > config.dead_after:
            self._uplinks.give_up(link, Reason.SILENT)
        else:
            return link.confirm_at is not None and now >= link.confirm_at
        return False
