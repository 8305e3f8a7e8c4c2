"""The virtual paths of `adaptive` and `relate`: what they measure is what they say."""

from __future__ import annotations

import pytest

from bench import _paper
from bench._paths import Cell, run
from dcp.profile import profile_of


def test_a_clean_path_costs_half_a_round_trip_and_a_lossy_one_delivers_all_the_same():
    clean = run(Cell(0.02, 50, 0.0), 1, seconds=2, warm_up=1)
    assert clean.delivered == 1
    assert clean.relate == clean.relate2 == clean.mean == pytest.approx(0.01, rel=0.06)
    lossy = run(Cell(0.02, 50, 0.2), 1, profile=profile_of("latency"), seconds=2, warm_up=1)
    assert lossy.delivered == 1
    assert lossy.mean > clean.mean


@pytest.mark.parametrize("transport", _paper.TRANSPORTS)
def test_the_paper_s_transports_deliver_all_without_loss(transport):
    done = _paper.run(transport, Cell(0.0016, 50, 0.0), 3, 1, updates=200)
    assert done.delivered == 1
    assert done.mean == pytest.approx(0.0008, rel=0.06)


def test_with_loss_the_unreliable_lose_and_the_ordered_wait():
    done = {name: _paper.run(name, Cell(0.0016, 50, 0.03), 3, 1, updates=2_000) for name in _paper.TRANSPORTS}
    assert done[_paper.UDP].delivered < 0.98
    assert done[_paper.UDP].delivered < done[_paper.RICOCHET4].delivered < 1
    assert done[_paper.TCP].delivered == 1
    assert done[_paper.UDP].mean < done[_paper.NAK].mean < done[_paper.TCP].mean
    assert done[_paper.NAK].relate2 < done[_paper.UDP].relate2
