"""History is looked through in slices, a policy that fails costs nobody a packet, and nothing is asked twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import guard
from dcp.cursor import PAUSED, Cursor, DataClaim
from dcp.handshake import Start
from dcp.history import SLICE_PACKETS, SLICE_SECONDS, Answers, HistorySlice
from dcp.log import Log
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from tests.dcp.test_log import matching
from tests.dcp.world import World

NO_LIMIT = 1 << 62


class Counting(PredicatePolicy):
    """Matches the first byte, and counts how often it was asked."""

    def __init__(self):
        super().__init__(matches=self._look)
        self.asked = 0

    def _look(self, query, payload):
        self.asked += 1
        return payload[:1] == query


class Failing(Counting):
    """Fails on some payloads, as a policy that has a bug."""

    def _look(self, query, payload):
        if payload[1:] == b"!":
            raise ZeroDivisionError
        return super()._look(query, payload)


def make_log(policy, max_packets=10_000, max_bytes=1 << 30, max_segments=100):
    log = Log(policy, max_packets=max_packets, max_bytes=max_bytes, max_segments=max_segments)
    log.start(0)
    return log


def claims_of(log, interest, *, sliced, room=200, position=0):
    """Everything that a cursor says, with the claims about several packets taken apart."""
    cursor = Cursor(log, position)
    found = []
    turns = 1
    log.history.refill()
    while True:
        claim = cursor.next_claim(log, interest, limit=NO_LIMIT, room=room, max_packets=50)
        if claim is PAUSED:
            assert sliced
            turns += 1
            log.history.refill()
        elif claim is None:
            return found, turns, (cursor.prev, cursor.position)
        elif isinstance(claim, DataClaim):
            prev = claim.prev
            for an, payload in claim.packets:
                found.append((prev, an, payload))
                prev = an
        else:
            found.append(claim)


# --- appending is all or nothing --------------------------------------------------------------------------------------


batches = st.lists(st.lists(st.sampled_from([b"a", b"b", b"a!", b"b!"]), max_size=5), max_size=20)


@given(batches, st.booleans(), st.booleans())
def test_a_policy_that_fails_leaves_the_columns_equal(batches, one_by_one, strict):
    """Found: the packet was appended before it was routed, and the columns fell out of step for good."""
    log = make_log(Failing(), max_packets=30)
    interest = log.open_interest(b"a")
    expected = []
    with guard.strictness(strict):
        for batch in batches:
            for part in [[payload] for payload in batch] if one_by_one else [batch]:
                ans = range(log.head + 1, log.head + 1 + len(part))
                try:
                    log.append(ans[0], part[0]) if one_by_one else log.append_many(ans, part)
                except ZeroDivisionError:
                    assert strict
                else:
                    expected += list(zip(ans, part, strict=True))
                assert len(log._ans) == len(log._payloads) == len(log._masks) == len(log._weights) - 1
                assert log.bytes == sum(map(len, log._payloads[log._first :]))
    held = expected[-len(log) :] if len(log) else []
    assert list(zip(log._ans, log._payloads, strict=True))[log._first :] == held
    # What could not be routed goes to everybody.
    wanted = [(an, payload) for an, payload in held if payload[:1] == b"a" or payload[1:] == b"!"]
    assert matching(log, interest, log.low, log.head) == wanted
    assert log.unrouted == 0 or any(payload[1:] == b"!" for batch in batches for payload in batch)


def test_publish_does_not_raise_because_a_childs_query_fails():
    world = World(1)
    world.root("root", policy=Failing())
    world.client("client", ["root"], query=b"a")
    world.run(0.5)
    with guard.strictness(False):
        for payload in (b"a", b"b", b"b!", b"a"):
            world.publish("root", payload)
        world.run(0.5)
    assert world.packets("client") == [(1, b"a"), (3, b"b!"), (4, b"a")]
    assert world.senders["root"].statistics(world.net.now).unrouted == 1


def test_numbers_and_packets_of_different_length_leave_the_log_alone():
    log = make_log(Counting())
    with pytest.raises(ValueError, match="2 numbers for 1 packets"):
        log.append_many([1, 2], [b"x"])
    assert len(log) == 0
    assert log.head == 0


# --- slices -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([1, 2, 7, 64]), st.integers(20, 300))
def test_sliced_and_unsliced_history_make_the_same_claims(seed, packets, slice_packets, room):
    rng = random.Random(seed)
    log = make_log(Counting(), max_segments=20)
    for _ in range(packets):
        an = log.head + rng.choice([1, 1, 1, 3])
        if rng.random() < 0.05:
            log.hole(an)
        elif rng.random() < 0.05:
            log.advance(an)
        else:
            log.append(an, rng.choice([b"a", b"b", b"b", b"b"]) + rng.randbytes(rng.randrange(20)))
    interest = log.open_interest(b"a")
    for _ in range(rng.randrange(50)):
        log.append(log.head + 1, rng.choice([b"a", b"b"]))

    class Endless(HistorySlice):
        __slots__ = ()
        is_open = property(lambda self: True)

    log.history = Endless()
    whole, turns, end = claims_of(log, interest, sliced=False, room=room)
    assert turns == 1
    interest.answers = None

    class Small(HistorySlice):
        __slots__ = ()

        def refill(self):
            super().refill()
            self._left = slice_packets

    log.history = Small()
    sliced, turns, sliced_end = claims_of(log, interest, sliced=True, room=room)
    assert sliced == whole
    assert sliced_end == end
    assert turns >= min(1, len(log) // slice_packets)


def test_a_claim_that_is_made_while_paused_is_true():
    """A keep-alive says (prev, position]: all of that must have been looked at."""
    log = make_log(Counting())
    log.append_many(range(1, 501), [b"b"] * 300 + [b"a"] + [b"b"] * 199)
    interest = log.open_interest(b"a")
    cursor = Cursor(log, 0)
    pauses = 0
    while (claim := cursor.next_claim(log, interest, limit=NO_LIMIT, room=999, max_packets=9)) is PAUSED:
        pauses += 1
        assert (cursor.prev, cursor.position) == (0, pauses * SLICE_PACKETS)
        log.history.refill()
    assert claim == DataClaim(0, [(301, b"a")])


def test_old_packets_are_asked_about_once_and_not_for_every_repair():
    policy = Counting()
    log = make_log(policy)
    log.append_many(range(1, 201), [b"a", b"b"] * 100)
    interest = log.open_interest(b"a")
    first, _, _ = claims_of(log, interest, sliced=True)
    assert policy.asked == 200
    again, turns, _ = claims_of(log, interest, sliced=True)
    assert again == first
    assert turns == 1
    assert matching(log, interest, 0, 200) == [(an, b"a") for an in range(1, 201, 2)]
    assert policy.asked == 200
    assert len(interest.answers._bits) == 50


@given(st.lists(st.tuples(st.integers(90, 320), st.booleans())))
def test_answers_are_remembered_as_given(given_answers):
    answers = Answers(100, 300)
    expected = {}
    for ordinal, answer in given_answers:
        if answers.get(ordinal) is None:
            answers.set(ordinal, answer)
            if 100 <= ordinal < 300:
                expected[ordinal] = answer
    assert {n: answers.get(n) for n in range(80, 330)} == {n: expected.get(n) for n in range(80, 330)}


def test_a_costly_policy_makes_a_slice_end_after_its_time():
    time = 0.0
    history = HistorySlice(lambda: time)
    looked = 0
    while history.is_open:
        history.spent()
        looked += 1
        time += SLICE_SECONDS / 4
    assert looked == 4
    history.refill()
    assert history.is_open


def test_a_join_from_the_oldest_does_not_hold_up_live_packets():
    """Found: 15,000 logged packets were evaluated in one call, and the root was mute for up to 14 s."""
    policy = Counting()
    world = World(1, conditions=Conditions(delay=0.005))
    root = world.root("root", policy=policy)
    root.publish_many([b"b%d" % an if an % 10 else b"a%d" % an for an in range(1, 15_001)])
    world.client("live", ["root"], query=b"a")
    world.run(0.5)
    most = 0
    before = policy.asked
    calls = world.hubs["root"].datagrams_to_send

    def watched(**options):
        nonlocal most
        asked = policy.asked
        batch = calls(**options)
        most = max(most, policy.asked - asked)
        return batch

    world.hubs["root"].datagrams_to_send = watched
    late = [world.client(f"late{number}", ["root"], query=b"a", start=Start.OLDEST) for number in range(3)]
    for an in range(15_001, 15_101):
        at = world.net.now
        world.publish("root", b"a%d" % an)
        world.run(0.02)
        assert world.packets("live")[-1][0] == an
        assert world.net.now - at < 0.021
    world.run(15.0)
    assert most <= SLICE_PACKETS
    wanted = [*range(10, 15_001, 10), *range(15_001, 15_101)]
    for number in range(len(late)):
        assert [an for an, _ in world.packets(f"late{number}")] == wanted
    assert policy.asked - before < 3 * 15_000 + 1_000
    assert world.senders["root"].statistics(world.net.now).history_slices >= 3 * 15_000 // SLICE_PACKETS


def test_children_that_catch_up_share_the_slices():
    world = World(1, conditions=Conditions(delay=0.005))
    root = world.root("root", policy=Counting())
    root.publish_many([b"b"] * 5_000)
    receivers = [world.client(f"c{number}", ["root"], query=b"a", start=Start.OLDEST) for number in range(4)]
    world.run(0.4)
    positions = [child.cursor.position for child in root.children.values()]
    assert len(positions) == len(receivers)
    assert min(positions) > 0.5 * max(positions) > 0


def test_a_stream_of_old_packets_at_loss_is_whole():
    for seed in range(3):
        world = World(seed, conditions=Conditions(delay=0.01, jitter=0.01, loss=0.1))
        root = world.root("root", policy=Counting())
        root.publish_many([b"b" if an % 7 else b"a" + bytes(300) for an in range(1, 3_001)])
        world.client("client", ["root"], query=b"a", start=Start.OLDEST)
        world.run(10.0)
        assert [an for an, _ in world.packets("client")] == list(range(7, 3_001, 7))
        assert world.gaps("client") == []
