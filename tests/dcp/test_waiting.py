"""What waits at a receiver: the reorder buffer, large packets in pieces, the query change; and payload envelopes."""

from __future__ import annotations

import random
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dcp.buffer import ReorderBuffer
from dcp.compression import Compressor
from dcp.config import Config
from dcp.control import Fragment
from dcp.epochs import QueryChange
from dcp.errors import PayloadRefused
from dcp.hub import Hub
from dcp.links.fragments import MAX_MISSING_RANGES, Assembler
from dcp.links.link import Link
from dcp.parent import Parent
from dcp.queries import PredicatePolicy

# --- the reorder buffer -----------------------------------------------------------------------------------------------

claims = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 6), st.sampled_from([0, 1]), st.integers(0, 3)), max_size=40
)


@given(claims, st.integers(0, 20))
def test_the_buffer_agrees_with_a_list(entries, position):
    buffer = ReorderBuffer(1_000, 1 << 20)
    model: dict[tuple[int, int], int] = {}
    for prev, span, epoch, packets in entries:
        an = prev + span
        buffer.add(epoch, prev, an, [(an - i, b"x") for i in range(packets)])
        model[an, epoch] = min(model.get((an, epoch), prev), prev)
    ranges, highest = buffer.missing(position, 0, 99)
    covered = {n for (an, e), prev in model.items() if e == 0 for n in range(prev + 1, an + 1)}
    top = max([an for (an, e) in model if e == 0 and an > position], default=position)
    assert highest == top
    assert {n for a, b in ranges for n in range(a + 1, b + 1)} == set(range(position + 1, top + 1)) - covered
    starts = [prev for (_, e), prev in model.items() if e == 0 and prev > position]
    assert buffer.first_known(position, 0) == min(starts, default=None)
    # Taking until nothing applies reaches the farthest position that the claims allow.
    at = position
    while (found := buffer.take(at, (0,))) is not None:
        epoch, an, _ = found
        assert epoch == 0
        assert an > at
        assert model[an, 0] <= at
        at = an
    assert not any(prev <= at < an for (an, e), prev in model.items() if e == 0)


@given(claims, st.integers(1, 10), st.integers(1, 20))
def test_a_full_buffer_drops_the_farthest_and_counts(entries, max_packets, max_bytes):
    buffer = ReorderBuffer(max_packets, max_bytes)
    kept: set[tuple[int, int]] = set()
    for prev, span, epoch, packets in entries:
        buffer.add(epoch, prev, prev + span, [(prev + span, b"xyz")] * packets)
        kept.add((prev + span, epoch))
        assert len(buffer) <= max_packets
        assert buffer.packets <= max_packets
        assert buffer.bytes <= max_bytes
    if len(buffer) < len(kept):
        assert buffer.dropped
    buffer.clear()
    assert (len(buffer), buffer.packets, buffer.bytes) == (0, 0, 0)


def test_a_full_buffer_that_waits_for_one_packet_is_not_searched_through():
    """Found by reading: after every packet all claims were looked at, 8,192 of them, to find that none applies."""
    buffer = ReorderBuffer(8_192, 1 << 20)
    for an in range(2, 16_000, 2):
        buffer.add(0, an - 1, an, [(an, b"x")])
    looked = 0

    class Counting(dict):
        def get(self, key, default=None):
            nonlocal looked
            looked += 1
            return super().get(key, default)

    buffer._claims = Counting(buffer._claims)
    for position in range(1, 16_000, 2):
        assert buffer.take(position - 1, (0,)) is None
        assert buffer.take(position, (0,)) == (0, position + 1, [(position + 1, b"x")]) or position + 1 >= 16_000
    assert looked <= 8_000


def test_replaced_and_dropped_claims_leave_nothing_behind():
    buffer = ReorderBuffer(10, 1 << 20)
    for i in range(10_000):
        buffer.add(0, 10_000 - i, 20_000, [(20_000, b"x")])
        buffer.add(0, 30_000 + i, 40_000 + i, [])
    assert len(buffer._starts) <= 2 * len(buffer) + 65


def test_a_switch_throws_the_other_epoch_away():
    buffer = ReorderBuffer(10, 100)
    buffer.add(0, 5, 6, [(6, b"old")])
    buffer.add(1, 5, 7, [(7, b"new")])
    buffer.keep_epoch(1)
    assert buffer.take(5, (1,)) == (1, 7, [(7, b"new")])
    assert (len(buffer), buffer.packets, buffer.bytes) == (0, 0, 0)


def test_of_two_claims_that_end_alike_the_wider_is_kept():
    buffer = ReorderBuffer(10, 100)
    buffer.add(0, 5, 9, [(9, b"narrow")])
    buffer.add(0, 3, 9, [(8, b"wide"), (9, b"narrow")])
    buffer.add(0, 4, 9, [(9, b"narrow")])
    assert buffer.take(3, (0,)) == (0, 9, [(8, b"wide"), (9, b"narrow")])


