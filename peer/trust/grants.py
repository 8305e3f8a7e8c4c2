"""What a stream's owner signs for others: grants for subscribers and routers, and the policy that says who needs one.

A grant names one peer, one stream, what the peer may do, and until when. The policy says whether subscribers and
routers need grants, and whose grants are revoked; of two policies the one with the higher version counts. Both are
shown when a link is opened (`credentials`), and a policy also travels on links that are open. A root's grant, which its
record in the directory carries, is `dht.Grant`.

Bytes, in network order:

    grant        owner's public key 32, roles u8, expiry u32 (seconds since 1970), signature 64
                 signed: "skymesh grant v2\\0", peer id 20, roles, expiry, stream name
    policy       owner's public key 32, version u64, rules u8 (1 subscribers need grants, 2 routers do, then four bits:
                 the degree of the reference tree, less 2; 0: not said), count u16, revoked peer ids 20 each,
                 signature 64
                 signed: "skymesh policy v1\\0", length of the stream's name u8, name, everything before the signature
    credentials  items of kind u8, length u16, bytes; kinds: 1 grant, 2 policy, 3 a root's grant,
                 4 keys of roots that sign (`rootkeys`), 5 (empty): this peer receives withheld packets.
                 Others are skipped

As text: `skymesh-grant-v2:` and base64 of peer id, grant and stream name; `skymesh-policy-v1:` and base64 of the length
of the stream's name u8, stream name and policy.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final

from dht.identity import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Identity, id_text, is_signed_by, peer_id_of
from dht.ids import ID_BYTES, PeerId
from dht.streams import check_stream_name, owner_of_name

SUBSCRIBE: Final = 0x01
ROUTE: Final = 0x02
WITHHELD: Final = 0x04
"""May receive what roots withhold from others."""
ROLES: Final = {"subscriber": SUBSCRIBE, "router": SUBSCRIBE | ROUTE}

SUBSCRIBERS_NEED_GRANTS: Final = 0x01
ROUTERS_NEED_GRANTS: Final = 0x02
_DEGREE_AT: Final = 2
_DEGREE_BITS: Final = 0x0F << _DEGREE_AT
_RULES: Final = SUBSCRIBERS_NEED_GRANTS | ROUTERS_NEED_GRANTS | _DEGREE_BITS
MAX_TREE_DEGREE: Final = 17

MAX_REVOKED: Final = 128
"""So that a policy fits an opening. Ids whose grants have expired need not be listed any longer."""

_GRANT: Final = struct.Struct(f">{PUBLIC_KEY_BYTES}sBI{SIGNATURE_BYTES}s")
_POLICY: Final = struct.Struct(f">{PUBLIC_KEY_BYTES}sQBH")
_ITEM: Final = struct.Struct(">BH")
_GRANT_DOMAIN: Final = b"skymesh grant v2\0"
_POLICY_DOMAIN: Final = b"skymesh policy v1\0"
_GRANT_TEXT: Final = "skymesh-grant-v2:"
_POLICY_TEXT: Final = "skymesh-policy-v1:"
GRANT_ITEM: Final = 1
POLICY_ITEM: Final = 2
ROOT_GRANT_ITEM: Final = 3
ROOT_KEYS_ITEM: Final = 4
WITHHELD_ITEM: Final = 5


class MalformedCredentials(ValueError):
    """Bytes or text that are no grant, policy or credentials."""


@dataclass(frozen=True, slots=True)
class JoinGrant:
    """The owner's word that one peer may subscribe to, or route, one stream until a time."""

    stream: str
    peer_id: PeerId
    owner_key: bytes
    roles: int
    expires_at: int
    signature: bytes

    @classmethod
    def issue(cls, owner: Identity, *, stream: str, peer_id: PeerId, roles: int, expires_at: int) -> JoinGrant:
        _check_owner(owner, stream)
        signature = owner.sign(_grant_message(stream, peer_id, roles, expires_at))
        return cls(stream, peer_id, owner.public_key, roles, expires_at, signature)

    @property
    def owner(self) -> PeerId:
        return peer_id_of(self.owner_key)

    def is_genuine(self) -> bool:
        message = _grant_message(self.stream, self.peer_id, self.roles, self.expires_at)
        return is_signed_by(self.owner_key, self.signature, message)

    def encode(self) -> bytes:
        return _GRANT.pack(self.owner_key, self.roles, self.expires_at, self.signature)

    @classmethod
    def decode_untrusted(cls, data: bytes, *, stream: str, peer_id: PeerId) -> JoinGrant:
        """Not verified yet."""
        if len(data) != _GRANT.size:
            raise MalformedCredentials(f"a grant has {_GRANT.size} bytes, got {len(data)}")
        owner_key, roles, expires_at, signature = _GRANT.unpack(data)
        return cls(stream, peer_id, owner_key, roles, expires_at, signature)

    def to_text(self) -> str:
        body = self.peer_id + self.encode() + self.stream.encode("ascii")
        return _GRANT_TEXT + base64.b64encode(body).decode("ascii")

    @classmethod
    def from_text_untrusted(cls, text: str) -> JoinGrant:
        """The inverse, verified."""
        body = _from_text(text, _GRANT_TEXT, "grant for a subscriber or router")
        head, end = body[:ID_BYTES], ID_BYTES + _GRANT.size
        grant = cls.decode_untrusted(body[ID_BYTES:end], stream=_name(body[end:]), peer_id=PeerId(head))
        if not grant.is_genuine():
            raise MalformedCredentials("its signature is wrong")
        return grant


