"""The checker: what counts as lost, what as wrong, and what as neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.check import checker
from demo.check.checker import ClientCheck
from tests.demo.feeds import FIRST, crc, truth
from xmlswitch import Query

EVERYTHING = Query.parse("true()")
LOW = Query.parse("/flight/altitude < 5")
LATER = 1_000.0
"""A moment after everything was due."""


def started(query: Query = EVERYTHING, *, published: int = 0, at: int = 100) -> ClientCheck:
    check = ClientCheck("client-1", truth(published_until=published), query)
    check.started(at)
    return check


def publish(check: ClientCheck, first: int, last: int) -> None:
    for fact in check._truth.publish(first, last):
        check.published(fact)


def take(check: ClientCheck, *numbers: int) -> None:
    for an in numbers:
        publish(check, an, an)
        check.packet(an, crc(an))


def test_everything_in_order_is_right():
    check = started()
    take(check, *range(101, 121))
    assert (check.delivered, check.lost, check.wrong, check.missing) == (20, 0, 0, 0)


def test_what_is_published_and_not_handed_over_is_missing_and_lost_when_given_up():
    check = started(LOW)
    publish(check, 101, 120)
    assert check.missing == 10
    assert check.oldest_missing == 101
    check.give_up(LATER)
    assert (check.lost, check.wrong) == (10, 10)


def test_what_is_due_just_now_is_not_lost_when_the_rest_is_given_up():
    """Found by a mesh that could not become whole: packets of the last tenth of a second were told as lost."""
    check = started()
    publish(check, 101, 110)
    check.give_up(truth()[105].due_at)
    assert (check.lost, check.missing) == (5, 5)


def test_a_gap_is_lost_but_not_wrong():
    check = started(LOW)
    publish(check, 101, 120)
    take(check, 101)
    check.gap(101, 110)
    assert (check.lost, check.gaps, check.wrong) == (4, 1, 0)  # 102, 103, 104 and 110 are low


def test_a_gap_over_what_nobody_published_loses_nothing():
    check = started()
    check.gap(100, 150)
    assert (check.lost, check.wrong) == (0, 0)


def test_a_gap_over_what_is_told_late_to_be_published_loses_it():
    check = started()
    check.gap(100, 105)
    publish(check, 103, 104)
    assert (check.lost, check.wrong) == (2, 0)


def test_a_silent_skip_is_lost_and_wrong():
    check = started()
    publish(check, 101, 103)
    take(check, 101, 103)
    assert (check.missing, check.oldest_missing, check.lost) == (1, 102, 0), "it may still come as omitted"
    check.give_up(LATER)
    assert (check.lost, check.wrong) == (1, 1)
    assert "102 was skipped in silence" in check.complaints[0]


def test_a_silent_skip_is_found_when_the_root_tells_late():
    check = started()
    take(check, 101, 103)
    assert check.lost == 0
    publish(check, 102, 102)
    check.give_up(LATER)
    assert (check.lost, check.wrong) == (1, 1)


def test_a_skipped_packet_that_comes_as_omitted_is_late_and_not_lost():
    check = started()
    publish(check, 101, 103)
    take(check, 101, 103)
    check.omitted(102, crc(102))
    check.give_up(LATER)
    assert (check.late, check.delivered, check.lost, check.wrong, check.missing) == (1, 3, 0, 0, 0)
    check.omitted(102, crc(102))
    assert check.wrong == 1, "once each"


def test_a_skipped_packet_is_lost_when_the_client_is_far_past_it(monkeypatch):
    monkeypatch.setattr(checker, "OWED_FOR", 10)
    check = started()
    publish(check, 101, 130)
    take(check, 101, *range(103, 131))
    assert (check.lost, check.wrong) == (1, 1)


def test_what_was_published_before_the_start_is_told_late_and_not_lost():
    """Found in the first run on a busy machine: a root's report came after the client's start."""
    check = started(at=110)
    publish(check, 101, 110)
    assert (check.lost, check.wrong) == (0, 0)


@pytest.mark.parametrize(
    ("an", "checksum", "complaint"),
    [
        (101, crc(101), "arrived again"),
        (103, 12345, "differs from the feed"),
        (9999, 1, "is not in the feed"),
    ],
)
def test_repeated_altered_and_invented_packets_are_wrong(an, checksum, complaint):
    check = started()
    take(check, 101, 102)
    assert check.packet(an, checksum) is None
    assert check.wrong == 1
    assert complaint in check.complaints[0]


def test_what_was_not_asked_for_is_wrong():
    check = started(LOW)
    take(check, 109)
    assert (check.wrong, check.delivered) == (1, 0)
    assert "was not asked for" in check.complaints[0]


def test_a_packet_before_the_start_is_wrong():
    check = ClientCheck("client-1", truth(), EVERYTHING)
    assert check.packet(101, crc(101)) is None
    assert check.wrong == 1


def test_a_query_holds_up_to_its_switch_and_the_new_one_after_it():
    check = started(LOW)
    publish(check, 101, 120)
    take(check, 101, 102, 103, 104)
    check.switched(107, EVERYTHING)
    take(check, 108, 109, 110)
    assert (check.delivered, check.wrong, check.lost) == (7, 0, 0)
    assert check.missing == 10


def test_a_switch_over_something_wanted_loses_it():
    check = started(LOW)
    publish(check, 101, 120)
    take(check, 101)
    check.switched(103, EVERYTHING)
    check.give_up(0.0)  # only what was skipped: the rest is not due yet
    assert (check.lost, check.wrong) == (2, 2)


def test_a_client_that_comes_back_goes_on_where_it_was():
    check = started()
    take(check, 101, 102)
    publish(check, 103, 110)
    check.started(102)
    take(check, 103, 104)
    assert (check.lost, check.wrong, check.missing) == (0, 0, 6)


def test_a_client_that_comes_back_later_has_lost_what_lies_between():
    check = started()
    publish(check, 101, 110)
    check.started(105)
    assert check.lost == 5


@given(kept=st.sets(st.integers(FIRST, FIRST + 60)), low=st.booleans())
def test_lost_is_exactly_what_was_wanted_and_dropped(kept, low):
    query = LOW if low else EVERYTHING
    check = started(query)
    publish(check, FIRST, FIRST + 60)
    wanted = {an for an in range(FIRST, FIRST + 61) if not low or an % 10 < 5}
    for an in sorted(kept & wanted):
        check.packet(an, crc(an))
    check.give_up(LATER)
    assert check.lost == len(wanted - kept)
    assert check.delivered == len(kept & wanted)
