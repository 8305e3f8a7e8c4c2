"""Repairs: the arithmetic, the decoder with right, wrong and hostile input, and the window they are made from."""

from __future__ import annotations

import random
from functools import partial
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import protection
from dcp.coding import COLUMNS, INVERSE, ROWS, TIMES, coefficient, combined
from dcp.config import Config
from dcp.cursor import DataClaim, EmptyClaim, HoleClaim
from dcp.errors import MalformedDatagram
from dcp.links.decoding import MAX_KNOWN, MAX_ROWS, Decoder
from dcp.links.protecting import MAX_CREDIT, Protection
from dcp.links.uplink import Uplink
from dcp.links.window import SendWindow
from dcp.protection import MAX_MEMBERS, Protect, Repair, payloads_of, symbol_of
from dcp.serial import QUARTER

PARENT = Uplink(1, ("192.0.2.1", 1), Config(), bytes(16), b"", now=0.0).parent
OTHER = Uplink(2, ("192.0.2.2", 1), Config(), bytes(16), b"", now=0.0).parent

# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_multiplication_is_a_field():
    for a in range(1, 256):
        assert TIMES[a][INVERSE[a]] == 1
        assert sorted(TIMES[a]) == list(range(256))
    rng = random.Random(1)
    for _ in range(500):
        a, b, c = (rng.randrange(256) for _ in range(3))
        assert TIMES[a][b] == TIMES[b][a]
        assert TIMES[a][TIMES[b][c]] == TIMES[TIMES[a][b]][c]
        assert TIMES[a][b ^ c] == TIMES[a][b] ^ TIMES[a][c]


def test_coefficients_are_never_zero_and_rows_differ():
    for key in range(ROWS):
        assert all(coefficient(key, an) for an in range(COLUMNS))
    assert len({tuple(coefficient(key, an) for an in range(COLUMNS)) for key in range(ROWS)}) == ROWS


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6))
def test_combined_is_the_sum_byte_by_byte(parts):
    size = max((len(data) for _, data in parts), default=0)
    expected = bytearray(size)
    for factor, data in parts:
        for at, byte in enumerate(data):
            expected[at] ^= TIMES[factor][byte]
    assert combined(parts) == bytes(expected)


# --- the wire ---------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.lists(st.integers(1, 300) | st.integers(1, 0xFFFFFFFF), min_size=1, max_size=4), min_size=1, max_size=16
)


@given(st.integers(0, 1 << 40), st.integers(0, ROWS - 1), steps, st.binary(min_size=6, max_size=60))
def test_a_repair_survives_the_wire(prev, key, steps, coded):
    groups, at = [], prev
    for group in steps:
        groups += [tuple(at := at + step for step in group)]
    body = protection.encode_repair(prev, Repair(key, groups, coded))
    assert protection.decode_repair_untrusted(b"??" + body, 2, prev, at) == Repair(key, groups, coded)
    with pytest.raises(MalformedDatagram):
        protection.decode_repair_untrusted(body, 0, prev, at + 1)


@given(
    st.builds(
        Protect,
        st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 255), st.integers(0, 255),
        st.integers(0, 0xFFFF).map(lambda ticks: ticks * protection.DELAY_UNIT), st.integers(0, 255),
        st.none() | st.integers(0, 65_534).map(lambda ms: ms / 1e3),
    )
)  # fmt: skip
def test_a_wish_survives_the_wire(wish):
    assert protection.decode_protect_untrusted(protection.encode_protect(wish)) == wish


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x0a\x01\x07", "short"),
        (b"\x0a\x01\x07\x01\x01coded", "short"),  # a sum shorter than a symbol
        (b"\x0a\x03\x07\x01\x01coded bytes", "repair"),  # scheme
        (b"\x0a\x01\x40\x01\x01coded bytes", "repair"),  # key
        (b"\x0a\x01\x07\x00coded bytes", "repair"),  # no member
        (b"\x0a\x01\x07\x41" + b"\x01" * 65 + b"coded bytes", "repair"),  # too many
        (b"\x0a\x02\x07\x02\x3f" + b"\x01" * 63 + b"\x02\x01\x01coded bytes", "limit"),  # too many in groups
        (b"\x0a\x01\x07\x01\x00coded bytes", "repair"),  # no step
        (b"\x0a\x02\x07\x01\x00coded bytes", "limit"),  # an empty group
        (b"\x0a\x01\x07\x01\xff\x00\x00", "short"),
        (b"\x0a\x01\x07\x01\x02coded bytes", "repair"),  # ends elsewhere
    ],
)
def test_a_repair_that_is_not_one(body, reason):
    with pytest.raises(MalformedDatagram) as caught:
        protection.decode_repair_untrusted(body, 0, 0, 1)
    assert caught.value.reason == reason


