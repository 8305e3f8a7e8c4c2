"""ANs: the same packet has the same number at every root, or none at all."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from asdi.flights import Feed
from peer.feeds.mark import Mark
from peer.feeds.sequencer import Aligner, AsdiSequencer, ContentSequencer, Numbered, PositionSequencer

MOMENT = 1_794_798_734  # in November 2026
DAY = date(2026, 11, 16)


def lines(seconds: int = 240, start: int = MOMENT) -> list[bytes]:
    return [line.text.encode() for line in Feed().lines(start, start + seconds)]


# --- by the feed's own sequence ---------------------------------------------------------------------------------------


def test_asdi_roots_that_start_apart_agree():
    feed = lines()
    first, second = AsdiSequencer(DAY), AsdiSequencer(DAY)
    given_first = {n.an: n.payload for line in feed if (n := first.number(line))}
    given_second = {n.an: n.payload for line in feed[97:] if (n := second.number(line))}
    both = given_first.keys() & given_second.keys()
    assert len(both) > 100
    assert all(given_first[an] == given_second[an] for an in both)
    assert {payload: an for an, payload in given_first.items() if an in both} == {
        payload: an for an, payload in given_second.items() if an in both
    }


def test_a_line_that_is_lost_or_unreadable_is_a_hole():
    feed = lines(seconds=120)
    sequencer = AsdiSequencer(DAY, waits=False)
    broken = [line if place not in (5, 9) else b"not a message" for place, line in enumerate(feed) if place != 20]
    numbered = [n for line in broken if (n := sequencer.number(line))]
    whole = AsdiSequencer(DAY, waits=False)
    expected = [n for line in feed if (n := whole.number(line))]
    missing = {expected[5].an, expected[9].an, expected[20].an}
    assert [n.an for n in numbered] == [n.an for n in expected if n.an not in missing]
    assert {n.an for n in numbered if not n.contiguous} == {an + 1 for an in missing}
    assert sum(sequencer.errors.values()) == 2
    assert sequencer.missed == 3


def test_an_asdi_root_goes_on_from_its_mark():
    feed = lines()
    before = AsdiSequencer(DAY, waits=False)
    given_before = [n for line in feed[:200] if (n := before.number(line))]
    after = AsdiSequencer(DAY, before.mark, waits=False)
    given_after = [n for line in feed[150:] if (n := after.number(line))]
    assert given_after[0].an == given_before[-1].an + 1
    assert given_after[0].contiguous


def test_a_live_root_waits_until_its_numbers_are_sure():
    feed = lines()
    sequencer = AsdiSequencer(DAY)
    numbered = [n for line in feed if (n := sequencer.number(line))]
    assert sequencer.unsettled + len(numbered) == len(feed)


# --- by position ------------------------------------------------------------------------------------------------------


def test_positions_count_from_one():
    sequencer = PositionSequencer()
    assert [sequencer.number(b"x") for _ in range(2)] == [Numbered(1, b"x"), Numbered(2, b"x")]
    assert sequencer.mark == Mark(2)


# --- by content -------------------------------------------------------------------------------------------------------

HEARTBEAT = b"<hb/>"


def stream(kinds: list[bool]) -> list[bytes]:
    """Packets that are all different, with heartbeats that are all alike between them."""
    return [HEARTBEAT if beat else b"<p>%d</p>" % place for place, beat in enumerate(kinds)]


@settings(max_examples=150)
@given(
    st.lists(st.booleans(), min_size=30, max_size=90),
    st.integers(0, 40),
    st.integers(0, 40),
    st.lists(st.booleans(), max_size=200),
    st.integers(1, 10**12),
    st.sets(st.integers(0, 90), max_size=20),
)
def test_an_alignment_is_right_or_not_there(kinds, own_from, mesh_from, turns, base, gaps):
    packets = stream(kinds)
    own, mesh = packets[own_from:], [(base + at, packets[at]) for at in range(mesh_from, len(packets))]
    sequencer = ContentSequencer(run=4, window=64, look_every=1)
    numbered: list[Numbered] = []
    for is_own in [*turns, *[True, False] * len(packets)]:
        if is_own and own:
            numbered += sequencer.number(own.pop(0))
        elif not is_own and mesh:
            an, payload = mesh.pop(0)
            if an - base not in gaps:
                numbered += sequencer.heard(an, payload)
    assert all(n.payload == packets[n.an - base] for n in numbered)
    ans = [n.an for n in numbered]
    assert ans == sorted(set(ans))
    assert all(later.contiguous == (later.an == n.an + 1) for n, later in pairwise(numbered))


def test_a_later_root_takes_over_the_numbering():
    packets = stream([False] * 40)
    sequencer = ContentSequencer(run=8, look_every=1)
    numbered: list[Numbered] = []
    for at, payload in enumerate(packets):
        if at >= 10:
            numbered += sequencer.number(payload)
        if at < 25:
            numbered += sequencer.heard(1_000 + at, payload)
    assert not sequencer.listening
    assert [(n.an, n.payload) for n in numbered] == [(1_000 + at, packets[at]) for at in range(10, 40)]


def test_repeating_content_never_aligns():
    sequencer = ContentSequencer(run=3, look_every=1)
    packets = [b"<p>%d</p>" % (at % 5) for at in range(60)]
    for at, payload in enumerate(packets):
        assert sequencer.heard(at, payload) == []
        if at >= 7:
            assert sequencer.number(payload) == []
    assert sequencer.listening
    assert sequencer.ambiguous


def test_a_feed_that_broke_listens_again_and_leaves_a_hole():
    packets = stream([False] * 60)
    sequencer = ContentSequencer(run=4, look_every=1)
    sequencer.count_alone()
    numbered = [n for payload in packets[:20] for n in sequencer.number(payload)]
    assert [n.an for n in numbered] == list(range(1, 21))
    sequencer.broke()
    assert sequencer.listening
    later: list[Numbered] = []
    for at in range(25, 60):  # five were lost
        later += sequencer.number(packets[at])
        later += sequencer.heard(at + 1, packets[at])
    assert [(n.an, n.payload) for n in later] == [(at + 1, packets[at]) for at in range(25, 60)]
    assert [n.an for n in later if not n.contiguous] == [26]


def test_alone_after_a_break_or_a_restart_a_gap_is_told():
    sequencer = ContentSequencer(Mark(100))
    assert sequencer.number(b"a") == []
    assert sequencer.count_alone() == [Numbered(102, b"a", False)]
    assert sequencer.number(b"b") == [Numbered(103, b"b", True)]


def test_what_comes_too_early_is_bounded():
    sequencer = ContentSequencer(run=2, window=10)
    for at in range(25):
        sequencer.number(b"%d" % at)
    assert sequencer.dropped == 15
    assert [n.payload for n in sequencer.count_alone()] == [b"%d" % at for at in range(15, 25)]


def test_no_alignment_before_the_run_is_long_enough():
    aligner = Aligner(run=5)
    for at in range(4):
        aligner.own(b"%d" % at)
        aligner.mesh(70 + at, b"%d" % at)
    assert aligner.offset() is None
    aligner.own(b"4")
    aligner.mesh(74, b"4")
    assert aligner.offset() == 70
