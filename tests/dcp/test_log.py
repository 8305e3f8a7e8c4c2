"""The log and the cursors on it: no claim over what is not known, exactly what matches, and bounds that hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp.cursor import Cursor, DataClaim, EmptyClaim, HoleClaim, LogClaim
from dcp.events import Gap
from dcp.log import Interest, Log
from dcp.queries import EVERYTHING, PredicatePolicy
from dcp.serial import QUARTER
from tests.dcp.campaign import ALL, CLASSES, mask_of, policy, token

NO_LIMIT = 1 << 62


def make_log(max_packets: int = 1_000, max_bytes: int = 1 << 20, max_segments: int = 100) -> Log:
    return Log(policy(), max_packets=max_packets, max_bytes=max_bytes, max_segments=max_segments)


def matching(log: Log, interest: Interest, start: int, end: int) -> list[tuple[int, bytes]]:
    """The packets in (start, end] that the interest wants."""
    ordinals = range(log.ordinal_after(start), log.ordinal_after(end))
    return [(log.an_at(n), log.payload_at(n)) for n in ordinals if log.wanted(interest, n)]


class Truth:
    """A stream, and a peer that logs it under changing queries, losing some of it."""

    def __init__(self, seed: int, log: Log) -> None:
        self.rng = random.Random(seed)
        self.log = log
        self.an = self.rng.randrange(1000)
        self.class_of: dict[int, int] = {}
        self.query = self.rng.randrange(1, ALL + 1)
        log.start(self.an)

    def grow(self) -> None:
        rng, log = self.rng, self.log
        an = self.an + rng.choice([1, 1, 1, 2, 7])
        kind = rng.randrange(CLASSES)
        self.class_of[an] = kind
        match rng.randrange(12):
            case 0:
                log.advance(self.an, token(self.query))  # a switch is at the position, and the log is up to it
                self.query = rng.randrange(1, ALL + 1)
            case 1:
                log.hole(an)
                self.an = an
                return
            case 2:  # the router learns of an advance only later
                self.an = an
                if not self.query >> kind & 1:
                    return
                log.hole(an - 1)
        if self.query >> kind & 1:
            log.append(an, bytes((kind, an & 0xFF)), token(self.query))
        elif rng.random() < 0.5:
            log.advance(an, token(self.query))
        self.an = an

    def matching(self, after: int, until: int, query: int) -> list[int]:
        return [an for an, kind in self.class_of.items() if after < an <= until and query >> kind & 1]


def check(claim: LogClaim, truth: Truth, query: int, position: int) -> None:
    """A claim is true of the stream, whatever the log happens to hold of it."""
    match claim:
        case DataClaim(prev, packets):
            assert prev <= position < packets[0][0]
            assert [an for an, _ in packets] == truth.matching(prev, packets[-1][0], query)
            assert all(payload == bytes((truth.class_of[an], an & 0xFF)) for an, payload in packets)
        case EmptyClaim(prev, until):
            assert prev < until
            assert truth.matching(prev, until, query) == []
        case HoleClaim(start, end):
            assert start < end


@given(
    st.integers(0, 1 << 32),
    st.integers(1, ALL),
    st.sampled_from([(8, 1_000, 100), (1_000, 20, 100), (1_000, 1_000, 3)]),
)
def test_every_claim_is_true_whatever_was_logged_evicted_or_lost(seed, query, limits):
    log = make_log(limits[0], limits[1], limits[2])
    truth = Truth(seed, log)
    rng = truth.rng
    interest = log.open_interest(token(query))
    cursor = Cursor(log, truth.an)
    for _ in range(150):
        truth.grow()
        assert len(log) <= limits[0]
        assert log.bytes <= max(limits[1], 2)
        assert len(log._segments) <= limits[2]
        if rng.random() < 0.1:
            cursor.move(log, rng.randint(log.low - 3, log.head + 3))
        if rng.random() < 0.1:
            log.close_interest(interest)
            query = rng.randrange(1, ALL + 1)
            interest = log.open_interest(token(query))
            cursor.move(log, cursor.position)
        while rng.random() < 0.7:
            position, before = cursor.position, (cursor.position, cursor.prev)
            limit = NO_LIMIT if rng.random() < 0.8 else position + rng.randint(-2, 9)
            room = rng.choice([1, 9, 20, 1_000])
            claim = cursor.next_claim(log, interest, limit=limit, room=room, max_packets=rng.choice([1, 3, 99]))
            if claim is None:
                break
            check(claim, truth, query, position)
            assert (cursor.position, cursor.prev) > before
            assert not isinstance(claim, DataClaim) or claim.packets[-1][0] <= limit


@given(st.integers(0, 1 << 32), st.integers(1, ALL))
def test_a_walk_from_the_low_edge_meets_everything_that_is_held(seed, query):
    """Packets and holes together leave nothing out: what a child takes from the walk is the whole stream, or a gap."""
    log = make_log()
    truth = Truth(seed, log)
    begin = truth.an
    for _ in range(60):
        truth.grow()
    cursor, interest = Cursor(log, begin), log.open_interest(token(query))
    position, taken, holes = begin, [], []
    for _ in range(1_000):
        claim = cursor.next_claim(log, interest, limit=NO_LIMIT, room=100, max_packets=9)
        if claim is None:
            break
        match claim:
            case DataClaim(prev, packets):
                assert prev <= position
                taken += [an for an, _ in packets]
                position = packets[-1][0]
            case EmptyClaim(prev, until):
                assert prev <= position
                position = until
            case HoleClaim(start, end):
                assert start <= position
                holes.append((start, end))
                position = end
    assert cursor.position == log.head
    expected = truth.matching(begin, log.head, query)
    missing = set(expected) - set(taken)
    assert all(any(start < an <= end for start, end in holes) for an in missing)
    assert taken == [an for an in expected if an not in missing]


@given(st.integers(0, 1 << 32), st.integers(1, ALL))
def test_the_same_stretch_is_claimed_alike_by_every_cursor(seed, query):
    """A retransmission says what the first sending said, or less: a narrower claim is as true."""
    log = make_log()
    truth = Truth(seed, log)
    begin = truth.an
    for _ in range(40):
        truth.grow()
    interest = log.open_interest(token(query))
    for start in range(begin, log.head):
        claim = Cursor(log, start).next_claim(log, interest, limit=NO_LIMIT, room=1, max_packets=1)
        if claim is not None:
            check(claim, truth, query, start)


def test_eviction_by_packets_keeps_a_little_slack():
    log = make_log(max_packets=128)
    log.start(0)
    for an in range(1, 1_001):
        log.append(an, b"x")
        assert len(log) <= 128
    assert log.evicted == 1_000 - len(log)
    assert log.low == 1_000 - len(log)
    assert log.bytes == len(log)


def test_the_newest_packet_is_held_however_large():
    log = make_log(max_bytes=10)
    log.start(0)
    log.append(1, b"small")
    log.append(2, bytes(100))
    assert (len(log), log.low, log.head) == (1, 1, 2)


def test_a_child_that_lags_gets_a_hole_to_the_low_edge_then_packets():
    log = make_log(max_packets=4)
    log.start(0)
    cursor, interest = Cursor(log, 0), log.open_interest(EVERYTHING)
    for an in range(1, 11):
        log.append(an, b"%d" % an)
    hole = cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=99)
    assert hole == HoleClaim(0, log.low)
    claim = cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=99)
    assert isinstance(claim, DataClaim)
    assert claim.prev == log.low
    assert [an for an, _ in claim.packets] == list(range(log.low + 1, 11))


def test_no_claim_reaches_over_a_hole_or_a_narrower_stretch():
    log = make_log()
    log.start(0)
    interest = log.open_interest(token(0b0011))
    log.append(1, b"\x00", token(0b0011))
    log.advance(4, token(0b0001))
    log.append(5, b"\x00", token(0b0011))
    log.hole(7)
    log.append(8, b"\x01", token(ALL))
    cursor = Cursor(log, 0)
    claims = []
    while (claim := cursor.next_claim(log, interest, limit=NO_LIMIT, room=999, max_packets=9)) is not None:
        claims.append(claim)
    assert claims == [
        DataClaim(0, [(1, b"\x00")]),
        HoleClaim(1, 4),
        DataClaim(4, [(5, b"\x00")]),
        HoleClaim(5, 7),
        DataClaim(7, [(8, b"\x01")]),
    ]


def test_what_was_pruned_before_a_hole_is_claimed_before_the_hole():
    """Found by reading: the cursor had passed a pruned stretch without a word, then spoke of the hole after it.

    A child at the last packet could not place the hole, and had to ask for what was between.
    """
    log = make_log()
    log.start(0)
    interest = log.open_interest(token(0b0001))
    cursor = Cursor(log, 0)
    log.append(1, b"\x00")
    log.append(2, b"\x01")
    assert cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=9) == DataClaim(0, [(1, b"\x00")])
    assert cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=9) is None
    log.hole(5)
    assert cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=9) == EmptyClaim(1, 2)
    assert cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=9) == HoleClaim(2, 5)


def test_no_claim_is_wider_than_a_quarter_of_the_space():
    log = make_log()
    log.start(0)
    log.append(3 * QUARTER, b"far")
    cursor = Cursor(log, 0)
    interest = Interest(EVERYTHING, None, 0)
    assert cursor.next_claim(log, interest, limit=QUARTER, room=99, max_packets=9) == EmptyClaim(0, QUARTER)
    assert cursor.next_claim(log, interest, limit=2 * QUARTER, room=99, max_packets=9) == EmptyClaim(
        QUARTER, 2 * QUARTER
    )
    last = cursor.next_claim(log, interest, limit=NO_LIMIT, room=99, max_packets=9)
    assert last == DataClaim(2 * QUARTER, [(3 * QUARTER, b"far")])


def test_slots_are_used_again_and_a_former_owners_bits_are_never_read():
    asked = []

    class Counting(PredicatePolicy):
        def matches(self, query: bytes, payload: bytes) -> bool:
            asked.append(query)
            return query == payload

        def route(self, payload: bytes) -> int:
            return sum(1 << slot for slot, query in self._slots.items() if query == payload)

    log = Log(Counting(), max_packets=99, max_bytes=999, max_segments=9)
    log.start(0)
    first = log.open_interest(b"a")
    log.append(1, b"a")
    log.close_interest(first)
    second = log.open_interest(b"b")
    assert second.slot == first.slot
    log.append(2, b"b")
    assert matching(log, second, 0, 9) == [(2, b"b")]
    assert asked == [b"b"]  # the packet from before the interest was asked about, not looked up


def test_an_interest_in_everything_costs_no_slot():
    log = make_log()
    log.start(0)
    assert log.open_interest(EVERYTHING).slot is None
    log.append(1, b"\x00")
    narrow = log.open_interest(token(2))
    assert matching(log, narrow, 0, 9) == []


@pytest.mark.parametrize("query", [EVERYTHING, token(1), token(3)])
def test_coverage_begins_where_the_query_was_first_carried(query):
    log = make_log()
    log.start(10)
    log.advance(20, token(1))
    log.advance(30, token(3))
    log.advance(40, EVERYTHING)
    assert log.covered_since(query) == {EVERYTHING: 30, token(1): 10, token(3): 20}[query]
    log.hole(50)
    assert log.covered_since(query) == 50
    assert mask_of(query)


def test_an_owner_that_fell_behind_is_given_what_is_held_and_told_of_the_rest():
    log = make_log(max_packets=10)
    log.start(100)
    for an in range(101, 116):
        log.append(an, b"%d" % an)
    log.hole(120)
    log.append(125, b"125")
    log.advance(130)
    first, reached = log.replay(102, 6)
    assert first[0] == Gap(102, log.low)
    assert first[1:] == [(an, b"%d" % an) for an in range(log.low + 1, reached + 1)]
    assert len(first) == 6
    rest, end = log.replay(reached, 100)
    assert rest[-2:] == [Gap(115, 120), (125, b"125")]
    assert end == 130
    assert log.replay(130, 100) == ([], 130)
