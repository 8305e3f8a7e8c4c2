"""The cache of candidates: whose word counts, who is avoided for how long, who is forgotten."""

from __future__ import annotations

from dataclasses import replace

from peer.mesh.candidates import AVOIDANCE, CandidateCache, CandidateRecord, network_prefix
from peer.mesh.messages import UNPLACED, PeerAt, PeerId, RefuseReason

ME = PeerId(b"me")


def record(name: str, **changes) -> CandidateRecord:
    host = f"10.0.{len(name)}.{ord(name[0]) % 250 + 1}"
    plain = CandidateRecord(PeerId(name.encode()), (host, 4_000), 700, 1, 0.5, 2, 3, 2)
    return replace(plain, **changes)


def cache_of(*records: CandidateRecord, limit: int = 64) -> CandidateCache:
    cache = CandidateCache(ME, limit=limit, lifetime=60.0)
    cache.add_records(records, 0.0)
    return cache


def eligible(cache: CandidateCache, now: float = 1.0, below: int = UNPLACED, exclude=()):
    return {c.peer_id.decode() for c in cache.eligible(now, below=below, exclude=set(exclude))}


def test_only_lower_levels_and_nobody_twice():
    cache = cache_of(record("a", level=100), record("b", level=900), record("me"))
    assert eligible(cache) == {"a", "b"}
    assert eligible(cache, below=900) == {"a"}
    assert eligible(cache, exclude=[PeerId(b"a")]) == {"b"}


def test_old_candidates_are_forgotten():
    assert eligible(cache_of(record("a")), now=61.0) == set()


def test_a_refusal_keeps_us_away_for_its_time():
    cache = cache_of(record("a", version=1))
    cache.refused(PeerId(b"a"), RefuseReason.FULL, until=1.0 + AVOIDANCE[RefuseReason.FULL])
    assert eligible(cache, now=2.9) == set()
    assert eligible(cache, now=3.0) == {"a"}


def test_a_newer_record_lifts_what_we_held_against_the_older_but_not_a_final_refusal():
    cache = cache_of(record("a", version=1), record("b", version=1))
    cache.failed(PeerId(b"a"), now=1.0)
    cache.refused(PeerId(b"b"), RefuseReason.POLICY, until=301.0)
    cache.add_records([record("a", version=1), record("b", version=1)], 2.0)
    assert eligible(cache, now=2.0) == set()
    cache.add_records([record("a", version=2), record("b", version=2)], 2.0)
    assert eligible(cache, now=2.0) == {"a"}


def test_the_silent_are_asked_again_when_there_is_nobody_else():
    cache = cache_of(record("a"), record("b"), record("c"))
    cache.failed(PeerId(b"a"), now=1.0)
    cache.failed(PeerId(b"b"), now=2.5)
    cache.refused(PeerId(b"c"), RefuseReason.LEVEL, until=9.0)  # it answered: no silence, and it meant it
    assert eligible(cache, now=3.0) == set()
    assert [c.peer_id for c in cache.last_resort(3.0, below=UNPLACED, exclude=())] == [b"a"]
    cache.answered(PeerId(b"a"), round_trip=0.1, now=4.0)
    assert [c.peer_id for c in cache.last_resort(5.0, below=UNPLACED, exclude=())] == [b"b"]


def test_an_older_record_changes_nothing():
    cache = cache_of(record("a", version=5, level=700))
    cache.add_records([record("a", version=4, level=5)], 1.0)
    assert cache.find(PeerId(b"a")).level == 700


def test_silence_counts_double_each_time():
    cache = cache_of(record("a"))
    until = []
    for _ in range(5):
        cache.failed(PeerId(b"a"), now=0.0)
        until.append(cache.find(PeerId(b"a")).avoid_until)
    assert until == [5.0, 10.0, 20.0, 40.0, 40.0]


def test_hearsay_does_not_move_a_peer_that_we_have_a_record_of():
    cache = cache_of(record("a"))
    before = cache.find(PeerId(b"a")).address
    cache.add_hearsay([PeerAt(PeerId(b"a"), ("198.51.100.1", 9), 5)], teller=None, now=1.0)
    assert cache.find(PeerId(b"a")).address == before
    assert cache.find(PeerId(b"a")).level == 700


def test_hearsay_about_ourselves_or_nonsense_levels_is_dropped():
    cache = cache_of()
    cache.add_hearsay(
        [PeerAt(ME, ("10.0.0.1", 1), 5), PeerAt(PeerId(b"x"), ("10.0.0.1", 1), UNPLACED)], teller=None, now=0
    )
    assert len(cache) == 0


def test_the_cache_is_bounded_and_keeps_roots():
    cache = cache_of(record("root", is_root=True, level=0), limit=8)
    for index in range(100):
        cache.add_records([record(f"p{index}")], float(index))
    assert len(cache) == 8
    assert cache.evicted == 93
    assert cache.find(PeerId(b"root")) is not None


def test_prefixes_of_both_families():
    assert network_prefix("192.0.2.1") == network_prefix("192.0.2.99") != network_prefix("192.0.3.1")
    assert network_prefix("2001:db8:1::1") == network_prefix("2001:db8:1:2::9") != network_prefix("2001:db8:2::1")
