"""Full dates from days of the month, and numbers that every root gives alike."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asdi.time import CLOCK_RATE, GUARD, SEQUENCE_SPACE, Calendar, Position, Unwrapper, date_near


@pytest.mark.parametrize(
    ("day", "reference", "expected"),
    [
        (16, date(2001, 7, 16), date(2001, 7, 16)),
        (1, date(2001, 7, 31), date(2001, 8, 1)),
        (31, date(2001, 8, 1), date(2001, 7, 31)),
        (31, date(2002, 1, 1), date(2001, 12, 31)),
        (1, date(2001, 12, 31), date(2002, 1, 1)),
        (29, date(2001, 3, 1), date(2001, 3, 29)),
        (29, date(2004, 3, 1), date(2004, 2, 29)),
        (31, date(2001, 2, 15), date(2001, 1, 31)),
        (30, date(2001, 3, 1), date(2001, 3, 30)),
    ],
)
def test_nearest_date(day, reference, expected):
    assert date_near(day, reference) == expected


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.lists(st.integers(0, 13), max_size=200), st.integers(-13, 13))
def test_calendar_follows_any_run_of_days(start, steps, off):
    """Whatever the months are, a feed that is never silent for two weeks gets its true dates back."""
    calendar = Calendar(start + timedelta(days=off))
    today = start
    for step in [0, *steps]:
        today += timedelta(days=step)
        expected = int(datetime(today.year, today.month, today.day, 12, tzinfo=UTC).timestamp())
        assert calendar.seconds(today.day, 43200) == expected


def test_a_late_line_falls_back_over_midnight():
    calendar = Calendar(date(2001, 12, 31))
    last = calendar.seconds(31, 86399)
    assert calendar.seconds(1, 1) == last + 2
    assert calendar.seconds(31, 86398) == last - 1
    assert calendar.seconds(1, 3) == last + 4


def make_feed(seed: int) -> list[tuple[int, int]]:
    """(true number, time) of a feed whose rate wanders between nothing and 240 a second, most lines lost."""
    random = Random(seed)
    number = random.randrange(1 << 40)
    time = random.randrange(10**9, 1 << 31)
    messages = []
    rate = random.randint(0, 240)
    for _ in range(random.randint(30, 1500)):
        # A few sampled lines a second stand for the hundreds that lie between them: the others are as good as lost.
        messages.extend((number + i, time) for i in sorted(random.sample(range(rate), min(rate, 3))))
        step = random.choice([1, 1, 1, 2, 5])
        number += rate * step
        time += step
        if random.random() < 0.02:
            rate = random.randint(0, 240)
    return messages or [(number, time)]


feeds = st.integers(0, 1 << 32).map(make_feed)


@given(feeds, st.data())
def test_roots_that_start_apart_agree(feed, data):
    first = Unwrapper()
    numbers = {}
    previous = -1
    for true, time in feed:
        an = first.number(true % SEQUENCE_SPACE, time)
        assert an > previous, "numbers rise with the feed"
        assert an % SEQUENCE_SPACE == true % SEQUENCE_SPACE
        previous = an
        if first.settled:
            numbers[true] = an
    later = Unwrapper()
    for true, time in feed[data.draw(st.integers(0, len(feed) - 1)) :]:
        an = later.number(true % SEQUENCE_SPACE, time)
        if later.settled and true in numbers:
            assert an == numbers[true]


@given(feeds, st.data())
def test_a_restart_from_a_saved_position_agrees(feed, data):
    whole = Unwrapper()
    ans = [whole.number(true % SEQUENCE_SPACE, time) for true, time in feed]
    cut = data.draw(st.integers(0, len(feed)))
    before = Unwrapper()
    for true, time in feed[:cut]:
        before.number(true % SEQUENCE_SPACE, time)
    after = Unwrapper(before.position if cut else None)
    assert [after.number(true % SEQUENCE_SPACE, time) for true, time in feed[cut:]] == ans[cut:]


def test_settles_within_a_minute_at_usual_rates():
    for phase in range(0, SEQUENCE_SPACE, 997):
        unwrapper = Unwrapper()
        number = 10**9 + phase
        for second in range(120):
            unwrapper.number(number % SEQUENCE_SPACE, 1_000_000_000 + second)
            if unwrapper.settled:
                break
            number += 86
        assert second <= 64, phase


def test_the_number_says_about_when():
    unwrapper = Unwrapper()
    number = 12345
    for second in range(5000):
        an = unwrapper.number(number % SEQUENCE_SPACE, second + 10**9)
        assert an / CLOCK_RATE <= second + 10**9 <= (an + SEQUENCE_SPACE + GUARD) / CLOCK_RATE + 32
        number += 80
    assert unwrapper.missed == 4999 * 79


def test_repeats_and_losses_are_counted():
    unwrapper = Unwrapper(Position(1000, 500, True))
    assert unwrapper.number(1001, 500) == 1001
    assert unwrapper.number(1001, 501) == 1001
    assert unwrapper.number(1000, 501) == 1000
    assert unwrapper.repeated == 2
    assert unwrapper.number(1010, 501) == 1010
    assert unwrapper.missed == 8
    assert unwrapper.number(7, 501 + 1000) % SEQUENCE_SPACE == 7
    assert unwrapper.restarts == 1
