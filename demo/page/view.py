"""What a page is shown, as plain data. Reading only."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from asdi.flights.table import load as load_table
from demo.run.localmesh import LocalMesh
from demo.run.member import Member
from demo.run.presets import PRESETS
from demo.run.settings import STREAM
from demo.scenarios.scenario import built_in, load
from dht.addresses import endpoint_text
from peer.goals import parse_goal
from peer.goals.units import shown

NUMBERS_BACK = 16_000
NUMBERS_EVERY = 50


def hello(mesh: LocalMesh) -> dict[str, Any]:
    """Everything that does not change."""
    scenarios = [load(name) for name in built_in()]
    return {
        "t": "hello",
        "speed": mesh.settings.speed,
        "wants": mesh.settings.parents,
        "airports": [[a.icao, a.latitude, a.longitude] for a in load_table().airports],
        "presets": [[preset.name, preset.query] for preset in PRESETS],
        "scenarios": [{"name": s.name, "title": s.title, "about": s.about, "seconds": s.seconds} for s in scenarios],
        "events": list(mesh.events)[-80:],
        "timeline": _timeline(mesh, 0)[0],
        "numbers": numbers(mesh, NUMBERS_BACK)[::NUMBERS_EVERY],
        "join": join_command(mesh),
    }


def join_command(mesh: LocalMesh) -> str | None:
    """What to type in another terminal, in this folder, to receive the same stream; None while no node is known."""
    address = next((member.address for member in mesh.members.values() if member.role == "dht"), None)
    if address is None:
        return None
    command = Path(sys.prefix) / "bin" / "skymesh"
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    return f"{command} join {STREAM} --bootstrap {endpoint_text(address)}"


def state(mesh: LocalMesh, since: int) -> tuple[dict[str, Any], int]:
    """The mesh now, and the seconds of the timeline after `since`; with the last of those."""
    seconds, last = _timeline(mesh, since)
    message = {
        "t": "state",
        "now": round(time.monotonic() - mesh.began, 3),
        "feed": mesh.plan.second_at(time.monotonic()),
        "peers": [peer(mesh, member) for member in mesh.members.values()],
        "totals": mesh.totals(),
        "everywhere": mesh.everywhere.as_json(),
        "links": [[*sorted(pair), weather.as_json()] for pair, weather in mesh.links.items()],
        "side": sorted(mesh.side),
        "timeline": seconds,
        "numbers": numbers(mesh, 1),
        "goal": goal(mesh),
    }
    return message, last


def numbers(mesh: LocalMesh, count: int) -> list[list[float]]:
    """When the last packets were due, as [AN, time]: what a packet itself does not say, and a map must know."""
    facts = mesh.truth.recent(count, before=time.monotonic())
    return [[fact.an, round(fact.due_at - mesh.began, 3)] for fact in facts]


def goal(mesh: LocalMesh) -> dict[str, Any] | None:
    """The goal, what it costs on average in seconds and bytes, and who breaks which constraint; None without one."""
    if mesh.goal is None:
        return None
    said = {
        member.name: member.status["goal"]
        for member in mesh.members.values()
        if member.role in ("router", "leaf") and member.runs and member.status.get("goal") is not None
    }
    costs = [each["cost"] for each in said.values() if each["cost"] is not None]
    return {
        "text": mesh.goal,
        "cost": sum(costs) / len(costs) if costs else None,
        "shown": shown(sum(costs) / len(costs), parse_goal(mesh.goal).cost.cost.dimension) if costs else "",
        "moves": sum(each["moves"] for each in said.values()),
        "broken": [[name, each["broken"]] for name, each in said.items() if each["broken"]],
    }


def _timeline(mesh: LocalMesh, since: int) -> tuple[list[list[Any]], int]:
    rows = mesh.ledger.timeline(since)
    last = rows[-1][0] if rows else since
    return [[round(row[0] - mesh.began, 1), *row[1:]] for row in rows], last


def peer(mesh: LocalMesh, member: Member) -> dict[str, Any]:
    status, check = member.status, member.check
    told: dict[str, Any] = {
        "name": member.name,
        "role": member.role,
        "state": member.state.value,
        "guest": member.is_guest,
        "pid": member.process.pid if member.process is not None else None,
        "level": status.get("level"),
        "hops": status.get("hops"),
        "sound": member.sound,
        "wants": member.wants,
        "children": status.get("children", 0),
        "capacity": member.spec.get("capacity", 0),
        "duplicates": status.get("duplicates", 0),
        "nacks": status.get("nacks", 0),
        "recovered": status.get("recovered", 0),
        "retransmitted": status.get("retransmitted", 0),
        "packets": status.get("packets", 0),
        "omitted": status.get("omitted", 0),
        "disputed": status.get("disputed", 0),
        "protection": status.get("protection", "plain"),
        "protection_why": status.get("protection_why", ""),
        "protection_seconds": status.get("protection_seconds", 0.0),
        "lie": member.lie,
        "restarts": member.restarts,
        "cpu": round(member.cpu, 1),
        "up": [{"name": name} | link for name, link in member.rates.items()],
    }
    if member.role == "dht":
        told |= {"contacts": status.get("contacts", 0), "records": status.get("records", 0)}
    if check is not None:
        told |= {
            "query": member.wanted_query,
            "delivered": check.delivered,
            "lost": check.lost,
            "gaps": check.gaps,
            "missing": check.missing,
            "pace": member.pace,
            "flights": mesh.air.count(member.name),
        }
    return told
