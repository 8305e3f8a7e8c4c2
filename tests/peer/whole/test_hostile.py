"""Meshes with liars in them: what the honest peers are promised, and that the checks can fail."""

from __future__ import annotations

import pytest

from bench._lying import without
from peer.testing.hostile import run_hostile
from peer.testing.peersim import PromiseBroken


@pytest.mark.parametrize(
    "kinds",
    [
        ("omits all", "levels"),
        ("claims", "sybils"),
        ("freshness", "loads", "clocks"),
        ("black hole", "query bomber", "join stormer"),
    ],
)
def test_a_small_mesh_with_liars(kinds):
    found = run_hostile(1, peers=8, kinds=kinds)
    assert found.packets > 100
    assert found.exposed >= 3
    assert found.worst_delay < 2.0


@pytest.mark.parametrize(("kind", "cost"), [("claims", "never came"), ("omits all", "was skipped in silence")])
def test_without_the_rules_of_dcp_the_checks_find_what_a_lie_costs(kind, cost):
    with without("tail", "late"), pytest.raises(PromiseBroken, match="run it again: run_hostile") as broken:
        run_hostile(1, peers=8, kinds=(kind, kind))
    assert cost in str(broken.value)


def test_a_seed_repeats_exactly():
    assert run_hostile(3, peers=5, kinds=("levels",)) == run_hostile(3, peers=5, kinds=("levels",))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 1_000, 10))
def test_long_campaign_with_liars(first):
    for seed in range(first, first + 10):
        run_hostile(seed)
