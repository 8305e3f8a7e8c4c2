"""What a node keeps for others: verified, newest, bounded, fair."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dht.config import StoreLimits
from dht.errors import Refusal
from dht.keys import MAX_SHARD_DEPTH, candidate_key_of, candidates_key, keys_of, roots_key
from dht.places import MAX_PLACE_DEPTH
from dht.record import RecordVerifier, Role
from dht.storage import RecordStore
from tests.dht.build import NOW, identity, record_of, signed

KEY = candidate_key_of(record_of(identity(1)), depth=0)  # depth 0 is one key for all peers of the bucket


def store(**limits) -> RecordStore:
    return RecordStore(RecordVerifier(), StoreLimits(**limits))


def put(to: RecordStore, number: int, *, key=KEY, source=None, now=NOW, handed=False, **fields):
    return to.put(key, signed(number, **fields).wire, source=source or f"source {number}", now=now, handed=handed)


def peers(of: RecordStore, now=NOW, key=KEY):
    return [held.record.peer_id for held in of.records(key, now=now)]


def test_newest_version_wins_and_a_replay_changes_nothing():
    kept = store()
    assert put(kept, 1, version=5) is None
    assert put(kept, 1, version=7, level=720) is None
    assert put(kept, 1, version=5) is Refusal.STALE
    assert put(kept, 1, version=7, level=730) is Refusal.STALE
    assert [held.record.level for held in kept.records(KEY, now=NOW)] == [720]
    assert kept.version_held(KEY, identity(1).peer_id) == 7
    assert kept.refused[Refusal.STALE] == 2


def test_a_withdrawn_record_masks_a_replay_until_both_are_gone():
    kept = store()
    put(kept, 1, version=5)
    put(kept, 1, version=6, withdrawn=True)
    assert put(kept, 1, version=5) is Refusal.STALE
    assert kept.records(KEY, now=NOW)[0].record.withdrawn
    assert peers(kept, now=NOW + 181) == []
    assert len(kept) == 0


def test_a_record_lies_only_under_its_own_keys():
    kept = store()
    wire = signed(1).wire
    for key in (roots_key("asdi"), candidates_key("asdi", bucket=3, depth=0, shard=0), bytes(20)):
        assert kept.put(key, wire, source="s", now=NOW) is Refusal.WRONG_KEY
    assert put(kept, 1, role=Role.ROOT, key=roots_key("asdi")) is None


def test_a_peer_without_room_is_no_candidate():
    kept = store()
    assert put(kept, 1, free_slots=0) is Refusal.WRONG_KEY
    assert put(kept, 2, free_slots=0, free_repair_slots=1) is None
    assert put(kept, 1, free_slots=0, withdrawn=True) is None  # takes back what lay there before


def test_forged_expired_and_oversized_are_refused_by_reason():
    kept = store()
    wire = signed(1).wire
    assert kept.put(KEY, wire[:-1] + bytes([wire[-1] ^ 1]), source="s", now=NOW) is Refusal.BAD_SIGNATURE
    assert kept.put(KEY, wire, source="s", now=NOW + 180) is Refusal.EXPIRED
    assert kept.put(KEY, wire + bytes(1000), source="s", now=NOW) is Refusal.TOO_LARGE
    assert kept.put(KEY, b"", source="s", now=NOW) is Refusal.MALFORMED
    assert sum(kept.refused.values()) == 4
    assert len(kept) == 0


def test_one_source_holds_its_share_and_no_more():
    kept = store(max_per_source_per_key=3)
    outcomes = [put(kept, number, source="flood") for number in range(1, 10)]
    assert outcomes == [None] * 3 + [Refusal.SOURCE_QUOTA] * 6
    assert put(kept, 20, source="honest") is None


def test_a_full_key_gives_room_to_new_sources_first():
    kept = store(max_records_per_key=8, max_per_source_per_key=8)
    for number in range(1, 9):
        assert put(kept, number, source="flood") is None
    for number in range(11, 18):
        put(kept, number, source=f"honest {number}")
    honest = {identity(number).peer_id for number in range(11, 18)}
    assert honest <= set(peers(kept))
    # Now nobody is more crowded than a newcomer would be: the publisher has to go to a deeper shard.
    assert put(kept, 30, source="one more") is Refusal.KEY_FULL
    assert kept.page(KEY, start=bytes(20), budget=4000, now=NOW).is_full


def test_one_source_does_not_fill_the_store():
    kept = store(max_per_source=20)
    levels = [0, 600, 1_200, 2_500, 5_000, 10_000]

    def flood(number: int, source: str):
        level = levels[number % len(levels)]
        return put(kept, number, key=candidate_key_of(record_of(identity(number), level=level), depth=0), level=level,
                   source=source)  # fmt: skip

    outcomes = [flood(number, "flood") for number in range(1, 61)]
    assert outcomes.count(None) == len(kept) == 20
    assert set(outcomes[20:]) == {Refusal.HOST_QUOTA}
    assert flood(61, "honest") is None
    assert flood(1, "flood") is None  # what it has may be renewed
    kept.check_invariants()


def test_records_handed_on_count_against_the_node_that_hands_them_on():
    kept = store()
    outcomes = [put(kept, number, source="helper", handed=number % 2 == 0) for number in range(1, 25)]
    assert outcomes.count(None) == kept.limits.max_per_source_per_key
    assert set(outcomes) == {None, Refusal.SOURCE_QUOTA}


def test_a_record_that_its_own_peer_stores_is_no_longer_charged_to_the_node_that_handed_it_on():
    kept = store(max_per_source=1)
    assert put(kept, 1, source="helper", handed=True) is None
    assert put(kept, 2, source="helper", handed=True) is Refusal.HOST_QUOTA
    assert put(kept, 1, source="itself") is None  # the same bytes
    assert put(kept, 2, source="helper", handed=True) is None
    assert put(kept, 2, source="itself 2", version=2) is None
    assert put(kept, 3, source="helper", handed=True) is None
    kept.check_invariants()


def test_a_full_store_takes_from_the_largest_source_and_never_from_an_equal_one():
    kept = store(max_records=12, max_per_source=12)
    for number in range(1, 11):
        assert put(kept, number, source="flood", handed=number == 7) is None
    honest = [11, 12, 13, 14, 15]
    for number in honest:
        assert put(kept, number) is None
    left = set(peers(kept))
    assert {identity(number).peer_id for number in honest} <= left
    assert identity(7).peer_id not in left, "what was handed on goes first"
    assert (len(kept), kept.evicted_from_store) == (12, 3)
    assert put(kept, 20, source="flood") is Refusal.STORE_FULL
    kept.check_invariants()


def test_many_small_sources_push_out_only_the_large_one():
    kept = store(max_records=6)
    for number in range(1, 7):
        assert put(kept, number) is None
    assert [put(kept, number) for number in range(7, 60)] == [Refusal.STORE_FULL] * 53
    assert set(peers(kept)) == {identity(number).peer_id for number in range(1, 7)}


def test_records_handed_on_give_way_to_their_own_publishers():
    kept = store(max_records_per_key=4, max_handed_per_key=4)
    for number in range(1, 5):
        assert put(kept, number, source="helper", handed=True) is None
    assert put(kept, 5, source="helper", handed=True) is Refusal.SOURCE_QUOTA
    assert put(kept, 6, source="itself") is None
    assert len(kept.records(KEY, now=NOW)) == 4
    assert identity(6).peer_id in peers(kept)


def test_a_publisher_is_under_few_keys():
    kept = store(max_keys_per_publisher=4)
    record = record_of(identity(1))
    outcomes = [kept.put(key, signed(1).wire, source="s", now=NOW) for key in keys_of(record)]
    assert len(outcomes) == (MAX_SHARD_DEPTH + 1) + (MAX_PLACE_DEPTH + 1)
    assert outcomes[:4] == [None] * 4
    assert set(outcomes[4:]) == {Refusal.PUBLISHER_QUOTA}


def test_the_whole_store_is_bounded_and_expiry_makes_room():
    kept = store(max_records=5)
    for number in range(1, 6):
        assert put(kept, number) is None
    assert put(kept, 6) is Refusal.STORE_FULL
    assert put(kept, 6, now=NOW + 200, expires_at=int(NOW) + 300) is None
    assert len(kept) == 1


def test_pages_go_round_the_whole_set():
    kept = store()
    numbers = range(1, 31)
    for number in numbers:
        put(kept, number)
    wanted = {identity(number).peer_id for number in numbers}
    start, seen = random.Random(1).randbytes(20), set()
    for _ in range(40):
        page = kept.page(KEY, start=start, budget=1000, now=NOW)
        assert page.total == 30
        assert sum(len(wire) + 3 for wire in page.wires) <= 1000
        for wire in page.wires:
            start = kept.verifier.verify(wire, now=NOW).record.peer_id
            seen.add(start)
        start = ((int.from_bytes(start, "big") + 1) % (1 << 160)).to_bytes(20, "big")
        if seen == wanted:
            break
    assert seen == wanted


def test_what_nobody_refreshed_is_known():
    kept = store()
    put(kept, 1, now=NOW)
    put(kept, 2, now=NOW + 50)
    stale = kept.unrefreshed(older_than=NOW + 10, now=NOW + 60)
    assert [held.record.peer_id for _, held in stale] == [identity(1).peer_id]
    put(kept, 1, now=NOW + 60)  # the same bytes again: refreshed
    assert kept.unrefreshed(older_than=NOW + 10, now=NOW + 60) == []


class StoreMachine(RuleBasedStateMachine):
    """Any sequence of records, sources and times: the bounds hold, and no version ever goes back."""

    def __init__(self):
        super().__init__()
        self.now = NOW
        self.kept = store(
            max_records_per_key=5,
            max_per_source_per_key=3,
            max_per_source=6,
            max_handed_per_key=2,
            max_keys_per_publisher=3,
            max_records=12,
        )
        self.newest = {}

    @rule(
        number=st.integers(1, 12),
        version=st.integers(1, 6),
        lifetime=st.integers(-5, 100),
        level=st.sampled_from([0, 600, 5000]),
        depth=st.integers(0, 2),
        source=st.sampled_from("abc"),
        handed=st.booleans(),
        withdrawn=st.booleans(),
        root=st.booleans(),
    )
    def store_one(self, number, version, lifetime, level, depth, source, handed, withdrawn, root):
        fields = {
            "version": version,
            "level": level,
            "withdrawn": withdrawn,
            "expires_at": int(self.now) + lifetime,
            "role": Role.ROOT if root else Role.ROUTER,
        }
        record = record_of(identity(number), **fields)
        key = roots_key("asdi") if root else candidate_key_of(record, depth=depth)
        refusal = put(self.kept, number, key=key, source=source, now=self.now, handed=handed, **fields)
        if refusal is None:
            assert lifetime > 0

    @rule(seconds=st.floats(0, 60))
    def wait(self, seconds):
        self.now += seconds
        self.kept.expire(now=self.now)

    @invariant()
    def bounds_hold(self):
        self.kept.check_invariants()

    @invariant()
    def versions_only_rise(self):
        versions = {
            (key, held.record.peer_id): held.record.version
            for key in self.kept.keys
            for held in self.kept.records(key, now=self.now)
        }
        for place, version in versions.items():
            assert version >= self.newest.get(place, 0)
        self.newest = versions


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
