"""Plays a scenario on a mesh, and says whether every promise was kept."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import trio

from demo.check.observed import ON_THE_WAY, MeshError
from demo.run.faults import FAIR
from demo.run.localmesh import LocalMesh
from demo.scenarios.scenario import Scenario, ScenarioError, Step
from demo.scenarios.selectors import names_in, resolve

START_PATIENCE = 120.0
"""A loaded machine may take its time; that the mesh comes up at all is promised, not how soon."""
PAUSES = 2
"""A packet can wait for the machine at both ends of its way."""
WORTH_A_WORD = 0.05


@dataclass(frozen=True, slots=True)
class Kept:
    """One promise and what came of it."""

    promise: str
    wanted: str
    got: str
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    scenario: str
    title: str
    promises: tuple[Kept, ...]
    totals: dict[str, Any]
    complaints: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        return all(kept.is_kept for kept in self.promises)

    def as_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "kept": self.is_kept,
            "promises": [
                {"promise": k.promise, "wanted": k.wanted, "got": k.got, "kept": k.is_kept} for k in self.promises
            ],
            "totals": self.totals,
            "complaints": list(self.complaints),
        }


def _allow(promised: float, totals: dict[str, Any]) -> tuple[float, str]:
    """A promise in seconds, and what the machine took from it: on a quiet one nothing worth a word."""
    pause = totals["machine_pause_ms"] / 1e3
    if pause < WORTH_A_WORD:
        return promised + PAUSES * pause, f"{promised:g} s"
    return promised + PAUSES * pause, f"{promised:g} s + {PAUSES} x {pause:.2f} s of machine pause"


class Director:
    """One scenario at a time."""

    def __init__(self, mesh: LocalMesh, seed: int | None = None) -> None:
        self.mesh = mesh
        self._dice = random.Random(seed)
        self._last: list[str] = []

    async def play(self, scenario: Scenario) -> None:
        """The steps, each at its time, until the scenario's end. ScenarioError when a step can't be done."""
        called = names_in(text for step in scenario.steps for text in (*step.who, *(step.link or ())))
        missing = sorted(set(called) - set(self.mesh.members))
        if missing:
            raise ScenarioError(f"{scenario.name} needs {', '.join(missing)}: start a larger mesh (see --help)")
        began = trio.current_time()
        for number, step in enumerate(scenario.steps, 1):
            await trio.sleep_until(began + step.at)
            try:
                await self._do(step)
            except (MeshError, ValueError) as error:
                raise ScenarioError(f"{scenario.name}, step {number} ({step.do}): {error}") from None
        await trio.sleep_until(began + scenario.seconds)

    async def _do(self, step: Step) -> None:
        mesh = self.mesh
        if step.say:
            mesh.say(step.say)
        names: list[str] = []
        if step.who:
            names = self._last = resolve(mesh, step.who, self._dice, self._last)
        match step.do:
            case "kill":
                mesh.kill(*names)
            case "freeze":
                mesh.freeze(*names)
            case "thaw":
                mesh.thaw(*names)
            case "restart":
                mesh.restart(*names)
            case "partition":
                mesh.partition(names)
            case "heal":
                mesh.heal_partition()
            case "weather":
                between = None
                if step.link is not None:
                    one, other = (resolve(mesh, [end], self._dice, self._last)[0] for end in step.link)
                    between = (one, other)
                mesh.set_weather(step.weather or FAIR, between=between)
            case "storm":
                await mesh.storm(routers=step.routers, clients=step.clients)
            case "pace":
                for name in names:
                    mesh.set_pace(name, step.rate)
            case "query":
                for name in names:
                    mesh.change_query(name, step.text)
            case "lie":
                for name in names:
                    mesh.lie(name, step.how)
            case "put back":
                mesh.put_back()

    async def judge(self, scenario: Scenario) -> Verdict:
        """Start from a mesh that is whole, play, wait for it to settle, and compare with what was promised."""
        mesh = self.mesh
        promise = scenario.promise
        began = time.monotonic()
        if not await mesh.wait_settled(START_PATIENCE):
            took = time.monotonic() - began
            start = Kept("full resilience at the start", f"{START_PATIENCE:.0f} s", f"not after {took:.0f} s", False)
            return Verdict(scenario.name, scenario.title, (start,), mesh.totals())
        mesh.reset_totals()
        await self.play(scenario)
        ended = time.monotonic()
        is_settled = await mesh.wait_settled(promise.settled_within_s)
        settled = time.monotonic() - ended
        for member in mesh.clients():
            if member.runs and member.check is not None and not is_settled:
                member.check.give_up(time.monotonic() - ON_THE_WAY)
        return self._verdict(scenario, is_settled, settled)

    def _verdict(self, scenario: Scenario, is_settled: bool, settled: float) -> Verdict:
        totals = self.mesh.totals()
        promise = scenario.promise
        rows = [
            Kept("published", "some", str(totals["published"]), totals["published"] > 0),
            Kept("delivered", "some", str(totals["delivered"]), totals["delivered"] > 0),
            Kept("lost", f"{promise.lost} at most", str(totals["lost"]), totals["lost"] <= promise.lost),
            Kept("gaps", f"{promise.gaps} at most", str(totals["gaps"]), totals["gaps"] <= promise.gaps),
            Kept("repeated, altered, skipped", "0", str(totals["wrong"]), totals["wrong"] == 0),
            Kept(
                "full resilience and caught up at the end",
                f"within {promise.settled_within_s:g} s",
                f"after {settled:.1f} s" if is_settled else "not",
                is_settled,
            ),
        ]
        if promise.stall_s is not None:
            stall = totals["longest_stall_ms"] / 1e3
            limit, words = _allow(promise.stall_s, totals)
            rows.append(Kept("longest stall", words, f"{stall:.2f} s", stall <= limit))
        if promise.repaired_within_s is not None:
            longest = max(totals["recoveries_s"], default=0.0)
            # A mesh that is not whole yet has not been repaired, however short the repairs before.
            limit, words = _allow(promise.repaired_within_s, totals)
            is_kept = totals["is_whole"] and longest <= limit
            got = f"{longest:.2f} s" if totals["is_whole"] else "not whole"
            rows.append(Kept("full resilience", f"within {words}", got, is_kept))
        complaints = [
            text for member in self.mesh.clients() if member.check is not None for text in member.check.complaints
        ]
        return Verdict(scenario.name, scenario.title, tuple(rows), totals, tuple(complaints[:50]))
