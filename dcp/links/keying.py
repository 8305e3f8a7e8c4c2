"""How two peers agree on the keys of an encrypted link, and each proves which peer it is.

    child                                             parent
    REQUEST (mode: I can encrypt)         ->
                                          <-          CHALLENGE (cookie; the ciphers that I have)
    KEYED REQUEST (cookie, ephemeral      ->
      X25519 key, Ed25519 key, signature)
                                          <-          KEYED ACCEPT (the same of the parent, cipher chosen)

The parent keeps and computes nothing before its cookie has come back. The child signs all of its request. The parent
signs its accept and the *binding*: a hash of everything that both ends must agree on, among it what each end offered.
The keys are derived from the X25519 secret and the binding, so two ends with different views share no key: whoever
sits between them can drop datagrams, and nothing else.

Each end may add credentials to what it signs (grants, say), which dcp only carries: after hello and reply, followed by
their length in 2 bytes.

Old peers neither say nor understand any of this; with them a link is sealed as before, unless this end requires
encryption, or has had an encrypted link with that address before. A request that came without keys from a child that
can encrypt, to a parent that can, was tampered with, and is refused.

Ephemeral keys come from the hub's random source, which must be `random.SystemRandom` outside simulations.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dcp import handshake
from dcp.errors import MalformedDatagram
from dcp.handshake import Accept, KeyShare, OpenRequest
from dcp.links.address import SocketAddress
from dcp.links.secrecy import AES_128_GCM, CHACHA20_POLY1305, SUITES, IncomingCipher, OutgoingCipher

OFF: Final = "off"
PREFER: Final = "prefer"
REQUIRE: Final = "require"
ENCRYPTIONS: Final = (PREFER, REQUIRE, OFF)

MAX_REMEMBERED: Final = 4_096
REMEMBERED_SECONDS: Final = 3_600.0

_REQUEST_DOMAIN: Final = b"skymesh dcp1 request\0"
_ACCEPT_DOMAIN: Final = b"skymesh dcp1 accept\0"
_BINDING_DOMAIN: Final = b"skymesh dcp1 binding\0"
_NO_SIGNATURE: Final = bytes(64)


class LinkIdentity(Protocol):
    """Who this peer is to the other ends of its links: an Ed25519 key pair."""

    @property
    def public_key(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...


class Ciphers(NamedTuple):
    incoming: IncomingCipher
    outgoing: OutgoingCipher


class Keying:
    """What one hub does about keys: its identity, its policy, and with which addresses it has had encrypted links."""

    def __init__(self, identity: LinkIdentity | None, encryption: str, rng: random.Random) -> None:
        """Without an identity nothing is encrypted."""
        if encryption not in ENCRYPTIONS:
            raise ValueError(f"encryption must be one of {', '.join(ENCRYPTIONS)}, got {encryption!r}")
        if identity is None and encryption == REQUIRE:
            raise ValueError("encryption is required, but there is no identity to sign with")
        self._identity = identity
        self.suites = 0 if identity is None or encryption == OFF else SUITES
        """The ciphers that this end offers; 0: none."""
        self.requires = encryption == REQUIRE
        self.credentials: Callable[[], bytes] = lambda: b""
        """What this end shows the other when a link is opened."""
        self._rng = rng
        self._encrypted: OrderedDict[SocketAddress, float] = OrderedDict()

    def new_key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self._rng.randbytes(32))

    # --- what was encrypted once stays so -----------------------------------------------------------------------------

    def remember(self, address: SocketAddress, now: float) -> None:
        """A link to this parent was encrypted."""
        self._encrypted[address] = now
        self._encrypted.move_to_end(address)
        if len(self._encrypted) > MAX_REMEMBERED:
            self._encrypted.popitem(last=False)

    def must_encrypt(self, address: SocketAddress, now: float) -> bool:
        """Whether a link to this parent may not go without: it could encrypt an hour ago, and still can."""
        at = self._encrypted.get(address)
        return self.requires or (at is not None and now - at < REMEMBERED_SECONDS)

    # --- the child's side ---------------------------------------------------------------------------------------------

    def keyed(self, request: OpenRequest, key: X25519PrivateKey) -> OpenRequest:
        """The request with this end's keys, credentials and signature."""
        assert self._identity is not None
        request = request._replace(hello=with_credentials(request.hello, self.credentials()))
        public = self._identity.public_key
        share = KeyShare(self.suites, key.public_key().public_bytes_raw(), public, _NO_SIGNATURE)
        signature = self._identity.sign(_request_message(request._replace(share=share)))
        return request._replace(share=share._replace(signature=signature))

    def ciphers_of_accept_untrusted(self, request: OpenRequest, accept: Accept, key: X25519PrivateKey) -> Ciphers:
        """The child's, when the parent has signed what both ends said."""
        ours, theirs = request.share, accept.share
        assert ours is not None
        if theirs is None:
            raise MalformedDatagram("cleartext", "an accept without keys")
        if theirs.suites not in (AES_128_GCM, CHACHA20_POLY1305) or not theirs.suites & ours.suites:
            raise MalformedDatagram("cipher", "not one that was offered")
        bound = binding(request, accept)
        _verify_untrusted(theirs, _accept_message(bound, accept))
        to_child, to_parent = _secrets_untrusted(key, theirs.ephemeral, bound)
        suite = theirs.suites
        return Ciphers(IncomingCipher(suite, to_child), OutgoingCipher(suite, to_parent))

    # --- the parent's side --------------------------------------------------------------------------------------------

    def share_for(self, request: OpenRequest, key: X25519PrivateKey) -> KeyShare:
        """This end's keys and the cipher chosen, not signed yet."""
        assert self._identity is not None
        assert request.share is not None
        suite = AES_128_GCM if request.share.suites & self.suites & AES_128_GCM else CHACHA20_POLY1305
        return KeyShare(suite, key.public_key().public_bytes_raw(), self._identity.public_key, _NO_SIGNATURE)

    def signed(self, request: OpenRequest, accept: Accept) -> Accept:
        """The accept, whose share is `share_for`'s, with credentials and a signature: it differs each time."""
        assert self._identity is not None
        share = accept.share
        assert share is not None
        accept = accept._replace(reply=with_credentials(accept.reply, self.credentials()))
        signature = self._identity.sign(_accept_message(binding(request, accept), accept))
        return accept._replace(share=share._replace(signature=signature))