def test_symbols_are_checked():
    symbol = symbol_of([b"one", b"", b"three"])
    assert payloads_of(symbol + bytes(9), 3) == [b"one", b"", b"three"]
    assert payloads_of(symbol, 2) is None  # something behind
    assert payloads_of(symbol[:-1], 3) is None
    assert payloads_of(symbol, 4) is None
    for at in range(len(symbol)):
        changed = bytearray(symbol)
        changed[at] ^= 1
        assert payloads_of(bytes(changed), 3) is None


# --- the decoder ------------------------------------------------------------------------------------------------------


def repair_of(key, groups, payloads):
    parts = [(coefficient(key, group[-1]), symbol_of([payloads[an] for an in group])) for group in groups]
    return Repair(
        key, groups, combined(parts) if len(groups) > 1 else parts and symbol_of([payloads[an] for an in groups[0]])
    )


def packets_of(rng, ans):
    return {an: rng.randbytes(rng.randrange(50)) for an in ans}


def test_as_many_repairs_as_losses_mend_any_losses():
    rng = random.Random(2)
    ans = list(range(100, 108))
    payloads = packets_of(rng, ans)
    for count in (1, 2, 3):
        for lost in combinations(ans, count):
            decoder = Decoder()
            decoder.hear([(an, payloads[an]) for an in ans if an not in lost])
            claims = []
            for key in range(count):
                claims += decoder.hear_repair(PARENT, 3, 99, repair_of(key, [(an,) for an in ans], payloads), 99)
            assert sorted((c.prev, c.until, c.packets) for c in claims) == [
                (an - 1, an, [(an, payloads[an])]) for an in lost
            ]
            assert len(decoder) == 0


@pytest.mark.parametrize("stride", [1, 7, 64, 190, 192, 1_000])
def test_any_stride_of_numbers_can_be_mended(stride):
    rng = random.Random(3)
    ans = [stride * (n + 1) for n in range(8)]
    payloads = packets_of(rng, ans)
    for lost in combinations(ans, 2):
        decoder = Decoder()
        decoder.hear([(an, payloads[an]) for an in ans if an not in lost])
        claims = [
            c
            for key in (5, 9)
            for c in decoder.hear_repair(PARENT, 0, 0, repair_of(key, [(an,) for an in ans], payloads), 0)
        ]
        assert {an for claim in claims for an, _ in claim.packets} == set(lost)


def test_a_packet_that_a_nack_brought_unlocks_a_repair_that_waits():
    payloads = {an: b"payload %d" % an for an in range(1, 5)}
    decoder = Decoder()
    decoder.hear([(1, payloads[1]), (2, payloads[2])])
    assert decoder.hear_repair(PARENT, 0, 0, repair_of(1, [(1,), (2,), (3,), (4,)], payloads), 0) == []
    assert len(decoder) == 1
    (claim,) = decoder.hear([(4, payloads[4])])
    assert claim == (PARENT, 0, 2, 3, [(3, payloads[3])])
    assert decoder.rebuilt == 1


