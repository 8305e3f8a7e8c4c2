"""PeerRecord: what a peer says of itself, as exact bytes with a signature over them.

Fixed part, network order (82 bytes):
    format 1 | public key 32 | flags 1 | version 8 | expiry 4 | level 4 | hops 2 | children 2 | capacity 2
    free slots for new children 2 | free slots for repairs 2 | wanted parents 1 | held parents 1 | send rate 4
    query hash 16
then length-prefixed: stream 1+n | query text 1+n | addresses 1+n*(1+4|16+2) | grant 100 when flagged | signature 64.

The signature is over a domain prefix and every byte before it. Bytes are verified before anything in them is believed,
and one record has one encoding: unknown flags and trailing bytes are refused, not skipped.
"""

from __future__ import annotations

import enum
import hashlib
import ipaddress
import struct
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from dht.errors import RecordRejected, Refusal
from dht.identity import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Identity, is_signed_by, peer_id_of
from dht.ids import PeerId
from dht.streams import GRANT_BYTES, MAX_STREAM_BYTES, Grant, check_stream_name, owner_of_name

Address = tuple[str, int]

RECORD_FORMAT = 0x01
MAX_RECORD_BYTES = 512  # two of the largest still fit one answer beside eight IPv6 contacts
MAX_QUERY_TEXT_BYTES = 120  # a longer query is published only as its hash
MAX_ADDRESSES = 4  # IPv4, IPv6, and one more of each for a host on two networks
QUERY_HASH_BYTES = 16
MAX_LIFETIME = 600.0  # the longest lifetime a record may have: what a dead peer haunts the mesh at most
CLOCK_SKEW = 60.0  # how far two honest clocks may differ before records are refused

_DOMAIN = b"skymesh peer record v1\0"
_FIXED = struct.Struct(f">B{PUBLIC_KEY_BYTES}sBQIIHHHHHBBI{QUERY_HASH_BYTES}s")
_EXPIRY_OFFSET = 1 + PUBLIC_KEY_BYTES + 1 + 8
_MIN_RECORD_BYTES = _FIXED.size + 3 + SIGNATURE_BYTES
_ROLE_MASK, _WITHDRAWN, _HAS_GRANT, _HAS_QUERY, _SIGNS = 0x03, 0x04, 0x08, 0x10, 0x20
_KNOWN_FLAGS = _ROLE_MASK | _WITHDRAWN | _HAS_GRANT | _HAS_QUERY | _SIGNS


class Role(enum.IntEnum):
    LEAF = 0
    ROUTER = 1
    ROOT = 2


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """A query as others see it: its hash always, its canonical text when that is short."""

    hash: bytes
    text: str | None = None

    @classmethod
    def of(cls, canonical: str) -> QuerySummary:
        if not canonical:
            raise ValueError("query must not be empty; use `query=None` for none")
        digest = hashlib.sha256(b"skymesh query\0" + canonical.encode("utf-8")).digest()[:QUERY_HASH_BYTES]
        short = len(canonical.encode("utf-8")) <= MAX_QUERY_TEXT_BYTES
        return cls(digest, canonical if short else None)


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """One peer's word about itself. `version` and `expires_at` are set by `stamped`, when it is published."""

    stream: str
    peer_id: PeerId
    addresses: tuple[Address, ...]
    role: Role = Role.LEAF
    level: int = 0
    hops: int = 0
    children: int = 0
    capacity: int = 0
    free_slots: int = 0  # room for new children
    free_repair_slots: int = 0  # room kept for peers that lost a parent
    wanted_parents: int = 0  # the resilience it asks for
    held_parents: int = 0  # and what it has
    send_rate: int = 0  # bytes per second
    query: QuerySummary | None = None
    grant: Grant | None = None
    withdrawn: bool = False
    signs: bool = False  # a root that signs its packets: unsigned ones are forged
    version: int = 0
    expires_at: int = 0  # seconds since 1970
    public_key: bytes = field(default=b"", repr=False)

    @property
    def has_room(self) -> bool:
        return self.free_slots > 0 or self.free_repair_slots > 0

    @property
    def owner(self) -> PeerId:
        """Whose stream this peer is a root of: the grant's owner, or itself when nobody vouched for it."""
        return self.grant.owner if self.grant is not None else self.peer_id

    def stamped(self, *, version: int, expires_at: int) -> PeerRecord:
        return replace(self, version=version, expires_at=expires_at)

    def is_expired(self, now: float) -> bool:
        return self.expires_at <= now


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """A record together with the exact bytes that were signed, the only form that travels."""

    record: PeerRecord
    wire: bytes