def ciphers_of_request_untrusted(request: OpenRequest, accept: Accept, key: X25519PrivateKey) -> Ciphers:
    """The parent's, for a child whose request `check_request_untrusted` has passed."""
    assert request.share is not None
    assert accept.share is not None
    to_child, to_parent = _secrets_untrusted(key, request.share.ephemeral, binding(request, accept))
    suite = accept.share.suites
    return Ciphers(IncomingCipher(suite, to_parent), OutgoingCipher(suite, to_child))


def check_request_untrusted(request: OpenRequest) -> None:
    """Whether the child that a request names has signed all of it."""
    assert request.share is not None
    if not request.share.suites & SUITES:
        raise MalformedDatagram("cipher", "none that is known here")
    _verify_untrusted(request.share, _request_message(request))


def with_credentials(body: bytes, credentials: bytes) -> bytes:
    return body + credentials + len(credentials).to_bytes(2, "big")


def split_untrusted(body: bytes) -> tuple[bytes, bytes]:
    """The hello or reply, and the credentials behind it."""
    size = int.from_bytes(body[-2:], "big")
    if len(body) < 2 + size:
        raise MalformedDatagram("short", "credentials")
    end = len(body) - 2 - size
    return body[:end], body[end:-2]


def binding(request: OpenRequest, accept: Accept) -> bytes:
    """What both ends must agree on. Not what changes when a request or an accept is repeated."""
    ours, theirs = request.share, accept.share
    assert ours is not None
    assert theirs is not None
    digest = hashlib.sha256(_BINDING_DOMAIN)
    digest.update(bytes((request.mode, ours.suites, theirs.suites, len(request.stream))))
    digest.update(request.stream)
    digest.update(request.link.to_bytes(4, "big") + accept.link.to_bytes(4, "big"))
    for part in (request.nonce, accept.parent_nonce, ours.ephemeral, theirs.ephemeral, ours.identity, theirs.identity):
        digest.update(part)
    return digest.digest()


def _request_message(request: OpenRequest) -> bytes:
    share = request.share
    assert share is not None
    _, body = handshake.encode_opening(request._replace(share=None))
    return _REQUEST_DOMAIN + bytes((share.suites,)) + share.ephemeral + share.identity + body


def _accept_message(bound: bytes, accept: Accept) -> bytes:
    _, body = handshake.encode_opening(accept._replace(share=None))
    return _ACCEPT_DOMAIN + bound + body


def _verify_untrusted(share: KeyShare, message: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(share.identity).verify(share.signature, message)
    except (InvalidSignature, ValueError):
        raise MalformedDatagram("signature", "opening") from None


def _secrets_untrusted(key: X25519PrivateKey, ephemeral: bytes, bound: bytes) -> tuple[bytes, bytes]:
    """Of the direction to the child, and of the one to the parent."""
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(ephemeral))
    except ValueError:  # a point of low order: the secret would be known to everybody
        raise MalformedDatagram("key", "opening") from None
    secret = hmac.digest(bound, shared, hashlib.sha256)
    return (
        hmac.digest(secret, b"dcp1 to child", hashlib.sha256),
        hmac.digest(secret, b"dcp1 to parent", hashlib.sha256),
    )
