"""Stream names, and who may call itself a root of one.

`asdi` is open: its owner is the holder of the key pinned on first use. `asdi.<fingerprint>` names its owner:
only a root that holds that owner's grant (or is the owner) counts.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass

from dht.errors import RecordRejected, Refusal
from dht.identity import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Identity, is_signed_by, peer_id_of
from dht.identity import parse_id_text as parse_fingerprint
from dht.ids import ID_BYTES, PeerId

MAX_STREAM_BYTES = 64
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,29}[a-z0-9])?(?:\.[a-z2-7]{32})?")
_DOMAIN = b"skymesh grant v1\0"
_TEXT_PREFIX = "skymesh-grant-v1:"
_GRANT = struct.Struct(f">{PUBLIC_KEY_BYTES}sI{SIGNATURE_BYTES}s")
GRANT_BYTES = _GRANT.size  # 100: the stream and the peer are those of the record around it


def check_stream_name(stream: str) -> str:
    """The name itself, or ValueError."""
    if not _NAME.fullmatch(stream):
        raise ValueError(
            f"{stream!r} is not a stream name: use 1 to 31 of a-z, 0-9 and '-', then optionally '.' and a fingerprint"
        )
    return stream


def owner_of_name(stream: str) -> PeerId | None:
    """The owner that a self-certifying name demands; None for an open name."""
    _, dot, fingerprint = stream.partition(".")
    return parse_fingerprint(fingerprint) if dot else None


@dataclass(frozen=True, slots=True)
class Grant:
    """The owner's word that one peer is a root of one stream until a time."""

    stream: str
    peer_id: PeerId
    owner_key: bytes
    expires_at: int
    signature: bytes

    @property
    def owner(self) -> PeerId:
        return peer_id_of(self.owner_key)

    @classmethod
    def issue(cls, owner: Identity, *, stream: str, peer_id: PeerId, expires_at: int) -> Grant:
        check_stream_name(stream)
        named = owner_of_name(stream)
        if named is not None and named != owner.peer_id:
            raise ValueError(f"the key {owner.fingerprint} does not own {stream}")
        signature = owner.sign(_signed_bytes(stream, peer_id, expires_at))
        return cls(stream, peer_id, owner.public_key, expires_at, signature)

    def is_genuine(self) -> bool:
        return is_signed_by(self.owner_key, self.signature, _signed_bytes(self.stream, self.peer_id, self.expires_at))

    def encode(self) -> bytes:
        return _GRANT.pack(self.owner_key, self.expires_at, self.signature)

    @classmethod
    def decode(cls, data: bytes, *, stream: str, peer_id: PeerId) -> Grant:
        """From the 100 bytes inside a record; not verified yet."""
        owner_key, expires_at, signature = _GRANT.unpack(data)
        return cls(stream, peer_id, owner_key, expires_at, signature)

    def to_text(self) -> str:
        """One line for a file or a command line."""
        body = self.peer_id + self.encode() + self.stream.encode("ascii")
        return _TEXT_PREFIX + base64.b64encode(body).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Grant:
        """The inverse of `to_text`, verified; ValueError or RecordRejected for anything else."""
        text = text.strip()
        if not text.startswith(_TEXT_PREFIX):
            raise ValueError("this is not a grant: it should begin with " + _TEXT_PREFIX)
        body = base64.b64decode(text.removeprefix(_TEXT_PREFIX), validate=True)
        if not ID_BYTES + GRANT_BYTES < len(body) <= ID_BYTES + GRANT_BYTES + MAX_STREAM_BYTES:
            raise ValueError("this grant is truncated or damaged")
        stream = check_stream_name(body[ID_BYTES + GRANT_BYTES :].decode("ascii"))
        grant = cls.decode(
            body[ID_BYTES : ID_BYTES + GRANT_BYTES], stream=stream, peer_id=PeerId(bytes(body[:ID_BYTES]))
        )
        if grant.to_text() != text:
            raise ValueError("this grant is damaged")  # base64 has bits to spare at its end
        if not grant.is_genuine():
            raise RecordRejected(Refusal.BAD_GRANT, "the owner did not sign it")
        return grant


def _signed_bytes(stream: str, peer_id: PeerId, expires_at: int) -> bytes:
    return _DOMAIN + peer_id + struct.pack(">I", expires_at) + stream.encode("ascii")