def sign_record(record: PeerRecord, identity: Identity) -> SignedRecord:
    """Encode and sign; ValueError when a field does not fit or the record is not this identity's."""
    if record.peer_id != identity.peer_id:
        raise ValueError("a record must be signed by the peer that it describes")
    check_stream_name(record.stream)
    if record.role is Role.ROOT:
        check_root(record)
    flags = int(record.role)
    flags |= _WITHDRAWN if record.withdrawn else 0
    flags |= _HAS_GRANT if record.grant is not None else 0
    flags |= _HAS_QUERY if record.query is not None else 0
    flags |= _SIGNS if record.signs else 0
    try:
        fixed = _FIXED.pack(
            RECORD_FORMAT,
            identity.public_key,
            flags,
            record.version,
            record.expires_at,
            record.level,
            record.hops,
            record.children,
            record.capacity,
            record.free_slots,
            record.free_repair_slots,
            record.wanted_parents,
            record.held_parents,
            record.send_rate,
            record.query.hash if record.query is not None else bytes(QUERY_HASH_BYTES),
        )
    except struct.error as exc:
        raise ValueError(f"record field out of range: {exc}") from exc
    if not 1 <= len(record.addresses) <= MAX_ADDRESSES:
        raise ValueError(f"a record must have 1 to {MAX_ADDRESSES} addresses, got {len(record.addresses)}")
    text = (record.query.text or "") if record.query is not None else ""
    payload = b"".join(
        (
            fixed,
            _prefixed(record.stream.encode("ascii"), MAX_STREAM_BYTES),
            _prefixed(text.encode("utf-8"), MAX_QUERY_TEXT_BYTES),
            bytes([len(record.addresses)]),
            *(_encode_address(address) for address in record.addresses),
            record.grant.encode() if record.grant is not None else b"",
        )
    )
    wire = payload + identity.sign(_DOMAIN + payload)
    return SignedRecord(replace(record, public_key=identity.public_key), wire)


def check_root(record: PeerRecord) -> None:
    """A root of a self-certifying stream is the owner, or holds the owner's grant; RecordRejected otherwise."""
    wanted = owner_of_name(record.stream)
    if wanted is not None and record.owner != wanted:
        raise RecordRejected(Refusal.NO_GRANT, f"not vouched for by the owner of {record.stream}")
    grant = record.grant
    if grant is not None and (grant.stream, grant.peer_id) != (record.stream, record.peer_id):
        raise RecordRejected(Refusal.BAD_GRANT, "issued for another stream or peer")


class RecordVerifier:
    """Bytes -> SignedRecord, or RecordRejected. Remembers what it verified, since replicas send the same bytes.

    A signature costs some 0.3 ms; a lookup brings each record from up to k replicas.
    """

    def __init__(self, *, max_remembered: int = 4096) -> None:
        self._max_remembered = max_remembered
        self._verified: OrderedDict[bytes, SignedRecord] = OrderedDict()

    def verify(self, wire: bytes, *, now: float, any_age: bool = False) -> SignedRecord:
        """`any_age` skips the checks against the clock: for tools that show what was refused."""
        if len(wire) > MAX_RECORD_BYTES:
            raise RecordRejected(Refusal.TOO_LARGE, f"{len(wire)} bytes")
        if len(wire) < _MIN_RECORD_BYTES or wire[0] != RECORD_FORMAT:
            raise RecordRejected(Refusal.MALFORMED, "not a record")
        if not any_age:
            # The cheap question first: a flood of old records must not buy signature checks.
            (expires_at,) = struct.unpack_from(">I", wire, _EXPIRY_OFFSET)
            if expires_at <= now:
                raise RecordRejected(Refusal.EXPIRED, f"{now - expires_at:.0f} s ago")
            if expires_at > now + MAX_LIFETIME + CLOCK_SKEW:
                raise RecordRejected(Refusal.TOO_LONG_LIVED, f"expires in {expires_at - now:.0f} s; check the clocks")
        known = self._verified.get(wire)
        if known is None:
            known = SignedRecord(_decode_verified(wire), wire)
            self._verified[wire] = known
            if len(self._verified) > self._max_remembered:
                self._verified.popitem(last=False)
        else:
            self._verified.move_to_end(wire)
        grant = known.record.grant
        if grant is not None and not any_age and grant.expires_at <= now:
            raise RecordRejected(Refusal.BAD_GRANT, "the grant has expired")
        return known


