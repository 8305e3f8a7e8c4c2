"""Whole peers of a signed stream that betray it, kind by kind; forgers and colluders have tests of their own."""

from __future__ import annotations

import pytest

from peer.testing.betrayal import COLLUDING, KINDS, run_betrayal


def check(kind, seed):
    found = run_betrayal(kind, seed)
    assert (found.forged_delivered, found.innocent_blamed, found.silent) == (0, 0, 0), found
    assert found.packets > 300
    if kind.startswith(COLLUDING):
        assert found.late
    else:
        assert (found.late, found.gaps) == (0, 0), "an honest parent brings everything, in order"
    return found


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_betrayals_with_many_seeds(kind, seed):
    check(kind, seed)


def test_who_delays_everything_harms_nobody_beside_an_honest_parent():
    assert check("delaying", 1).liars_blamed == 0, "when a packet was due cannot be proved"


def test_who_leaves_out_what_another_parent_brings_is_convicted():
    assert check("omitting", 1).liars_blamed > 0
