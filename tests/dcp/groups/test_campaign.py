"""Seeded campaigns of multicast groups. A failure prints its seed, and that seed repeats it exactly."""

from __future__ import annotations

import pytest

from dcp.groups import Groups, Kind
from dcp.testing import StreamBroken
from tests.dcp.groups.campaign import GroupCampaign


@pytest.mark.slow
def test_everybody_gets_the_stream_while_groups_come_and_go():
    assert sum(GroupCampaign(seed).run().carried for seed in range(2)), "some packets went to groups"


@pytest.mark.slow
def test_a_group_of_two_queries_would_break_the_promise(monkeypatch):
    """The campaign can fail: without the rule "one query", members skip in silence what others did not ask for."""
    monkeypatch.setattr(Groups, "_kind_of", lambda self, link: Kind(b"", 0, "lan"))
    with pytest.raises(StreamBroken):
        run_all(20)


def run_all(seeds: int) -> None:
    for seed in range(seeds):
        GroupCampaign(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 4_000, 25))
def test_groups_soak(first):
    for seed in range(first, first + 25):
        GroupCampaign(seed).run()
