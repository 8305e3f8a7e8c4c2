"""The codec: golden bytes that docs/mesh.md shows too, round trips, and hostile bytes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.mesh import encoding
from peer.mesh import messages as m

ID = m.PeerId(bytes(range(20)))
OTHER = m.PeerId(b"\xaa" * 4)
FEED = m.RootProof(run=0x1122334455667788, beat=300, age_ms=250)

GOLDEN = {
    "join": (
        m.Join(ID, 0x0102030405060708, 9, 1_536, 2, 1, 1, is_repair=True, has_children=True),
        encoding.encode_join,
        encoding.decode_join_untrusted,
        "0101030000060002010101020304050607080000000914000102030405060708090a0b0c0d0e0f10111213",
    ),
    "join, optional": (
        m.Join(OTHER, 1, 2, 1_536, 2, 2, 1, is_repair=False, has_children=True, is_optional=True),
        encoding.encode_join,
        encoding.decode_join_untrusted,
        "01010600000600020201000000000000000100000002" + "04aaaaaaaa",
    ),
    "accept": (
        m.Accept(700, 1, 2, FEED),
        encoding.encode_accept,
        encoding.decode_accept_untrusted,
        "0102000002bc01021122334455667788000000000000012c00fa",
    ),
    "refuse": (
        m.Refuse((m.PeerAt(OTHER, ("192.0.2.7", 4_000), 900), m.PeerAt(OTHER, ("2001:db8::1", 4_001), 901))),
        encoding.encode_refuse,
        encoding.decode_refuse_untrusted,
        "01030204aaaaaaaa0000038404c00002070fa004aaaaaaaa000003850620010db80000000000000000000000010fa1",
    ),
    "beat": (
        m.Beat(700, 1, 2, is_leaving=True, feed=FEED),
        encoding.encode_link_message,
        encoding.decode_link_message_untrusted,
        "010401000002bc01021122334455667788000000000000012c00fa",
    ),
    "report": (
        m.Report(1_400, 2, 2, is_leaving=False, parents=2, children=3, free=1, free_for_repair=3),
        encoding.encode_link_message,
        encoding.decode_link_message_untrusted,
        "0105000000057802020200030001" + "0003",
    ),
    "probe": (m.Probe(7), encoding.encode_link_message, encoding.decode_link_message_untrusted, "010600000007"),
    "echo": (m.Echo(7), encoding.encode_link_message, encoding.decode_link_message_untrusted, "010700000007"),
    "children": (
        m.ChildrenRequest(b"//f"),
        encoding.encode_request,
        encoding.decode_request_untrusted,
        "010800032f2f66",
    ),
    "parents": (m.ParentsRequest(), encoding.encode_request, encoding.decode_request_untrusted, "0109"),
    "status": (m.StatusRequest(), encoding.encode_request, encoding.decode_request_untrusted, "010a"),
    "about": (m.AboutRequest(), encoding.encode_request, encoding.decode_request_untrusted, "010f"),
    "self, with a dispute": (
        m.About("asdi", disputes="192.0.2.7:4000: omitted"),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "0110040104617364690200030006173139322e302e322e373a343030303a206f6d6974746564",
    ),
    "self, with a protection": (
        m.About("asdi", protection="2 per 3"),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "01100401046173646902000300070732207065722033",
    ),
    "self, in the reference tree": (
        m.About("asdi", tree_degree=3),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "01100401046173646902000300090103",
    ),
    "self": (
        m.About("asdi", "tower", "0.2", 12.5, 0.25),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "0110050104617364690205746f7765720303302e32040800000000000030d40508000000000003d090",
    ),
    "self, a stranger to names": (
        m.About("asdi"),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "01100301046173646902000300",
    ),
    "wants": (m.WantsRequest(), encoding.encode_request, encoding.decode_request_untrusted, "010d"),
    "wanted": (m.Wanted(b"//f"), encoding.encode_answer, encoding.decode_answer_untrusted, "010e0100032f2f66"),
    "wanted, not known": (m.Wanted(None), encoding.encode_answer, encoding.decode_answer_untrusted, "010e000000"),
    "peers": (
        m.Peers((m.PeerAt(OTHER, ("192.0.2.7", 4_000), 900),)),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "010b0104aaaaaaaa0000038404c00002070fa0",
    ),
    "state": (
        m.State(OTHER, 700, 1, 2, True, 2, 2, 3, 6),
        encoding.encode_answer,
        encoding.decode_answer_untrusted,
        "010c01000002bc010202020003000604aaaaaaaa",
    ),
}
DECODERS = [
    encoding.decode_join_untrusted,
    encoding.decode_accept_untrusted,
    encoding.decode_refuse_untrusted,
    encoding.decode_link_message_untrusted,
    encoding.decode_request_untrusted,
    encoding.decode_answer_untrusted,
]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name):
    value, encode, decode, golden = GOLDEN[name]
    assert encode(value).hex() == golden
    assert decode(bytes.fromhex(golden)) == value


def test_the_documentation_shows_the_same_bytes():
    page = (Path(__file__).resolve().parents[3] / "docs" / "mesh.md").read_text()
    assert f"`{encoding.encode_visit().hex()}`" in page
    for name, (_, _, _, golden) in GOLDEN.items():
        assert golden in page, f"docs/mesh.md lacks the golden bytes of {name}"


@pytest.mark.parametrize("name", GOLDEN)
def test_every_prefix_and_every_longer_body_is_malformed(name):
    _, _, decode, golden = GOLDEN[name]
    body = bytes.fromhex(golden)
    for size in range(len(body)):
        with pytest.raises(m.MalformedMessage):
            decode(body[:size])
    with pytest.raises(m.MalformedMessage):
        decode(body + b"\x00")


@given(st.data())
def test_mutated_bodies_decode_or_are_malformed(data):
    body = bytearray(bytes.fromhex(data.draw(st.sampled_from([g[3] for g in GOLDEN.values()]))))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for decode in DECODERS:
        with contextlib.suppress(m.MalformedMessage):
            decode(bytes(body))


@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_or_a_message(body):
    for decode in DECODERS:
        with contextlib.suppress(m.MalformedMessage):
            decode(body)


def test_counts_are_checked_before_anything_is_read():
    with pytest.raises(m.MalformedMessage, match="at most 4"):
        encoding.decode_refuse_untrusted(bytes([m.VERSION, encoding.MessageType.REFUSE, 255]))
    with pytest.raises(m.MalformedMessage, match="at most"):
        encoding.decode_request_untrusted(bytes([m.VERSION, encoding.MessageType.CHILDREN, 0xFF, 0xFF]) + b"x" * 65_535)


def test_the_longest_answer_fits_one_datagram():
    peer = m.PeerAt(m.PeerId(b"x" * encoding.MAX_PEER_ID_BYTES), ("2001:db8::1", 65_535), m.MAX_LEVEL)
    assert len(encoding.encode_answer(m.Peers((peer,) * m.MAX_PEERS_IN_ANSWER))) <= encoding.MAX_BODY_BYTES
    assert len(encoding.encode_request(m.ChildrenRequest(b"q" * m.MAX_QUERY_BYTES))) <= encoding.MAX_BODY_BYTES


ids = st.binary(min_size=1, max_size=encoding.MAX_PEER_ID_BYTES).map(m.PeerId)
u8, u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
feeds = st.builds(m.RootProof, u64, u64, u16)
addresses = st.tuples(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(1, 65_535))
peers = st.builds(m.PeerAt, ids, addresses, u32)


@given(st.builds(m.Join, ids, u64, u32, u32, u8, u8, u8, st.booleans(), st.booleans()))
def test_joins_round_trip(join):
    assert encoding.decode_join_untrusted(encoding.encode_join(join)) == join


@given(
    st.one_of(
        st.builds(m.Beat, u32, u8, u8, st.booleans(), feeds),
        st.builds(m.Report, u32, u8, u8, st.booleans(), u8, u16, u16, u16),
        st.builds(m.Probe, u32),
        st.builds(m.Echo, u32),
    )
)
def test_link_messages_round_trip(message):
    assert encoding.decode_link_message_untrusted(encoding.encode_link_message(message)) == message


@given(st.lists(peers, max_size=m.MAX_PEERS_IN_ANSWER).map(tuple))
def test_peers_round_trip(some):
    assert encoding.decode_answer_untrusted(encoding.encode_answer(m.Peers(some))) == m.Peers(some)
    few = m.Refuse(some[: m.MAX_REFERRALS])
    assert encoding.decode_refuse_untrusted(encoding.encode_refuse(few)) == few
