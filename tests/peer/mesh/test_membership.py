from __future__ import annotations

from pathlib import Path

import pytest

from peer.mesh.membership import SEEKING, TRANSITIONS, Input, Membership, MembershipError, as_markdown, step


def test_every_state_has_a_row_and_every_input_is_used():
    assert set(TRANSITIONS) == set(Membership)
    assert {given for row in TRANSITIONS.values() for given in row} == set(Input)


def test_a_missing_input_names_state_and_input():
    with pytest.raises(MembershipError, match=r"a peer that is left has no answer to 'leave'"):
        step(Membership.LEFT, Input.LEAVE)


def test_r6_only_an_orphan_restarts_cold():
    assert [state for state, row in TRANSITIONS.items() if Input.COLD in row] == [Membership.ORPHANED]


@pytest.mark.parametrize("state", sorted(SEEKING, key=lambda s: s.value))
@pytest.mark.parametrize("given", [Input.COMPLETE, Input.SHORT, Input.FREE, Input.LEAVE])
def test_a_seeking_peer_can_sum_up_its_parents_at_any_time(state, given):
    assert step(state, given) in Membership


def test_every_state_can_be_reached():
    reached = {Membership.IDLE}
    while True:
        more = reached | {target for state in reached for target in TRANSITIONS[state].values()}
        if more == reached:
            break
        reached = more
    assert reached == set(Membership)


def test_the_documentation_shows_this_table():
    assert as_markdown() in (Path(__file__).resolve().parents[3] / "docs" / "mesh.md").read_text()
