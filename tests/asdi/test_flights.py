"""The built-in feed: repeatable, random access, dense numbers, real enough."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asdi
from asdi.flights import Feed
from asdi.flights.table import load

pytestmark = pytest.mark.xdist_group("flights")  # six hours of them are made once

NOON = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp())
HOUR = 3600
# First AN, number of lines and digest of six hours.
GOLDEN = (3044341250, 51_294, "c0a556f55473a70e")


@pytest.fixture(scope="module")
def feed():
    return Feed()


@pytest.fixture(scope="module")
def six_hours(feed):
    return list(feed.lines(NOON, NOON + 6 * HOUR))


def test_bytes_never_change(six_hours):
    """Two roots of different versions must agree too: a change here is a change of the feed for everybody."""
    digest = hashlib.sha256("\n".join(line.text for line in six_hours).encode()).hexdigest()
    assert (six_hours[0].an, len(six_hours), digest[:16]) == GOLDEN


@settings(max_examples=30)
@given(start=st.integers(0, 6 * HOUR - 1), length=st.integers(0, HOUR // 2))
def test_starting_anywhere_gives_the_same(feed, six_hours, start, length):
    stop = min(start + length, 6 * HOUR)
    expected = [line for line in six_hours if NOON + start <= line.time < NOON + stop]
    assert list(feed.lines(NOON + start, NOON + stop)) == expected


@settings(max_examples=15)
@given(
    st.integers(0, 4_000_000_000),
    st.integers(1, 5),
    st.integers(0, 1 << 40),
)
def test_numbers_are_dense_and_counted_without_making_messages(time, copies, seed):
    feed = Feed(seed=seed, copies=copies)
    lines = list(feed.lines(time, time + 900))
    assert [line.an for line in lines] == list(range(lines[0].an, lines[0].an + len(lines)))
    assert feed.first_an(time) == lines[0].an
    assert feed.first_an(time + 900) == lines[-1].an + 1


def test_days_are_counted_as_they_are_made():
    """From the beginning of time, over midnight, and over the turn of the table's two weeks, a Monday."""
    feed = Feed()
    assert feed.first_an(0) == 0
    for start, stop in ((0, 4 * HOUR), (22 * HOUR, 26 * HOUR), (11 * 24 * HOUR - 2 * HOUR, 11 * 24 * HOUR + 2 * HOUR)):
        assert sum(1 for _ in feed.lines(start, stop)) == feed.first_an(stop) - feed.first_an(start)


def test_messages_are_in_order_and_parse(six_hours):
    calendar = asdi.Calendar(datetime.fromtimestamp(NOON, UTC).date())
    for line in six_hours:
        message = asdi.parse(line.text)
        assert asdi.to_text(message) == line.text
        assert message.sequence == line.an & 0xFFFF
        assert calendar.seconds(message.day, message.second) == line.time
    assert all(a.time <= b.time for a, b in pairwise(six_hours))


def test_every_public_type_is_there(six_hours):
    kinds = Counter(line.text[16:18] for line in six_hours)
    assert set(kinds) == {"FZ", "AF", "DZ", "TZ", "UZ", "TO", "AZ", "RZ", "HB"}
    assert kinds["TZ"] > 0.8 * kinds.total()


def test_tracks_come_once_a_minute_a_flight(six_hours):
    times: dict[str, list[int]] = {}
    for line in six_hours:
        message = asdi.parse(line.text)
        if message.type == "TZ":
            times.setdefault(message.flight, []).append(line.time)
    gaps = Counter(b - a for series in times.values() for a, b in pairwise(series))
    # A callsign flies more than once a day now and then; all other steps are exactly a minute.
    assert gaps[60] > 0.99 * gaps.total()


def test_flights_move_climb_and_descend(six_hours):
    """One flight from end to end: departs, climbs, cruises, comes down near its destination, arrives."""
    by_flight: dict[str, list[asdi.Message]] = {}
    for line in six_hours:
        message = asdi.parse(line.text)
        if message.flight:
            by_flight.setdefault(message.flight, []).append(message)
    whole = []
    for messages in by_flight.values():
        kinds = [message.type for message in messages]
        if (kinds[0], kinds[-1], kinds.count("FZ"), kinds.count("AZ")) == ("FZ", "AZ", 1, 1):
            whole.append(messages)
    assert len(whole) > 100
    airports = {airport.icao: airport for airport in load().airports}
    for messages in whole[:100]:
        tracks = [m.body for m in messages if m.type == "TZ"]
        heights = [int(track.altitude.rstrip("C")) for track in tracks]
        top = heights.index(max(heights))
        assert heights[: top + 1] == sorted(heights[: top + 1])
        assert heights[top:] == sorted(heights[top:], reverse=True)
        goal = airports[messages[-1].body.destination]
        latitude = int(tracks[-1].latitude[:2]) + int(tracks[-1].latitude[2:4]) / 60
        assert abs(latitude - goal.latitude) < 0.5
        assert all(60 <= int(track.speed) <= 640 for track in tracks)


def test_rates_are_diurnal(feed):
    midnight = NOON // 86400 * 86400
    rates = [feed.first_an(midnight + (h + 1) * HOUR) - feed.first_an(midnight + h * HOUR) for h in range(24)]
    # New York's night is 4 to 10 UTC; its early evening is 21 to 24 UTC.
    assert min(rates) in rates[6:11]
    assert max(rates[20:24] + rates[:1]) > 4 * min(rates)


def test_copies_scale_the_rate():
    one, ten = Feed(), Feed(copies=10)
    count = [f.first_an(NOON + 86400) - f.first_an(NOON) for f in (one, ten)]
    heartbeats = 86400 // 30
    assert count[1] - heartbeats == pytest.approx(10 * (count[0] - heartbeats), rel=0.02)
    with pytest.raises(ValueError, match="copies"):
        Feed(copies=0)


def test_seed_changes_content_but_not_the_count(feed):
    other = Feed(seed=7)
    lines = list(islice(other.lines(NOON), 2000))
    assert [line.text for line in lines] != [line.text for line in islice(feed.lines(NOON), 2000)]
    assert list(islice(Feed(seed=7).lines(NOON), 2000)) == lines


def test_packets_are_the_lines(feed, six_hours):
    for packet, line in zip(feed.packets(NOON, NOON + 600), six_hours, strict=False):
        assert packet == (line.an, line.time, asdi.to_xml(asdi.parse(line.text)))


def test_import_is_light():
    code = (
        "import sys, asdi.flights; "
        "heavy = {'pyspark', 'pandas', 'numpy', 'pyarrow', 'lxml', 'trio'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
