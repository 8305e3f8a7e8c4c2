"""A goal that can't be met says so: which constraint, and at which peer or with which value."""

from __future__ import annotations

import pytest

from peer.cli.mesh_goal import as_dict, as_text
from peer.goals.signed import read_goal_untrusted
from peer.observe.crawl import MeshView, PeerView
from peer.observe.goals import GoalView
from peer.optimizer.said import Said
from peer.testing.guided import LATENCY, OWNER, Guided, Spread, signed


def viewed(text: str, **said: Said) -> tuple[MeshView, GoalView]:
    view = MeshView("asdi", {})
    for number, name in enumerate(said):
        peer = PeerView(name.encode(), ("10.0.0.1", 4_000 + number))
        peer.role = "router" if name.startswith("r") else "leaf"
        view.peers[peer.peer_id] = peer
    held = read_goal_untrusted(signed(text), "asdi", bytes(OWNER.peer_id))
    return view, GoalView(held, {name.encode(): each for name, each in said.items()})


def costs(value: float, **changes) -> Said:
    return Said(1, b"", cost=value, **changes)


def test_a_constraint_on_the_whole_system_is_checked_from_what_peers_say():
    limit = f"{LATENCY} subject to average(path sum(link.latency)) <= 10 ms"
    view, goals = viewed(limit, r1=costs(0.02), c1=costs(0.04))
    broken = "average(path sum(link.latency)) over peers <= 10 ms: it is 30 ms"
    assert as_dict(view, goals)["broken"] == [broken]
    assert f"broken    {broken}" in as_text(view, goals)
    assert goals.unchecked == []


def test_the_peer_that_breaks_a_constraint_is_named():
    view, goals = viewed(f"{LATENCY} subject to fanout <= 1", r1=costs(0.02, violation=2.0, broken="node.fanout <= 1"))
    assert "broken    node.fanout <= 1 at " in as_text(view, goals)


@pytest.mark.parametrize("text", ["sum(fanout) <= 9", "children sum(link.latency) <= 1 s"])
def test_a_constraint_that_nobody_checks_is_named(text):
    view, goals = viewed(f"{LATENCY} subject to {text}", r1=costs(0.02))
    (unchecked,) = as_dict(view, goals)["unchecked"]
    assert f"unchecked {unchecked} (" in as_text(view, goals)


@pytest.mark.slow
def test_a_goal_that_cannot_be_met_breaks_nothing_and_is_shown():
    """Every peer wants two parents, and nobody may have more than one child."""
    guided = Guided(signed(f"{LATENCY} subject to fanout <= 1"))
    mesh = Spread(3, guided=guided, peers=8)
    mesh.run(40.0)
    mesh.check_settled()
    said = [peer.mesh.guidance.values(mesh.now) for peer in mesh.live()]
    assert any(b"node.fanout <= 1" in values.get(5, b"") for values in said)
