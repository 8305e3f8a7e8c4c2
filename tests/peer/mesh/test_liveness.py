"""Silence, root freshness, sleep and resilience, as arithmetic."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.mesh.liveness import (
    MAX_RUNS_A_PARENT,
    MAX_RUNS_REMEMBERED,
    RootFeed,
    RootMemory,
    Verdict,
    resilience,
    slept,
    verdict,
)
from peer.mesh.messages import MAX_AGE_MS, ROOT_RESILIENCE, UNFED, RootProof

LIMITS = {"feed_timeout": 3.0, "max_feed_age": 20.0}


@pytest.mark.parametrize(
    ("silence", "expected"),
    [(0.0, Verdict.ALIVE), (0.89, Verdict.ALIVE), (0.9, Verdict.SUSPECT), (2.69, Verdict.SUSPECT), (2.7, Verdict.DEAD)],
)
def test_silence(silence, expected):
    assert verdict(silence, suspect_after=0.9, drop_after=2.7) is expected


@pytest.mark.parametrize(("now", "due", "late"), [(5.0, None, 0.0), (5.0, 5.0, 0.0), (5.6, 5.0, 0.0), (8.0, 5.0, 3.0)])
def test_sleep_is_a_timer_that_came_much_too_late(now, due, late):
    assert slept(now, due, thaw_after=0.7) == late


def test_only_an_advancing_counter_keeps_a_parent_fed():
    feed = RootFeed(RootMemory(0.1))
    assert not feed.is_fresh(0.0, **LIMITS)
    feed.hear(RootProof(1, 10, 100), 5.0)
    assert feed.is_fresh(8.0, **LIMITS)
    feed.hear(RootProof(1, 10, 100), 8.0)  # the same beat again, said to be young: a loop passes it round
    feed.hear(RootProof(1, 9, 0), 8.0)
    assert not feed.is_fresh(8.1, **LIMITS)
    feed.hear(RootProof(1, 11, 0), 8.1)
    assert feed.is_fresh(8.1, **LIMITS)


def test_the_told_age_bounds_a_counter_heard_for_the_first_time():
    feed = RootFeed(RootMemory(0.1))
    feed.hear(RootProof(1, 10, 19_000), 100.0)
    assert feed.is_fresh(100.0, **LIMITS)
    assert not feed.is_fresh(101.5, **LIMITS)


def test_two_roots_alternate():
    feed = RootFeed(RootMemory(0.1))
    for beat in range(20):
        feed.hear(RootProof(1 + beat % 2, beat, 0), beat * 1.0)
        assert feed.advanced_at == beat * 1.0


def test_the_table_of_runs_is_bounded_and_forgets_the_longest_silent():
    feed = RootFeed(RootMemory(0.1))
    for run in range(1, 50):
        feed.hear(RootProof(run, 1, 0), float(run))
    assert len(feed._beats) == MAX_RUNS_A_PARENT
    assert set(feed._beats) == {46, 47, 48, 49}


def test_old_beats_stay_old_on_new_links():
    memory = RootMemory(0.1)
    first = RootFeed(memory)
    first.hear(RootProof(1, 100, 0), 50.0)
    late = RootFeed(memory)
    late.hear(RootProof(1, 100, 500), 60.0)
    assert late.advanced_at == 50.0
    slower = RootFeed(memory)
    slower.hear(RootProof(1, 90, 500), 50.1)
    assert slower.advanced_at == pytest.approx(49.0)
    assert slower.is_fresh(50.1, **LIMITS)


def test_a_parent_that_lies_about_a_counter_does_not_starve_the_others():
    memory = RootMemory(0.1)
    honest, liar, new = RootFeed(memory), RootFeed(memory), RootFeed(memory)
    honest.hear(RootProof(1, 10, 0), 1.0)
    liar.hear(RootProof(1, 2**63, 0), 1.1)
    honest.hear(RootProof(1, 11, 0), 1.2)
    assert honest.is_fresh(1.2, **LIMITS)
    new.hear(RootProof(1, 12, 0), 1.3)
    assert not new.is_fresh(1.3, **LIMITS)
    new.hear(RootProof(1, 13, 0), 1.4)
    assert new.is_fresh(1.4, **LIMITS)


def test_memory_is_bounded():
    memory = RootMemory(0.1)
    for run in range(1_000):
        memory.hear(RootProof(run, 1, 0), float(run))
    assert len(memory._beats) == MAX_RUNS_REMEMBERED


def test_an_unfed_parent_proves_nothing():
    feed = RootFeed(RootMemory(0.1))
    feed.hear(UNFED, 1.0)
    assert feed.passed_down(1.0) == UNFED
    feed.hear(RootProof(1, 1, 500), 1.0)
    assert feed.passed_down(1.25) == RootProof(1, 1, 750)
    assert feed.passed_down(1.0 + MAX_AGE_MS / 1000) == UNFED


@given(st.integers(1, 40), st.lists(st.integers(0, 39), max_size=300))
def test_a_loop_of_believers_runs_dry(length, order):
    """Peers that only hear each other cannot refresh: the counter never advances past what was heard before the cut."""
    feeds = [RootFeed(RootMemory(0.1)) for _ in range(length)]
    for feed in feeds:
        feed.hear(RootProof(1, 5, 0), 0.0)
    now = 0.0
    for step in order:
        now += 0.05
        index = step % length
        feeds[index].hear(feeds[index - 1].passed_down(now), now)
    assert all(feed.advanced_at == 0.0 for feed in feeds)


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ([], 0),
        ([0], 0),
        ([ROOT_RESILIENCE], 1),
        ([ROOT_RESILIENCE] * 2, 2),
        ([2, 2], 2),
        ([2, 1], 1),
        ([1, 1, 1], 1),
        ([3, 3, 3, 1], 3),
    ],
)
def test_resilience(parents, expected):
    assert resilience(parents) == expected


@given(st.lists(st.lists(st.integers(0, 11), max_size=4, unique=True), min_size=1, max_size=10))
def test_resilience_is_a_promise(edges):
    """In any small mesh, a peer of resilience k survives every k-1 deaths: tried one by one."""
    roots = 2
    parents = {roots + i: [p for p in above if p < roots + i] for i, above in enumerate(edges)}
    promised = {0: ROOT_RESILIENCE, 1: ROOT_RESILIENCE}
    for peer, above in parents.items():
        promised[peer] = resilience([promised[p] for p in above])
    everybody = [*range(roots), *parents]
    for peer, above in parents.items():
        others = [p for p in everybody if p != peer]
        for dead in combinations(others, max(0, min(promised[peer], 3) - 1)):
            alive = {p for p in range(roots) if p not in dead}
            for other in parents:
                if other not in dead and any(p in alive for p in parents[other]):
                    alive.add(other)
            assert promised[peer] == 0 or peer in alive, (peer, above, dead)
