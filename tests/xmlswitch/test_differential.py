"""A slice of what `make fuzz` does with the target `switch`, the same at every run."""

from __future__ import annotations

import pytest

from tests.xmlswitch.differential import scenario


@pytest.mark.parametrize("slice_", range(12))
def test_scenarios(slice_):
    assert sum(scenario(slice_ * 1000 + seed) for seed in range(12)) > 100


@pytest.mark.soak
@pytest.mark.parametrize("slice_", range(100, 400))
def test_long_campaign(slice_):
    assert sum(scenario(slice_ * 1000 + seed, steps=30) for seed in range(60)) > 1000


def test_a_switch_that_forgets_conditions_is_noticed(monkeypatch):
    """The check can fail: when no condition further down is noted further up, some scenario finds out."""
    monkeypatch.setattr("xmlswitch.index.waypoints.Waypoint.raised", lambda *_: 0)

    def wrong(seed: int) -> bool:
        try:
            scenario(seed, steps=20)
        except AssertionError:
            return True
        return False

    assert any(map(wrong, range(200)))