def test_repairs_of_two_parents_add_up_and_each_claim_is_its_parents():
    payloads = {an: b"payload %d" % an for an in range(1, 5)}
    decoder = Decoder()
    decoder.hear([(1, payloads[1]), (4, payloads[4])])
    assert not decoder.hear_repair(PARENT, 0, 0, repair_of(1, [(1,), (2,), (3,), (4,)], payloads), 0)
    claims = decoder.hear_repair(OTHER, 0, 1, repair_of(9, [(2,), (3,), (4,)], payloads), 0)
    assert {claim.packets[0] for claim in claims} == {(2, payloads[2]), (3, payloads[3])}
    assert {claim.parent for claim in claims} <= {PARENT, OTHER}
    for claim in claims:
        assert claim.prev == claim.until - 1


def test_a_bundle_is_one_symbol():
    payloads = {an: b"x" * an for an in range(1, 9)}
    groups = [(1, 2, 3), (4,), (5, 6, 7, 8)]
    decoder = Decoder()
    decoder.hear([(an, payloads[an]) for an in (1, 2, 3, 4, 6)])
    (claim,) = decoder.hear_repair(PARENT, 0, 0, repair_of(3, groups, payloads), 0)
    assert (claim.prev, claim.until) == (4, 8)
    assert claim.packets == [(an, payloads[an]) for an in (5, 6, 7, 8)]
    assert decoder.rebuilt == 3


def test_a_copy_is_taken_as_it_is_and_only_when_it_is_needed():
    payloads = {7: b"seven"}
    decoder = Decoder()
    (claim,) = decoder.hear_repair(PARENT, 2, 3, repair_of(1, [(7,)], payloads), 3)
    assert claim == (PARENT, 2, 3, 7, [(7, b"seven")])
    assert decoder.hear_repair(PARENT, 2, 3, repair_of(2, [(7,)], payloads), 3) == []
    assert decoder.hear_repair(PARENT, 2, 3, repair_of(2, [(5,)], {5: b""}), 6) == []
    assert (decoder.rebuilt, decoder.unneeded) == (1, 2)


def test_packets_that_are_not_what_was_coded_give_nothing_wrong():
    """Roots may stamp their packets differently; a parent may lie. A wrong packet must never come out."""
    rng = random.Random(4)
    for _ in range(500):
        ans = list(range(1, rng.randint(3, 9)))
        payloads = packets_of(rng, ans)
        lost = rng.sample(ans, rng.randint(1, 2))
        wrong = rng.choice([an for an in ans if an not in lost] or ans)
        heard = [
            (an, rng.randbytes(rng.randrange(60)) if an == wrong else payloads[an]) for an in ans if an not in lost
        ]
        decoder = Decoder()
        decoder.hear(heard)
        claims = [
            c
            for key in range(3)
            for c in decoder.hear_repair(PARENT, 0, 0, repair_of(key, [(an,) for an in ans], payloads), 0)
        ]
        for claim in claims:
            assert claim.packets[0] == (claim.until, payloads[claim.until]) or claim.until == wrong


def test_what_was_refused_is_forgotten_with_all_that_waits():
    payloads = {an: b"payload %d" % an for an in range(1, 5)}
    decoder = Decoder()
    decoder.hear([(1, payloads[1])])
    decoder.hear_repair(PARENT, 0, 0, repair_of(1, [(1,), (2,), (3,), (4,)], payloads), 0)
    (claim,) = decoder.hear_repair(PARENT, 0, 1, repair_of(1, [(2,)], payloads), 0)
    decoder.refuse(claim.packets)
    assert len(decoder) == 0
    assert decoder.unfit == 1
    assert decoder.hear_repair(PARENT, 0, 1, repair_of(1, [(2,)], payloads), 0)  # it may come again, and be good


