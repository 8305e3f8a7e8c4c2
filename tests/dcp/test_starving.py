"""When a receiver says that the stream goes on elsewhere, and when it must not."""

from __future__ import annotations

from types import SimpleNamespace

from dcp import Config
from dcp.starving import StarvationWatch


def watch():
    return StarvationWatch(Config(), None)


def parents(head):
    return [SimpleNamespace(up=True, highest=head)]


def test_a_receiver_that_was_just_made_is_not_starved():
    """The last claim counted as made at time 0: every honest peer complained at its first packet."""
    starving = watch()
    assert starving.look(0, parents(5), has_room=True, now=1_000.0) is None
    assert starving.look(5, parents(6), has_room=True, now=1_000.3) is None
    assert starving.episodes == 0


def test_heads_that_advance_without_claims_are_reported_once_each_time():
    starving = watch()
    starving.look(5, parents(5), has_room=True, now=10.0)
    assert starving.look(5, parents(8), has_room=True, now=11.0) is None, "not yet"
    assert starving.look(5, parents(9), has_room=True, now=12.5) == (9, 10.0)
    assert starving.look(5, parents(10), has_room=True, now=13.0) is None
    starving.look(10, parents(10), has_room=True, now=14.0)
    assert starving.look(10, parents(12), has_room=True, now=17.0) == (12, 14.0)
    assert starving.episodes == 2


def test_who_takes_nothing_is_sent_nothing():
    starving = watch()
    starving.look(5, parents(5), has_room=True, now=10.0)
    assert starving.look(5, parents(50), has_room=False, now=20.0) is None
    assert starving.look(5, parents(51), has_room=True, now=20.5) is None


def test_one_starved_from_its_very_start_is_reported():
    starving = watch()
    starving.look(0, parents(5), has_room=True, now=10.0)
    assert starving.look(0, parents(9), has_room=True, now=12.5) == (9, 10.0)
