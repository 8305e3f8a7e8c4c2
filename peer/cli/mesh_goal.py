"""`goal set` and `goal show`: the goal of a mesh that runs."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.goal import pointed
from peer.cli.mesh_table import ordered, short_id
from peer.cli.running import run
from peer.cli.visiting import choose_owner, find, unknown, visitor
from peer.goals import GoalError, parse_goal
from peer.goals.syntax import Over
from peer.goals.units import shown
from peer.observe.crawl import Crawler, MeshView
from peer.observe.goals import GoalView, look_at_goal, offer_goal


def set_goal(settings: Settings, text: str) -> int:
    from dht import Identity, id_text
    from peer.goals.signed import sign_goal

    stream = settings["roots_key"]
    try:
        parse_goal(text)
    except GoalError as error:
        raise CliError(pointed(text, error), ExitCode.BAD_GOAL) from None
    owner = Identity.load(Path(settings["owner"]))
    version = int(time.time() * 1_000)
    data = sign_goal(text, stream, owner, version)

    async def command() -> int:
        async with visitor(settings) as crawler:
            view = await _look(crawler, settings)
            owners = await owners_of(crawler, stream)
            if bytes(owner.peer_id) not in owners:
                names = ", ".join(sorted(id_text(other) for other in owners))
                raise CliError(
                    f"{stream} belongs to {names}, and this is the key of {owner.fingerprint}: its peers would ignore "
                    "the goal",
                    ExitCode.WRONG_OWNER,
                )
            taken = await offer_goal(crawler, view, data, version)
        answered = sum(peer.answered for peer in view.peers.values())
        if settings["json"]:
            print(json.dumps({"version": version, "taken": taken, "peers": answered, "goal": str(parse_goal(text))}))
        else:
            print(f"{taken} of {answered} peers took the goal; others get it from their neighbours")
        return ExitCode.OK if taken else ExitCode.NOT_ALL

    return run(settings, command)


def show(settings: Settings) -> int:
    async def command() -> int:
        async with visitor(settings) as crawler:
            view = await _look(crawler, settings)
            goals = await goal_of(crawler, view)
        print(json.dumps(as_dict(view, goals)) if settings["json"] else as_text(view, goals))
        is_met = not (goals.broken or goals.broken_together(costs_of(view, goals)))
        return ExitCode.OK if is_met and not (goals.problems or goals.behind) else ExitCode.NOT_ALL

    return run(settings, command)


async def _look(crawler: Crawler, settings: Settings) -> MeshView:
    choose_owner(crawler, settings)
    await find(crawler, settings)
    view = await crawler.look(settings["roots_key"])
    if not view.peers:
        raise CliError(unknown(settings["roots_key"]), ExitCode.STREAM_UNAVAILABLE)
    return view


async def owners_of(crawler: Crawler, stream: str) -> set[bytes]:
    assert crawler.directory is not None
    return {bytes(root.owner) for root in await crawler.directory.roots(stream)}


async def goal_of(crawler: Crawler, view: MeshView) -> GoalView:
    owners = sorted(await owners_of(crawler, view.stream))
    return await look_at_goal(crawler, view, owners[0] if owners else b"")


def costs_of(view: MeshView, goals: GoalView) -> list[float]:
    """Of the peers over which the goal is taken, lowest first."""
    goal = goals.held.goal if goals.held is not None else None
    over = goal.cost.over if goal is not None else Over.PEERS
    wanted = {Over.ROUTERS: ("router",), Over.CLIENTS: ("leaf",), Over.PEERS: ("router", "leaf")}[over]
    return sorted(s.cost for peer, s in goals.said.items() if s.cost is not None and view.peers[peer].role in wanted)


def as_dict(view: MeshView, goals: GoalView) -> dict[str, Any]:
    from dht import id_text

    held = goals.held
    return {
        "goal": held.text if held is not None else None,
        "version": held.version if held is not None else None,
        "behind": goals.behind,
        "problems": goals.problems,
        "unchecked": goals.unchecked,
        "broken": goals.broken_together(costs_of(view, goals)),
        "peers": [
            {
                "peer": id_text(peer),
                "version": said.version or None,
                "cost": said.cost,
                "violation": said.violation,
                "broken": said.broken or None,
                "problem": said.problem or None,
            }
            for peer, said in sorted(goals.said.items())
        ],
    }


def as_text(view: MeshView, goals: GoalView) -> str:
    held = goals.held
    if held is None:
        return "no goal"
    since = datetime.fromtimestamp(held.version / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    lines = [f"goal      {held.text}", f"since     {since} UTC"]
    costs = costs_of(view, goals)
    dimension = held.goal.cost.cost.dimension if held.goal is not None else None
    if costs and dimension is not None:
        mean = sum(costs) / len(costs)
        ends = f"best {shown(costs[0], dimension)}, worst {shown(costs[-1], dimension)}"
        lines.append(f"cost      {shown(mean, dimension)} per peer on average, {ends} ({len(costs)} peers)")
    if goals.behind:
        lines.append(f"behind    {goals.behind} peers do not have this goal yet")
    lines += [f"problem   {problem}" for problem in goals.problems]
    lines += [f"unchecked {constraint} (peers do not measure or say what it needs)" for constraint in goals.unchecked]
    lines += [f"broken    {constraint}" for constraint in goals.broken_together(costs)]
    for peer, said in goals.broken:
        lines.append(f"broken    {said.broken} at {short_id(peer)} {endpoint_text(view.peers[peer].address)}")
    for one in ordered(view):
        said_here = goals.said.get(one.peer_id)
        if said_here is not None and said_here.cost is not None and dimension is not None and one.role != "root":
            lines.append(f"  {short_id(one.peer_id)}  {shown(said_here.cost, dimension)}")
    return "\n".join(lines)