def test_a_decoder_is_bounded():
    decoder = Decoder()
    for an in range(1, 3 * MAX_KNOWN):
        decoder.hear([(an, b"x" * 100)])
    assert len(decoder._known) == MAX_KNOWN
    for an in range(10_000, 20_000, 100):
        groups = [(an + n,) for n in range(MAX_MEMBERS)]
        decoder.hear_repair(PARENT, 0, an - 1, Repair(1, groups, b"coded bytes" * 100), 0)
    assert len(decoder) == MAX_ROWS
    assert len(decoder._wanted) <= MAX_ROWS * MAX_MEMBERS
    decoder.hear([(1 << 40, bytes(1 << 20)), ((1 << 40) + 1, bytes(1 << 20))])
    assert decoder._known_bytes <= 1 << 20


def test_random_streams_with_loss_and_reordering_never_give_a_wrong_packet():
    for seed in range(60):
        rng = random.Random(seed)
        ans, at = [], 0
        for _ in range(200):
            at += rng.choice([1, 1, 1, 2, 300])
            ans.append(at)
        payloads = packets_of(rng, ans)
        every, span = rng.choice([(2, 4), (4, 4), (8, 4), (3, 2)])
        decoder, got = Decoder(), set()
        for index, an in enumerate(ans):
            events = []
            if rng.random() > 0.08:
                events.append(partial(decoder.hear, [(an, payloads[an])]))
                got.add(an)
            if index % every == every - 1 and rng.random() > 0.08:
                first = max(0, index + 1 - every * span)
                groups = [(number,) for number in ans[first : index + 1]]
                prev = ans[first - 1] if first else 0
                repair = repair_of(rng.randrange(ROWS), groups, payloads)
                events.append(partial(decoder.hear_repair, PARENT, 0, prev, repair, 0))
            rng.shuffle(events)
            for event in events:
                for claim in event():
                    for number, payload in claim.packets:
                        assert payloads[number] == payload
                        got.add(number)
        assert decoder.rebuilt > 5, seed
        assert len(got) > 170 or every != 2, seed
        assert decoder.unfit == 0


# --- the window at the parent -----------------------------------------------------------------------------------------


class Link:
    max_datagram = 1_400

    def encode(self, flags, an, prev, body):
        return an.to_bytes(8, "big") + prev.to_bytes(8, "big") + body


def protection_of(every=2, repairs=1, span=4, delay=0.0, budget=100):
    window = SendWindow(Config(), 1_000)
    made = Protection(Link(), window, max_budget=1.0, first_key=5)
    made.ask(Protect(1, every, repairs, span, delay, budget))
    made._credit = MAX_CREDIT
    return made, window


def read(datagram):
    an, prev = (int.from_bytes(datagram[at : at + 8], "big") for at in (0, 8))
    return prev, protection.decode_repair_untrusted(datagram, 16, prev, an)


def data(prev, *ans):
    return DataClaim(prev, [(an, b"%d" % an) for an in ans])


def test_a_repair_lists_what_follows_one_another():
    made, _ = protection_of()
    assert made.sent(data(3, 5), 0.0) == []
    (repair,) = made.sent(data(5, 6), 0.0)
    prev, found = read(repair)
    assert (prev, list(found.groups)) == (3, [(5,), (6,)])
    assert made.sent(EmptyClaim(6, 9), 0.0) == []
    made.sent(data(9, 10), 0.0)  # nothing between: it follows
    prev, found = read(made.sent(data(10, 11, 12), 0.0)[0])
    assert (prev, list(found.groups)) == (3, [(5,), (6,), (10,), (11, 12)])


@pytest.mark.parametrize("between", [HoleClaim(6, 9), None], ids=["a hole", "a squelch"])
def test_no_repair_reaches_over(between):
    made, _ = protection_of(every=1, span=4)
    made.sent(data(4, 5), 0.0)
    made.sent(data(5, 6), 0.0)
    if between is not None:
        made.sent(between, 0.0)
    prev, found = read(made.sent(data(9, 10), 0.0)[0])
    assert (prev, list(found.groups)) == (9, [(10,)])


