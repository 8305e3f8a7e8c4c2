"""A mesh with no page: play scenarios, print a verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from demo.check.observed import MeshError
from demo.errors import DemoError
from demo.run.interruptible import INTERRUPTED, run_interruptible
from demo.run.localmesh import open_mesh
from demo.run.settings import DemoSettings
from demo.scenarios.director import Director, Verdict
from demo.scenarios.scenario import MAX_SECONDS, Scenario, ScenarioError, built_in, load

STORY = "story"


def plan(scripts: Sequence[str], seconds: float | None) -> list[Scenario]:
    """What to play; DemoError for what can't be read."""
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise DemoError(f"--seconds must be above 0 and at most {MAX_SECONDS:g}, got {seconds:g}")
    names: list[str] = []
    for script in scripts:
        names += [name for name in built_in() if name != STORY] if script == "all" else [script]
    try:
        scenarios = [load(name) for name in names]
    except ScenarioError as error:
        raise DemoError(str(error)) from None
    if not scenarios:
        return [Scenario("no-fault", "Nothing happens", "The stream flows.", seconds or 10.0, ())]
    if seconds is None:
        return scenarios
    return [replace(scenario, seconds=max(seconds, scenario.seconds)) for scenario in scenarios]


def run_headless(settings: DemoSettings, scenarios: Sequence[Scenario], *, seed: int | None, as_json: bool) -> int:
    verdicts: list[Verdict] = []

    async def play() -> int:
        await _play(settings, scenarios, seed, as_json, verdicts)
        return 0 if all(verdict.is_kept for verdict in verdicts) else 1

    try:
        code = run_interruptible(play)
    except (ScenarioError, MeshError) as error:
        raise DemoError(str(error)) from None
    if code == INTERRUPTED:
        return code
    if as_json:
        print(json.dumps({"kept": code == 0, "verdicts": [verdict.as_json() for verdict in verdicts]}, indent=1))
    elif len(verdicts) > 1:
        print(f"\n{sum(v.is_kept for v in verdicts)} of {len(verdicts)} scenarios kept all promises")
    return code


async def _play(
    settings: DemoSettings, scenarios: Sequence[Scenario], seed: int | None, as_json: bool, verdicts: list[Verdict]
) -> None:
    _progress(f"starting {settings.roots} roots, {settings.routers} routers and {settings.clients} clients")
    async with open_mesh(settings) as mesh:
        mesh.listeners.append(_tell)
        director = Director(mesh, seed)
        for number, scenario in enumerate(scenarios):
            if number:
                mesh.put_back()
            _progress(f"{scenario.name}: {scenario.title}")
            verdict = await director.judge(scenario)
            verdicts.append(verdict)
            if not as_json:
                print(_table(verdict), flush=True)


def _tell(event: dict[str, Any]) -> None:
    if event["kind"] in ("fault", "heal", "whole", "loss"):
        _progress(f"{event['at']:8.2f} s  {event['who']}{' ' if event['who'] else ''}{event['text']}")


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(verdict: Verdict) -> str:
    totals = verdict.totals
    lines = [f"\n{verdict.title}: {'KEPT' if verdict.is_kept else 'BROKEN'}"]
    lines += [
        f"  {'ok ' if kept.is_kept else 'NOT'}  {kept.promise:32} {kept.got:>10}   (promised: {kept.wanted})"
        for kept in verdict.promises
    ]
    latency = totals["latency_ms"]
    repairs = ", ".join(f"{took:.2f} s" for took in totals["repairs_s"]) or "none needed"
    lines += [
        f"  duplicates {totals['duplicates']}, retransmitted {totals['retransmitted']}, NACKs {totals['nacks']}; "
        f"repairs: {repairs}",
        f"  latency p50 {latency['p50']} ms, p99 {latency['p99']} ms, longest stall {totals['longest_stall_ms']} ms; "
        f"CPU {totals['cpu_cores']:.2f} of a core",
    ]
    lines += [f"  {complaint}" for complaint in verdict.complaints[:10]]
    return "\n".join(lines)