def _decode_verified(wire: bytes) -> PeerRecord:
    public_key = wire[1 : 1 + PUBLIC_KEY_BYTES]
    payload, signature = wire[:-SIGNATURE_BYTES], wire[-SIGNATURE_BYTES:]
    if not is_signed_by(public_key, signature, _DOMAIN + payload):
        raise RecordRejected(Refusal.BAD_SIGNATURE)
    try:
        record = _parse(payload, public_key)
    except (ValueError, struct.error, IndexError) as exc:
        raise RecordRejected(Refusal.MALFORMED, str(exc)) from exc
    if record.grant is not None and not record.grant.is_genuine():
        raise RecordRejected(Refusal.BAD_GRANT, "the owner did not sign it")
    if record.role is Role.ROOT:
        check_root(record)
    return record


def _parse(payload: bytes, public_key: bytes) -> PeerRecord:
    (_, _, flags, version, expires_at, *numbers, query_hash) = _FIXED.unpack_from(payload)
    level, hops, children, capacity, free, repair, wanted, held, rate = numbers
    if flags & ~_KNOWN_FLAGS:
        raise ValueError(f"unknown flags {flags:#04x}")
    offset = _FIXED.size
    stream_bytes, offset = _take(payload, offset, MAX_STREAM_BYTES)
    stream = check_stream_name(stream_bytes.decode("ascii"))
    text_bytes, offset = _take(payload, offset, MAX_QUERY_TEXT_BYTES)
    query = _query(bool(flags & _HAS_QUERY), query_hash, text_bytes)
    count = payload[offset]
    offset += 1
    if not 1 <= count <= MAX_ADDRESSES:
        raise ValueError(f"{count} addresses")
    addresses = []
    for _ in range(count):
        address, offset = _take_address(payload, offset)
        addresses.append(address)
    peer_id = peer_id_of(public_key)
    grant = None
    if flags & _HAS_GRANT:
        grant = Grant.decode(payload[offset : offset + GRANT_BYTES], stream=stream, peer_id=peer_id)
        offset += GRANT_BYTES
    if offset != len(payload):
        raise ValueError(f"{len(payload) - offset} trailing bytes")
    return PeerRecord(
        stream=stream,
        peer_id=peer_id,
        addresses=tuple(addresses),
        role=Role(flags & _ROLE_MASK),
        level=level,
        hops=hops,
        children=children,
        capacity=capacity,
        free_slots=free,
        free_repair_slots=repair,
        wanted_parents=wanted,
        held_parents=held,
        send_rate=rate,
        query=query,
        grant=grant,
        withdrawn=bool(flags & _WITHDRAWN),
        signs=bool(flags & _SIGNS),
        version=version,
        expires_at=expires_at,
        public_key=public_key,
    )


def _query(present: bool, query_hash: bytes, text_bytes: bytes) -> QuerySummary | None:
    if not present:
        if text_bytes or any(query_hash):
            raise ValueError("query without its flag")
        return None
    if not text_bytes:
        return QuerySummary(query_hash)
    summary = QuerySummary.of(text_bytes.decode("utf-8"))
    if summary.hash != query_hash:
        raise ValueError("the query's hash does not match its text")
    return summary


def _prefixed(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes, maximum {limit}")
    return bytes([len(data)]) + data


def _take(payload: bytes, offset: int, limit: int) -> tuple[bytes, int]:
    length = payload[offset]
    end = offset + 1 + length
    if length > limit or end > len(payload):
        raise ValueError("length exceeds its limit or the data")
    return payload[offset + 1 : end], end


def _encode_address(address: Address) -> bytes:
    host, port = address
    ip = ipaddress.ip_address(host)
    if not 1 <= port <= 0xFFFF:
        raise ValueError(f"port {port}")
    return bytes([ip.version]) + ip.packed + struct.pack(">H", port)


def _take_address(payload: bytes, offset: int) -> tuple[Address, int]:
    size = {4: 4, 6: 16}.get(payload[offset])
    if size is None:
        raise ValueError("address is neither IPv4 nor IPv6")
    end = offset + 1 + size
    ip = ipaddress.ip_address(payload[offset + 1 : end])
    (port,) = struct.unpack_from(">H", payload, end)
    if not port:
        raise ValueError("port 0")
    return (str(ip), port), end + 2
