"""Verdicts: a promise is kept or broken by what was measured; the machine's own pauses are told apart. No processes."""

from __future__ import annotations

import pytest

from demo.check.ledger import Ledger
from demo.check.observed import ObservedMesh
from demo.run.settings import DemoSettings
from demo.scenarios.director import Director
from demo.scenarios.scenario import Promise, Scenario
from tests.demo.feeds import truth


def judged(promise, **measured):
    """The rows of a verdict on a ledger with these figures."""
    mesh = ObservedMesh(DemoSettings(), 0.0)
    mesh.truth = truth()
    mesh.ledger = Ledger(0.0)
    for name, value in measured.items():
        setattr(mesh.ledger, name, value)
    verdict = Director(mesh)._verdict(Scenario("mine", "Mine", "", 1.0, (), promise), True, 0.5)
    return {kept.promise: kept for kept in verdict.promises}


@pytest.mark.parametrize(("took", "is_kept"), [([1.0, 4.9], True), ([5.1, 1.0], False), ([], True)])
def test_full_resilience_is_kept_when_every_recovery_was_in_time(took, is_kept):
    row = judged(Promise(repaired_within_s=5.0), recoveries=took)["full resilience"]
    assert row.is_kept is is_kept


def test_a_mesh_that_is_not_whole_is_not_repaired():
    row = judged(Promise(repaired_within_s=5.0), _short={"router-1"})["full resilience"]
    assert (row.is_kept, row.got) == (False, "not whole")


@pytest.mark.parametrize(("stall", "pause", "is_kept"), [(0.9, 0.0, True), (1.1, 0.0, False), (1.7, 0.4, True)])
def test_a_stall_is_judged_without_what_the_machine_took(stall, pause, is_kept):
    row = judged(Promise(stall_s=1.0), longest_stall=stall, machine_pause=pause)["longest stall"]
    assert row.is_kept is is_kept
    assert ("of machine pause" in row.wanted) is bool(pause)


def test_what_is_not_promised_is_not_judged():
    assert not {"longest stall", "full resilience"} & set(judged(Promise()))
