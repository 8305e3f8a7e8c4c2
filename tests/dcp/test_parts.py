"""The small machines: numbers, timers, windows, cookies, redialling. Each alone, against what it promises."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp.config import Config
from dcp.control import Hole, Reason
from dcp.gaps import gap_end
from dcp.links.cookies import CookieJar
from dcp.links.link import Link
from dcp.links.rtt import Pace, ReorderWindow, RoundTrip
from dcp.links.window import Pacer, SendWindow
from dcp.parent import Parent
from dcp.redial import FIRST_DELAY, MAX_DELAY, Redial
from dcp.serial import HALF, extend

u64 = st.integers(0, (1 << 63) - 1)


# --- serial numbers ---------------------------------------------------------------------------------------------------


@given(u64, st.integers(-HALF + 1, HALF - 1))
def test_extend_finds_the_position_that_was_meant(reference, offset):
    meant = reference + offset
    assert extend(meant & 0xFFFFFFFF, reference) == meant


@given(u64, u64)
def test_extend_never_strays_more_than_half_the_space(wire, reference):
    assert abs(extend(wire & 0xFFFFFFFF, reference) - reference) <= HALF


# --- round trip, reordering, pace -------------------------------------------------------------------------------------


def test_the_first_sample_replaces_the_guess():
    rtt = RoundTrip(0.1)
    rtt.sample(0.02)
    assert rtt.smoothed == 0.02
    assert rtt.timeout(0.0, 9.0) == pytest.approx(0.06)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=50))
def test_smoothed_round_trip_lies_within_what_was_seen(samples):
    rtt = RoundTrip(0.1)
    for sample in samples:
        rtt.sample(sample)
    assert min(samples) - 1e-9 <= rtt.smoothed <= max(samples) + 1e-9
    assert 0.01 <= rtt.timeout(0.01, 2.0) <= 2.0


def test_negative_samples_are_a_clock_that_lies_and_are_ignored():
    rtt = RoundTrip(0.1)
    rtt.sample(-1.0)
    assert (rtt.smoothed, rtt.samples) == (0.1, 0)


@given(st.lists(st.floats(0, 0.5), max_size=60), st.floats(0.002, 1.0))
def test_the_reordering_window_stays_between_floor_and_cap(samples, cap):
    window = ReorderWindow(0.005, 0.001)
    for sample in samples:
        window.sample(sample)
        assert 0.001 <= window.window(cap) <= max(cap, 0.001)


def test_the_reordering_window_learns_and_forgets():
    window = ReorderWindow(0.005, 0.001)
    assert window.window(1.0) == pytest.approx(0.005)
    for _ in range(40):
        window.sample(0.030)
    assert 0.030 <= window.window(1.0) <= 0.06
    for _ in range(400):
        window.quiet()
    assert window.window(1.0) < 0.002


def test_pace_follows_the_stream():
    pace = Pace()
    now = 0.0
    for _ in range(100):
        now += 0.02
        pace.tick(now)
    assert pace.interval == pytest.approx(0.02)
    for _ in range(100):
        now += 0.02
        pace.tick(now, 4)
    assert pace.interval == pytest.approx(0.005, rel=0.01)


# --- window and pacer -------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 5), st.integers(1, 100_000)),
            st.tuples(st.just("ack"), st.integers(0, 400), st.just(0)),
            st.tuples(st.just("lost"), st.floats(0, 1), st.just(0)),
        ),
        max_size=80,
    )
)
def test_window_accounts_for_every_byte(steps):
    config = Config()
    window = SendWindow(config, room=100)
    flight, an, now, acked = {}, 0, 0.0, 0
    for kind, a, b in steps:
        if kind == "send":
            an += a
            flight[an] = b
            window.sent(an, b, 1)
        elif kind == "ack":
            acked = max(acked, a)
            window.acknowledged(acked)
            flight = {k: v for k, v in flight.items() if k > acked}
        else:
            now += a
            window.lost(now, 0.1)
        assert (window.bytes, window.packets) == (sum(flight.values()), len(flight))
        assert config.min_window <= window.size <= config.max_window
        assert window.is_open == (window.bytes < window.size and window.packets < window.room)


@given(
    st.lists(st.integers(1, 4), max_size=30),
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6),
)
def test_what_a_nack_does_not_miss_is_no_longer_under_way(steps, until, missing):
    window = SendWindow(Config(), room=100)
    ranges = [(start, min(start + length, until)) for start, length in missing if start < until]
    an, flight = 0, {}
    for step in steps:
        an += step
        flight[an] = step
        window.sent(an, step, 1)
    window.heard_of(until, ranges)
    left = {an: size for an, size in flight.items() if an > until or any(a < an <= b for a, b in ranges)}
    assert (window.bytes, window.packets) == (sum(left.values()), len(left))


def test_the_window_shrinks_once_a_round_trip():
    window = SendWindow(Config(), room=100)
    size = window.size
    window.lost(1.0, 0.1)
    assert window.size == int(size * 0.7)
    window.lost(1.05, 0.1)
    assert window.size == int(size * 0.7)
    window.lost(1.2, 0.1)
    assert window.size < int(size * 0.7)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 3_000)), min_size=1, max_size=50))
def test_a_pacer_never_lets_more_through_than_rate_and_burst(steps):
    pacer = Pacer(burst=4_000)
    now = spent = 0
    for wait, size in steps:
        now += wait
        if pacer.allows(now, 10_000):
            pacer.spent(size)
            spent += size
        else:
            assert pacer.ready_at(now, 10_000) > now
    assert spent <= 4_000 + now * 10_000 + 3_000


# --- cookies ----------------------------------------------------------------------------------------------------------


def test_a_cookie_is_good_for_one_address_for_a_minute_or_two():
    jar = CookieJar(random.Random(1))
    cookie = jar.bake(("192.0.2.1", 4000), 59.0)
    assert jar.is_ours(cookie, ("192.0.2.1", 4000), 59.5)
    assert jar.is_ours(cookie, ("192.0.2.1", 4000), 119.0)
    assert not jar.is_ours(cookie, ("192.0.2.1", 4000), 121.0)
    assert not jar.is_ours(cookie, ("192.0.2.1", 4001), 59.5)
    assert not jar.is_ours(cookie, ("192.0.2.2", 4000), 59.5)
    assert not CookieJar(random.Random(2)).is_ours(cookie, ("192.0.2.1", 4000), 59.5)


@given(st.binary(min_size=16, max_size=16))
def test_nobody_guesses_a_cookie(guess):
    assert not CookieJar(random.Random(1)).is_ours(guess, ("192.0.2.1", 4000), 0.0)


# --- gaps: a table ----------------------------------------------------------------------------------------------------

CONFIG = Config(join_patience=3, behind_patience=2, answer_patience=4)


def parent(
    *, up: bool = True, highest: int | None = 100, progress_at: float = 0.0, hole: tuple[int, int] | None = None
) -> Parent:
    link = Parent(Link(1, ("p", 1), CONFIG, now=0.0), now=0.0)
    link.up = up
    link.highest = highest
    link.progress_at = progress_at
    if hole is not None:
        link.add_hole(Hole(0, *hole), 10)
    return link


@pytest.mark.parametrize(
    ("links", "now", "expected"),
    [
        ([], 99.0, None),
        ([parent()], 99.0, None),  # nobody has said that it is lost: `abandon_after` ends this, not a hole
        ([parent(hole=(5, 20))], 0.0, 20),
        ([parent(hole=(10, 20))], 0.0, 20),
        ([parent(hole=(11, 20))], 0.0, None),  # the hole begins beyond the position
        ([parent(hole=(5, 10))], 0.0, None),  # and this one ends at it
        ([parent(hole=(5, 20)), parent(hole=(9, 15))], 0.0, 15),  # the smallest end: beyond it somebody may help
        ([parent(hole=(5, 20)), parent(up=False)], 2.9, None),
        ([parent(hole=(5, 20)), parent(up=False)], 3.1, 20),
        ([parent(hole=(5, 20)), parent(highest=8, progress_at=50.0)], 51.9, None),  # behind, but it advances
        ([parent(hole=(5, 20)), parent(highest=8, progress_at=50.0)], 52.1, 20),
        ([parent(hole=(5, 20)), parent(highest=100)], 3.9, None),  # claims more: answers, or is given up
        ([parent(hole=(5, 20)), parent(highest=100)], 4.1, 20),
        ([parent(hole=(5, 20)), parent(highest=None)], 3.9, None),
    ],
)
def test_gap_decisions(links, now, expected):
    assert gap_end(links, 10, 0, CONFIG, stuck_since=0.0, now=now) == expected


def test_a_hole_of_another_epoch_says_nothing():
    assert gap_end([parent(hole=(5, 20))], 10, 1, CONFIG, stuck_since=0.0, now=99.0) is None


def test_holes_that_touch_are_one():
    link = parent(hole=(5, 20))
    link.add_hole(Hole(0, 20, 30), 10)
    assert link.hole_at(10, 0) == 30
    link.add_hole(Hole(0, 40, 50), 10)  # does not touch: the one that holds our position stays
    assert link.hole_at(10, 0) == 30
    link.add_hole(Hole(0, 9, 12), 10)  # a later, smaller word about our position is the truth now
    assert link.hole_at(10, 0) == 12


# --- redialling -------------------------------------------------------------------------------------------------------

A, B = ("192.0.2.1", 1), ("192.0.2.2", 1)


def test_redial_backs_off_and_starts_over_after_success():
    redial = Redial(random.Random(1))
    redial.want(A, b"hello")
    now, delays = 0.0, []
    for _ in range(8):
        redial.failed(A, Reason.SILENT, "silent", b"", now)
        at = redial.next_at()
        delays.append(at - now)
        assert redial.due(at - 1e-6) == []
        assert redial.due(at) == [(A, b"hello")]
        assert redial.due(at) == []
        now = at
    assert FIRST_DELAY / 2 <= delays[0] <= FIRST_DELAY
    assert MAX_DELAY / 2 <= delays[-1] <= MAX_DELAY
    redial.opened(A)
    redial.failed(A, Reason.SILENT, "silent", b"", now)
    assert redial.next_at() - now <= FIRST_DELAY


def test_a_renewed_session_is_dialled_at_once():
    redial = Redial(random.Random(1))
    redial.want(A)
    redial.failed(A, Reason.RENEW, "renew", b"", 5.0)
    assert redial.due(5.0) == [(A, b"")]


def test_hopeless_only_when_every_sender_refused_for_good():
    redial = Redial(random.Random(1))
    assert not redial.is_hopeless
    redial.want(A)
    redial.want(B)
    redial.failed(A, Reason.STREAM_UNKNOWN, "stream unknown", b"", 0.0)
    assert not redial.is_hopeless
    redial.failed(B, Reason.MODE_MISMATCH, "mode mismatch", b"byte stream", 0.0)
    assert redial.is_hopeless
    assert redial.why() == "192.0.2.1:1: stream unknown; 192.0.2.2:1: mode mismatch (byte stream)"
    assert redial.next_at() == math.inf
    redial.forget(B)
    assert redial.is_hopeless


def test_who_is_forgotten_is_not_dialled_again():
    redial = Redial(random.Random(1))
    redial.want(A)
    redial.failed(A, Reason.SILENT, "silent", b"", 0.0)
    redial.forget(A)
    redial.failed(A, Reason.SILENT, "silent", b"", 0.0)
    assert redial.due(99.0) == []


# --- knobs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [{"ack_interval": 0.0}, {"max_rto": math.inf}, {"datagram_bytes": 100}, {"max_log_packets": 1}, {"min_rto": -1.0}],
)
def test_senseless_knobs_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad)).split("_")[0]):
        Config(**bad)


def test_the_papers_timers_are_fixed():
    paper = Config.paper()
    assert (paper.adaptive, paper.reorder_window, paper.slow_nack_interval) == (False, 0.005, 0.3)
    assert replace(paper, ack_interval=1.0).ack_interval == 1.0