# --- large packets in pieces ------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=300), st.integers(0, 1 << 32))
def test_pieces_of_any_cut_in_any_order_make_the_packet(payload, seed):
    rng = random.Random(seed)
    assembler = Assembler(4)
    pieces = []
    for size in (rng.randint(1, 50), rng.randint(1, 50)):  # two senders cut at different places
        pieces += [(at, payload[at : at + size]) for at in range(0, len(payload), size) if rng.random() < 0.8]
    pieces += [(at, payload[at : at + 40]) for at in range(0, len(payload), 40)]
    rng.shuffle(pieces)
    whole = None
    for at, data in pieces:
        whole = assembler.add(0, rng.choice([3, 5]), 9, Fragment(at, len(payload), data))
        if whole is not None:
            break
        an, missing = assembler.pieces_after(5, 0)
        assert an == 9
        assert missing
    assert whole is not None
    assert whole[1] == payload
    assert len(assembler) == 0


def test_half_built_packets_are_bounded_and_the_farthest_goes():
    assembler = Assembler(2)
    for an in (20, 10, 30):
        assembler.add(0, an - 1, an, Fragment(0, 8, b"half"))
    assert (len(assembler), assembler.dropped) == (2, 1)
    assert assembler.pieces_after(19, 0) == (20, [(4, 8)])
    assert assembler.pieces_after(29, 0) is None
    assembler.forget(10, (0,))
    assert len(assembler) == 1


def test_a_packet_in_too_many_splinters_is_bounded():
    """A hostile sender that sends every second byte would otherwise make half a million ranges."""
    assembler = Assembler(2)
    for at in range(0, 4 * MAX_MISSING_RANGES, 2):
        assembler.add(0, 0, 1, Fragment(at, 1 << 20, b"x"))
    (partial,) = assembler._partials.values()
    assert len(partial.missing) <= MAX_MISSING_RANGES
    assert assembler.dropped > 0


# --- changing the query -----------------------------------------------------------------------------------------------

CONFIG = Config(prepare_patience=2.0, epoch_lifetime=30.0)


def uplink(link_id: int, *, up: bool = True, confirmed: int | None = 0) -> Parent:
    link = Parent(Link(link_id, ("p", link_id), CONFIG, now=0.0), now=0.0)
    link.up = up
    link.confirmed_epoch = confirmed
    return link


def prepare(change: QueryChange, link: Parent, since: int) -> None:
    link.prepared_epoch = change.pending_epoch
    link.prepared_since = since


def test_all_prepared_and_our_position_there_then_ask_then_switch():
    change = QueryChange(b"", CONFIG)
    a, b = uplink(1), uplink(2)
    change.want(b"q")
    step = change.step(100, [a, b], 0.0)
    assert step.prepare == [(a, 1, b"q"), (b, 1, b"q")]
    prepare(change, a, 90)
    assert not change.step(100, [a, b], 0.1).ask
    prepare(change, b, 120)
    assert not change.step(100, [a, b], 0.2).ask  # b has the new query only from 120 on
    assert change.current_epochs() == (0,)
    step = change.step(120, [a, b], 0.3)
    assert step.ask == [a, b]
    assert change.current_epochs() == (0, 1)
    assert change.extend(1) == 1
    assert change.epoch_for(a) == 1
    change.switch([a, b], 0.4)
    assert (change.query, change.epoch, a.confirmed_epoch) == (b"q", 1, 1)
    assert not change.is_waiting


@pytest.mark.parametrize(
    ("now", "ready", "position", "asks"),
    [(1.9, 1, 200, False), (2.1, 1, 200, True), (2.1, 1, 50, False), (4.1, 1, 50, False), (6.1, 1, 50, True)],
)
def test_patience_with_those_that_do_not_prepare(now, ready, position, asks):
    change = QueryChange(b"", CONFIG)
    links = [uplink(1), uplink(2)]
    change.want(b"q")
    change.step(100, links, 0.0)
    for link in links[:ready]:
        prepare(change, link, 100)
    assert bool(change.step(position, links, now).ask) == asks


def test_with_nobody_to_ask_the_switch_is_at_once():
    change = QueryChange(b"", CONFIG, policy=PredicatePolicy())
    change.want(b"q")
    assert change.step(5, [], 0.0).switch


def test_a_client_whom_nobody_can_serve_goes_on_a_router_waits():
    for is_router in (False, True):
        change = QueryChange(b"", CONFIG, policy=PredicatePolicy() if is_router else None)
        change.want(b"q")
        change.step(5, [uplink(1)], 0.0)
        assert not change.step(5, [uplink(1)], 7.9).switch
        assert change.step(5, [uplink(1)], 8.1).switch == (not is_router)


def test_four_epoch_bits_are_not_used_again_within_a_datagrams_lifetime():
    change = QueryChange(b"", CONFIG)
    now = 0.0
    for number in range(1, 17):
        change.want(b"%d" % number)
        step = change.step(5, [], now)
        if number == 16:
            assert not step.switch  # 16 & 15 is 0, and epoch 0 ended too short a while ago
            assert change.is_waiting
            at = change.next_timeout([], now)
            assert at is not None
            assert at > 30.0
            assert change.step(5, [], at).switch
            break
        assert step.switch
        change.switch([], now)
        now += 0.1