@dataclass(frozen=True, slots=True)
class Policy:
    """The owner's word about who may take part."""

    stream: str
    owner_key: bytes
    version: int
    rules: int
    revoked: tuple[PeerId, ...]
    signature: bytes

    @classmethod
    def issue(cls, owner: Identity, *, stream: str, version: int, rules: int, revoked: tuple[PeerId, ...]) -> Policy:
        _check_owner(owner, stream)
        if len(revoked) > MAX_REVOKED:
            raise ValueError(
                f"a policy can revoke {MAX_REVOKED} peers at most: leave out those whose grants have expired"
            )
        unsigned = cls(stream, owner.public_key, version, rules, revoked, b"")
        signature = owner.sign(unsigned._message())
        return cls(stream, owner.public_key, version, rules, revoked, signature)

    @property
    def needs_grants(self) -> bool:
        return bool(self.rules & (SUBSCRIBERS_NEED_GRANTS | ROUTERS_NEED_GRANTS))

    @property
    def tree_degree(self) -> int | None:
        """Of the reference tree, for peers that follow one; None: each by its own options."""
        said = (self.rules & _DEGREE_BITS) >> _DEGREE_AT
        return said + 2 if said else None

    @property
    def owner(self) -> PeerId:
        return peer_id_of(self.owner_key)

    @property
    def owner_text(self) -> str:
        return id_text(self.owner)

    def is_genuine(self) -> bool:
        return is_signed_by(self.owner_key, self.signature, self._message())

    def _message(self) -> bytes:
        name = self.stream.encode("ascii")
        return _POLICY_DOMAIN + bytes((len(name),)) + name + self._body()

    def _body(self) -> bytes:
        head = _POLICY.pack(self.owner_key, self.version, self.rules, len(self.revoked))
        return head + b"".join(self.revoked)

    def encode(self) -> bytes:
        return self._body() + self.signature

    @classmethod
    def decode_untrusted(cls, data: bytes, *, stream: str) -> Policy:
        """Not verified yet."""
        if len(data) < _POLICY.size:
            raise MalformedCredentials("a policy is longer")
        owner_key, version, rules, count = _POLICY.unpack_from(data)
        end = _POLICY.size + count * ID_BYTES
        if count > MAX_REVOKED or rules & ~_RULES or len(data) != end + SIGNATURE_BYTES:
            raise MalformedCredentials("not a policy that this version can read")
        revoked = tuple(PeerId(data[at : at + ID_BYTES]) for at in range(_POLICY.size, end, ID_BYTES))
        return cls(stream, owner_key, version, rules, revoked, data[end:])

    def to_text(self) -> str:
        name = self.stream.encode("ascii")
        return _POLICY_TEXT + base64.b64encode(bytes((len(name),)) + name + self.encode()).decode("ascii")

    @classmethod
    def from_text_untrusted(cls, text: str) -> Policy:
        """The inverse, verified."""
        body = _from_text(text, _POLICY_TEXT, "policy")
        end = 1 + body[0] if body else 0
        policy = cls.decode_untrusted(body[end:], stream=_name(body[1:end]))
        if not policy.is_genuine():
            raise MalformedCredentials("its signature is wrong")
        return policy


def with_tree_degree(rules: int, degree: int | None) -> int:
    """The rules of a policy, with another degree of the reference tree; None: with none."""
    if degree is not None and not 3 <= degree <= MAX_TREE_DEGREE:
        raise ValueError(f"the degree of a tree is 3 to {MAX_TREE_DEGREE}, got {degree}")
    return rules & ~_DEGREE_BITS | (0 if degree is None else (degree - 2) << _DEGREE_AT)


def encode_items(items: list[tuple[int, bytes]]) -> bytes:
    return b"".join(_ITEM.pack(kind, len(data)) + data for kind, data in items)


def decode_items_untrusted(data: bytes) -> dict[int, bytes]:
    """The first item of each kind."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if at + _ITEM.size > len(data):
            raise MalformedCredentials("credentials end within an item")
        kind, size = _ITEM.unpack_from(data, at)
        at += _ITEM.size
        if at + size > len(data):
            raise MalformedCredentials("credentials end within an item")
        found.setdefault(kind, data[at : at + size])
        at += size
    return found


def _grant_message(stream: str, peer_id: bytes, roles: int, expires_at: int) -> bytes:
    return _GRANT_DOMAIN + peer_id + struct.pack(">BI", roles, expires_at) + stream.encode("ascii")


def _check_owner(owner: Identity, stream: str) -> None:
    check_stream_name(stream)
    named = owner_of_name(stream)
    if named is not None and named != owner.peer_id:
        raise ValueError(f"the key {owner.fingerprint} does not own {stream}")


def _from_text(text: str, prefix: str, what: str) -> bytes:
    text = text.strip()
    if not text.startswith(prefix):
        raise MalformedCredentials(f"this is not a {what}, which begins with {prefix}")
    try:
        return base64.b64decode(text.removeprefix(prefix), validate=True)
    except (binascii.Error, ValueError):
        raise MalformedCredentials(f"the {what} is damaged") from None


def _name(data: bytes) -> str:
    try:
        return check_stream_name(data.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        raise MalformedCredentials("it names no stream") from None
