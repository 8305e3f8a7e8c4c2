"""Every scenario on a small mesh of real processes, all on one mesh; and a promise that is broken on purpose."""

from __future__ import annotations

import json

import pytest

from tests.demo.command import SMALL, demo
from tests.demo.test_scenario import NAMED_BY_THE_ISSUE

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("demo-headless")]

BROKEN = """
title = "Away for longer than anybody remembers"
about = "With a log of 32 packets, what a client misses in six seconds is gone."
[[step]]
at = 0.2
do = "partition"
who = "client-1"
[[step]]
at = 6.5
do = "heal"
[promise]
repaired_within_s = 0.01
"""


@pytest.fixture(scope="module")
def verdicts():
    run = demo("--headless", "--script", "all", "--json", "--seed", "1", *SMALL)
    assert run.stdout, run.stderr
    return run.returncode, {verdict["scenario"]: verdict for verdict in json.loads(run.stdout)["verdicts"]}


@pytest.mark.parametrize("name", sorted(NAMED_BY_THE_ISSUE))
def test_every_promise_of_the_scenario_is_kept(verdicts, name):
    verdict = verdicts[1][name]
    assert verdict["kept"], verdict
    assert verdict["totals"]["lost"] == 0
    assert verdict["totals"]["delivered"] > 50


def test_the_exit_code_says_that_all_were_kept(verdicts):
    assert verdicts[0] == 0


def test_the_loss_was_there_and_was_repaired(verdicts):
    totals = verdicts[1]["loss-everywhere"]["totals"]
    assert totals["nacks"] + totals["retransmitted"] > 0


def test_links_protected_themselves_while_loss_rose_and_fell(verdicts):
    assert verdicts[1]["rising-loss"]["totals"]["protection_changes"] > 0


def test_the_verdict_fails_when_a_promise_is_broken_on_purpose(tmp_path):
    script = tmp_path / "broken.toml"
    script.write_text(BROKEN)
    run = demo("--headless", "--script", str(script), "--json", "--log-packets", "32", *SMALL)
    assert run.returncode == 1, run.stderr
    verdict = json.loads(run.stdout)["verdicts"][0]
    kept = {promise["promise"]: promise["kept"] for promise in verdict["promises"]}
    assert not kept["lost"]
    assert not kept["gaps"]
    assert kept["repeated, altered, skipped"]  # every hole was explicit
    assert not kept["full resilience"]  # a hundredth of a second is too little for anybody


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--roots", "0"], "roots must be in 1..120"),
        (["--parents", "3"], "3 parents need 3 roots"),
        (["--headless", "--script", "nowhere"], "neither a readable file"),
        (["--headless", "--seconds", "-1"], "--seconds must be above 0"),
        (["--script", "freeze"], "--script requires --headless"),
        (["--seed", "1"], "--seed requires --headless"),
        (["--seconds", "0"], "--seconds requires --headless"),
        (["--speed", "nan", "--headless"], "speed must be above 0"),
        (["--port", "99999"], "--port must be in 0..65535"),
    ],
)
def test_wrong_calls_get_one_sentence(arguments, sentence, capsys):
    from demo.cli import main

    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