def test_the_latest_wish_wins_while_one_change_is_under_way():
    change = QueryChange(b"", CONFIG)
    a = uplink(1)
    for query in (b"1", b"2", b"3"):
        change.want(query)
        change.step(5, [a], 0.0)
    assert change.pending_epoch == 1
    assert change.target == b"3"
    prepare(change, a, 0)
    change.step(5, [a], 0.1)
    change.switch([a], 0.1)
    assert change.query == b"1"
    assert change.step(5, [a], 0.2).prepare == [(a, 2, b"3")]
    change.want(b"3")
    assert change.target == b"3"


def test_a_sender_many_epochs_behind_is_left():
    change = QueryChange(b"", CONFIG)
    change.epoch = 20
    old = uplink(1, confirmed=5)
    change.want(b"q")
    assert change.step(5, [old], 0.0).too_old == [old]


# --- payload envelopes ------------------------------------------------------------------------------------------------

FLIGHTS = [b'<flight id="UAL%d"><alt>%d</alt><speed>4%02d</speed></flight>' % (i, i * 7, i % 90) for i in range(3_000)]
DICTIONARY = zstandard.train_dictionary(4_096, FLIGHTS).as_bytes()


@given(st.binary(max_size=500), st.sampled_from(["none", "zlib", "zstd", "dictionary"]))
def test_envelopes_open_to_what_was_packed(payload, kind):
    dictionary = DICTIONARY if kind == "dictionary" else None
    compressor = Compressor("zstd" if dictionary else kind, dictionary=dictionary)
    packed = compressor.pack(payload)
    assert compressor.unpack_untrusted(packed) == payload
    assert len(packed) <= len(payload) + 1
    if kind != "dictionary":
        assert Compressor().unpack_untrusted(packed) == payload  # whoever it comes to, however it is set


def test_a_shared_dictionary_makes_small_packets_small():
    alone, shared = Compressor("zstd"), Compressor("zstd", dictionary=DICTIONARY)
    assert len(shared.pack(FLIGHTS[7])) < 0.6 * len(alone.pack(FLIGHTS[7]))
    assert shared.unpack_untrusted(shared.pack(FLIGHTS[7])) == FLIGHTS[7]


BOMBS = {
    "zlib": b"\x01" + zlib.compress(bytes(50 << 20)),
    "zstd": b"\x02" + zstandard.ZstdCompressor().compress(bytes(50 << 20)),
    "zstd that hides its size": b"\x02" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(50 << 20)),
    "zstd that lies about its size": b"\x02"
    + zstandard.ZstdCompressor().compress(bytes(300))[:5]
    + zstandard.ZstdCompressor().compress(bytes(50 << 20))[8:],
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb):
    assert len(BOMBS[bomb]) < 60_000
    with pytest.raises(PayloadRefused):
        Compressor().unpack_untrusted(BOMBS[bomb])


@pytest.mark.parametrize("kind", ["zlib", "zstd", "dictionary"])
def test_cut_off_and_changed_envelopes_are_refused_or_open_within_the_limit(kind):
    dictionary = DICTIONARY if kind == "dictionary" else None
    compressor = Compressor("zstd" if dictionary else kind, dictionary=dictionary)
    payload = b"".join(FLIGHTS[:20])
    packed = compressor.pack(payload)
    rng = random.Random(kind)
    for end in range(1, len(packed)):
        with pytest.raises(PayloadRefused):
            compressor.unpack_untrusted(packed[:end])
    for _ in range(2_000):
        changed = bytearray(packed)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            assert len(compressor.unpack_untrusted(bytes(changed), limit=5_000)) <= 5_000
        except PayloadRefused:
            continue


@pytest.mark.parametrize("envelope", [b"", b"\x04x", b"\xff", b"\x00" + bytes((1 << 20) + 1), b"\x01", b"\x02"])
def test_what_is_no_envelope_is_refused(envelope):
    with pytest.raises(PayloadRefused):
        Compressor().unpack_untrusted(envelope)


def test_packed_with_a_dictionary_that_we_lack():
    packed = Compressor("zstd", dictionary=DICTIONARY).pack(FLIGHTS[7])
    with pytest.raises(PayloadRefused, match="dictionary"):
        Compressor().unpack_untrusted(packed)


def test_a_payload_of_exactly_a_mebibyte_fits_with_its_envelope():
    """Found by reading: the envelope's byte made the largest payload too large to publish."""
    payload = random.Random(1).randbytes(1 << 20)
    packed = Compressor().pack(payload)
    sender = Hub(rng=random.Random(1)).serve("s")
    assert sender.publish(packed) == 1
    assert Compressor().unpack_untrusted(packed) == payload
    with pytest.raises(ValueError, match="at most"):
        sender.publish(packed + b"x")


def test_senseless_compressors():
    with pytest.raises(ValueError, match="one of none, zlib, zstd"):
        Compressor("lzma")
    with pytest.raises(ValueError, match="zstd"):
        Compressor("zlib", dictionary=b"x")