def test_the_window_slides_and_is_bounded():
    made, _ = protection_of(every=2, span=4)
    for an in range(1, 100):
        for repair in made.sent(data(an - 1, an), 0.0):
            prev, found = read(repair)
            assert list(found.groups) == [(n,) for n in range(max(1, an - 7), an + 1)]
            assert prev == max(0, an - 8)
    made, _ = protection_of(every=255, span=255, repairs=255)
    for an in range(1, 200):
        for repair in made.sent(data(an - 1, an), 0.0):
            assert len(read(repair)[1].groups) <= MAX_MEMBERS


def test_a_packet_that_is_put_into_the_log_is_not_denied_by_a_later_repair():
    made, _ = protection_of(every=1, span=4)
    made.sent(data(4, 5), 0.0)
    made.sent(data(5, 9), 0.0)
    made.inserted(7)
    prev, found = read(made.sent(data(9, 10), 0.0)[0])
    assert (prev, list(found.groups)) == (9, [(10,)])


def test_a_claim_wider_than_a_header_can_say_is_left_out():
    made, _ = protection_of(every=1, span=4)
    made.sent(data(4, 5), 0.0)
    far = 5 + QUARTER + 10
    prev, found = read(made.sent(data(5, far), 0.0)[0])
    assert prev >= far - QUARTER or list(found.groups) == [(far,)]


def test_what_does_not_fit_a_datagram_is_not_protected():
    made, _ = protection_of(every=1, span=1)
    assert made.sent(DataClaim(0, [(1, bytes(1_390))]), 0.0) == []
    assert made.sent(DataClaim(1, [(an, b"") for an in range(2, 2 + MAX_MEMBERS + 1)]), 0.0) == []
    (repair,) = made.sent(DataClaim(66, [(67, bytes(1_300))]), 0.0)
    assert len(repair) - 16 + 22 <= 1_400


def test_a_list_that_does_not_fit_is_shortened():
    made, _ = protection_of(every=8, span=8)
    for an in range(1, 65):
        repairs = made.sent(DataClaim(300 * (an - 1), [(300 * an, bytes(1_300))]), 0.0)
    (repair,) = repairs
    assert len(repair) - 16 + 22 <= 1_400
    assert 1 <= len(read(repair)[1].groups) < 64


def test_bytes_are_capped_whatever_the_child_asks_for():
    for budget, most in ((255, 1.5), (40, 0.6), (0, 0.0)):
        made, _ = protection_of(every=1, repairs=2, span=1, budget=budget)
        made._credit = 0.0
        live = spent = 0
        for an in range(1, 2_000):
            live += 100 + 22 + 28
            spent += sum(len(r) - 16 + 22 + 28 for r in made.sent(DataClaim(an - 1, [(an, bytes(100))]), 0.0))
        assert spent <= most * live + MAX_CREDIT
        assert spent / live <= most
        assert made.held_back


def test_nothing_goes_out_unasked_while_the_window_is_full():
    made, window = protection_of(every=1, span=1)
    window.sent(1, window.size // 2 + 1, 1)
    assert made.sent(data(0, 1), 0.0) == []
    assert made.held_back == 1
    window.acknowledged(1)
    assert made.sent(data(1, 2), 0.0)


def test_copies_go_out_a_little_later_and_not_after_a_reposition():
    made, _ = protection_of(every=1, span=1, delay=0.01)
    assert made.sent(data(0, 1), 5.0) == []
    assert made.next_timeout() == pytest.approx(5.01)
    assert made.due(5.005) == []
    assert len(made.due(5.01)) == 1
    made.sent(data(1, 2), 6.0)
    made.clear()
    assert made.next_timeout() is None
    for an in range(3, 500):
        made.sent(data(an - 1, an), 7.0)
    assert len(made._copies) == 64


def test_an_older_wish_that_comes_late_is_ignored():
    made, _ = protection_of(every=2)
    assert made.ask(Protect(3, 4))
    assert not made.ask(Protect(2, 8))
    assert made.every == 4
    assert made.ask(Protect(3, 4))
    assert made.ask(Protect(4, 0))
    assert made.sent(data(0, 1), 0.0) == []
