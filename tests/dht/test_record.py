"""PeerRecord: exact bytes, signature, and everything that must be refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dht.errors import RecordRejected, Refusal
from dht.record import (
    CLOCK_SKEW,
    MAX_LIFETIME,
    MAX_RECORD_BYTES,
    PeerRecord,
    QuerySummary,
    RecordVerifier,
    Role,
    sign_record,
)
from dht.streams import Grant
from tests.dht.build import NOW, identity, record_of, signed

# The same bytes stand in docs/dht.md. Ed25519 is deterministic, so they never change while the format does not.
GOLDEN = bytes.fromhex(
    "01"  # format
    "7422b9887598068e32c4448a949adb290d0f4e35b9e01b0ee5f1a1e600fe2674"  # public key
    "11"  # flags: router, has a query
    "0000000000000007"  # version
    "6b49d2b4"  # expiry
    "00000300"  # level
    "0001000200060003000102020000c350"  # hops, children, capacity, free, repair, wanted, held, send rate
    "6ac310c0ec008c5e72fbd49df9816ab9"  # hash of the query
    "0461736469"  # asdi
    "112f2f666c696768745b616c743e3330305d"  # the query's text, prefixed with its length
    "0104c0000207125c"  # one address: IPv4, 192.0.2.7, port 4700
    "1caf486ee74e2b10e457ed65c72ee6b4447ab74f020e41f55ab53865ab6ec367"  # signature
    "8d1aaf7b03872d31eea4188d9d1cd004e14c543f2f33600a700dbcf8e48cfb08"
)


def golden_record() -> PeerRecord:
    return record_of(
        identity(2),
        level=768,
        hops=1,
        children=2,
        capacity=6,
        free_slots=3,
        free_repair_slots=1,
        wanted_parents=2,
        held_parents=2,
        send_rate=50_000,
        query=QuerySummary.of("//flight[alt>300]"),
        version=7,
    )


addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4).map(str), st.integers(1, 65535)),
    st.tuples(st.ip_addresses(v=6).map(str), st.integers(1, 65535)),
)
u8, u16, u32 = st.integers(0, 255), st.integers(0, 65535), st.integers(0, 2**32 - 1)
queries = st.none() | st.text(min_size=1, max_size=200).map(QuerySummary.of)


@st.composite
def records(draw):
    who = identity(draw(st.integers(1, 5)))
    stream = draw(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?", fullmatch=True))
    role = draw(st.sampled_from(Role))
    grant = None
    if draw(st.booleans()):
        grant = Grant.issue(identity(9), stream=stream, peer_id=who.peer_id, expires_at=draw(u32))
    return who, PeerRecord(
        stream=stream,
        peer_id=who.peer_id,
        addresses=tuple(draw(st.lists(addresses, min_size=1, max_size=4))),
        role=role,
        level=draw(u32),
        hops=draw(u16),
        children=draw(u16),
        capacity=draw(u16),
        free_slots=draw(u16),
        free_repair_slots=draw(u16),
        wanted_parents=draw(u8),
        held_parents=draw(u8),
        send_rate=draw(u32),
        query=draw(queries),
        grant=grant,
        withdrawn=draw(st.booleans()),
        version=draw(st.integers(0, 2**64 - 1)),
        expires_at=draw(u32),
    )


def verify(wire, now=NOW, **options):
    return RecordVerifier().verify(wire, now=now, **options).record


def refusal(wire, now=NOW) -> Refusal:
    with pytest.raises(RecordRejected) as caught:
        verify(wire, now)
    return caught.value.reason


@given(records())
def test_what_was_signed_is_what_is_read(pair):
    who, record = pair
    wire = sign_record(record, who).wire
    assert len(wire) <= MAX_RECORD_BYTES
    assert verify(wire, any_age=True) == replace(record, public_key=who.public_key)


@given(records(), st.data())
def test_any_changed_byte_is_refused(pair, data):
    who, record = pair
    wire = bytearray(sign_record(record, who).wire)
    wire[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RecordRejected):
        verify(bytes(wire), any_age=True)


@given(st.binary(max_size=600))
def test_any_bytes_raise_nothing_but_a_refusal(wire):
    with pytest.raises(RecordRejected):
        verify(wire)


def test_every_prefix_is_refused():
    wire = signed(1).wire
    for length in range(len(wire)):
        assert refusal(wire[:length]) in {Refusal.MALFORMED, Refusal.BAD_SIGNATURE}


def test_golden_bytes():
    made = sign_record(golden_record(), identity(2))
    assert made.wire.hex() == GOLDEN.hex()
    assert verify(made.wire) == made.record


def test_a_record_is_compact():
    bare = len(signed(1).wire)
    assert bare == 160
    assert len(sign_record(golden_record(), identity(2)).wire) == bare + len("//flight[alt>300]")


def test_a_long_query_travels_as_its_hash():
    text = "//flight[" + " or ".join(f"id='{n}'" for n in range(40)) + "]"
    query = verify(signed(1, query=QuerySummary.of(text)).wire).query
    assert query.text is None
    assert query.hash == QuerySummary.of(text).hash


def test_times_are_checked_against_the_clock():
    assert refusal(signed(1, expires_at=int(NOW)).wire) is Refusal.EXPIRED
    limit = int(NOW + MAX_LIFETIME + CLOCK_SKEW)
    assert verify(signed(1, expires_at=limit).wire).expires_at == limit
    assert refusal(signed(1, expires_at=limit + 1).wire) is Refusal.TOO_LONG_LIVED


def test_nobody_signs_for_another():
    with pytest.raises(ValueError, match="signed by the peer"):
        sign_record(record_of(identity(1)), identity(2))


def test_another_peers_key_under_ones_own_signature_is_refused():
    mine = sign_record(record_of(identity(1)), identity(1)).wire
    forged = mine[:1] + identity(2).public_key + mine[33:]
    assert refusal(forged) is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize(
    "fields",
    [
        {"level": -1},
        {"capacity": 65536},
        {"addresses": ()},
        {"addresses": (("192.0.2.7", 0),)},
        {"addresses": (("host.example", 1),)},
        {"stream": "Asdi"},
        {"stream": ""},
        {"stream": "asdi.short"},
    ],
)
def test_what_does_not_fit_is_the_callers_mistake(fields):
    with pytest.raises(ValueError, match=r".+"):
        sign_record(record_of(identity(1), **fields), identity(1))


def test_verified_bytes_are_remembered_within_a_bound():
    verifier = RecordVerifier(max_remembered=3)
    wires = [signed(number).wire for number in range(1, 6)]
    for wire in wires + wires:
        assert verifier.verify(wire, now=NOW).wire == wire
    # Remembered is not exempt from the clock.
    with pytest.raises(RecordRejected):
        verifier.verify(wires[-1], now=NOW + 200)


# --- roots and their grants

OWNER = identity(9)
STREAM = f"asdi.{OWNER.fingerprint}"


def grant(**fields):
    arguments = {"stream": STREAM, "peer_id": identity(1).peer_id, "expires_at": int(NOW) + 3600}
    return Grant.issue(OWNER, **{**arguments, **fields})


def test_a_root_with_the_owners_grant_counts():
    record = verify(signed(1, stream=STREAM, role=Role.ROOT, grant=grant()).wire)
    assert record.owner == OWNER.peer_id


def test_the_owner_needs_no_grant():
    assert verify(signed(9, stream=STREAM, role=Role.ROOT).wire).owner == OWNER.peer_id


def unchecked_root(**fields):
    """A record that `sign_record` itself would refuse to make: signed as a router, then called a root."""
    record = record_of(identity(1), stream=STREAM, **fields)
    from dht import record as module

    payload = bytearray(sign_record(record, identity(1)).wire[:-64])
    payload[33] = payload[33] & ~0x03 | Role.ROOT
    return bytes(payload) + identity(1).sign(module._DOMAIN + bytes(payload))


def test_a_root_without_a_grant_is_refused_anywhere():
    assert refusal(unchecked_root()) is Refusal.NO_GRANT


def test_a_grant_of_somebody_else_is_refused():
    other = Grant.issue(identity(8), stream="asdi", peer_id=identity(1).peer_id, expires_at=int(NOW) + 3600)
    assert refusal(unchecked_root(grant=replace(other, stream=STREAM))) is Refusal.BAD_GRANT


@pytest.mark.parametrize("fields", [{"peer_id": identity(2).peer_id}, {"stream": "asdi"}])
def test_a_grant_for_another_peer_or_stream_is_refused(fields):
    moved = replace(grant(**fields), stream=STREAM, peer_id=identity(1).peer_id)
    assert refusal(unchecked_root(grant=moved)) is Refusal.BAD_GRANT


def test_an_expired_grant_is_refused():
    old = grant(expires_at=int(NOW) - 1)
    assert refusal(signed(1, stream=STREAM, role=Role.ROOT, grant=old).wire) is Refusal.BAD_GRANT


def test_a_grant_travels_as_one_line():
    assert Grant.from_text(grant().to_text() + "\n") == grant()


@given(st.data())
def test_a_damaged_line_is_no_grant(data):
    text = grant().to_text()
    index = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("AZaz09+/=:"))
    damaged = text[:index] + letter + text[index + 1 :]
    if damaged != text:
        with pytest.raises((ValueError, RecordRejected)):
            Grant.from_text(damaged)


def test_only_the_owner_grants():
    with pytest.raises(ValueError, match="does not own"):
        Grant.issue(identity(8), stream=STREAM, peer_id=identity(1).peer_id, expires_at=1)
