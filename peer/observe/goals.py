"""The goal of a running mesh as seen from outside: what peers hold, and how each does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from peer.goals.signed import MalformedGoal, OwnedGoal, read_goal_untrusted
from peer.goals.syntax import Constraint, SystemCost
from peer.goals.units import shown
from peer.mesh import attributes
from peer.mesh.attributes import Attributes, AttributesRequest, GoalData, GoalRequest
from peer.mesh.messages import MalformedMessage
from peer.optimizer.costs import aggregate
from peer.optimizer.course import unmeasured
from peer.optimizer.said import Said, read_said_untrusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peer.mesh.hostport import HostPort
    from peer.observe.crawl import Crawler, MeshView, PeerView

MAX_AT_ONCE = 32


@dataclass(slots=True)
class GoalView:
    """`held` is the newest goal that the owner signed, None if no peer has one; `said` is by peer id."""

    held: OwnedGoal | None
    said: dict[bytes, Said]

    @property
    def behind(self) -> int:
        """Peers that answer and do not have the newest goal."""
        return sum(self.held is not None and said.version != self.held.version for said in self.said.values())

    @property
    def broken(self) -> list[tuple[bytes, Said]]:
        """Peers that break a constraint, the worst first."""
        found = [(peer, said) for peer, said in self.said.items() if said.broken]
        return sorted(found, key=lambda f: -f[1].violation)

    def broken_together(self, costs: Sequence[float]) -> list[str]:
        """Constraints on the whole system that these costs of its peers break, each with the value that it has."""
        goal = self.held.goal if self.held is not None else None
        if goal is None or not costs:
            return []
        found = []
        for constraint in goal.constraints:
            if (metric := self._system_of(constraint)) is not None:
                value = aggregate(metric.function, costs)
                if constraint.excess(value):
                    found.append(f"{constraint}: it is {shown(value, metric.dimension)}")
        return found

    def _system_of(self, constraint: Constraint) -> SystemCost | None:
        """Peers say the cost that the goal is about; a constraint on another one can't be computed from that."""
        metric, goal = constraint.metric, self.held.goal if self.held is not None else None
        is_known = isinstance(metric, SystemCost) and goal is not None and metric.cost == goal.cost.cost
        return metric if isinstance(metric, SystemCost) and is_known else None

    @property
    def unchecked(self) -> list[str]:
        """Constraints that nobody can check: they need what peers do not measure or say."""
        goal = self.held.goal if self.held is not None else None
        found = []
        for constraint in goal.constraints if goal is not None else ():
            if isinstance(constraint.metric, SystemCost):
                if self._system_of(constraint) is None:
                    found.append(str(constraint))
            elif unmeasured(constraint.metric):
                found.append(str(constraint))
        return found

    @property
    def problems(self) -> list[str]:
        """Why peers do not follow the goal, each reason once."""
        return sorted({said.problem for said in self.said.values() if said.problem})


async def look_at_goal(crawler: Crawler, view: MeshView, owner: bytes) -> GoalView:
    """Ask every peer of a look at the mesh."""
    found = GoalView(None, {})
    limit = trio.Semaphore(MAX_AT_ONCE)

    async def visit(peer: PeerView) -> None:
        async with limit:
            answer = await _ask(crawler, peer.address, AttributesRequest())
            if not isinstance(answer, Attributes):
                return
            said = found.said[peer.peer_id] = read_said_untrusted(dict(answer.values))
            newest = found.held.version if found.held is not None else 0
            if said.version > newest:
                text = await _ask(crawler, peer.address, GoalRequest())
                if isinstance(text, GoalData):
                    _take(found, text.data, view.stream, owner)

    async with trio.open_nursery() as nursery:
        for peer in view.peers.values():
            if peer.answered:
                nursery.start_soon(visit, peer)
    return found


def _take(found: GoalView, data: bytes, stream: str, owner: bytes) -> None:
    newest = found.held.version if found.held is not None else -1
    try:
        found.held = read_goal_untrusted(data, stream, owner, newer_than=newest)
    except MalformedGoal:
        return


async def offer_goal(crawler: Crawler, view: MeshView, data: bytes, version: int) -> int:
    """Hand a signed goal to every peer of a look; how many have it now. The others get it from their neighbours."""
    taken = 0
    limit = trio.Semaphore(MAX_AT_ONCE)

    async def visit(peer: PeerView) -> None:
        nonlocal taken
        async with limit:
            answer = await _ask(crawler, peer.address, GoalData(data))
            if isinstance(answer, Attributes):
                taken += read_said_untrusted(dict(answer.values)).version == version

    async with trio.open_nursery() as nursery:
        for peer in view.peers.values():
            if peer.answered:
                nursery.start_soon(visit, peer)
    return taken


async def _ask(
    crawler: Crawler, address: HostPort, request: attributes.AttributeMessage
) -> attributes.AttributeMessage | None:
    reply = await crawler.ask(address, attributes.encode(request))
    if reply is None:
        return None
    try:
        return attributes.decode_untrusted(reply)
    except MalformedMessage:
        return None
