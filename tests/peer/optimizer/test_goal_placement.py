"""How one peer follows a goal: what it computes, what it believes, when it moves and when it takes a move back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.goals import VOCABULARY, parse_goal
from peer.goals.signed import MalformedGoal, read_goal_untrusted
from peer.mesh.candidates import Candidate
from peer.mesh.config import MeshConfig
from peer.mesh.messages import PeerId
from peer.mesh.placement.neighbourhood import LinkQuality, Neighbourhood
from peer.optimizer.course import Course
from peer.optimizer.following import MAX_KNOWN
from peer.optimizer.placement import GoalPlacement
from peer.optimizer.said import Said, read_said_untrusted
from peer.testing.guided import LATENCY, OWNER, Guided, signed


@dataclass
class Held:
    """A parent as a placement sees it."""

    name: str
    link: int
    since: float = 0.0
    hops: int = 1
    dispute: str | None = None
    is_sound: bool = True
    is_fed: bool = True
    is_suspect: bool = False
    is_leaving: bool = False
    peer_id: PeerId = field(init=False)
    address: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.peer_id, self.address = PeerId(self.name.encode()), (f"10.0.{self.link}.1", 4_000)


def candidate(name: str, **changes) -> Candidate:
    return replace(Candidate(PeerId(name.encode()), ("10.1.1.1", 4_000), 700, 0.0, 1, 1), **changes)


def around(
    parents: list[Held], candidates=(), *, now=100.0, qualities=None, level=3_000, measures=None, own=b""
) -> Neighbourhood:
    return Neighbourhood(
        now=now, config=MeshConfig(), level=level, hops=2, parents=parents, children=[], candidates=list(candidates),
        silent_candidates=[], qualities=lambda: qualities or {}, measures=lambda: measures or {}, own=PeerId(own),
    )  # fmt: skip


def says(placement: GoalPlacement, name: str, path: float, trip: float, *, free: int = 2, now: float = 99.0) -> None:
    said = Said(placement.held.version, placement.held.digest, (path,), hops=1, free=free)
    placement.measured(PeerId(name.encode()), trip, said.as_values(), now)


def following(text: str = LATENCY) -> GoalPlacement:
    return Guided(signed(text))()


PARENTS = [Held("near", 1), Held("far", 2)]


def settled(text: str = LATENCY) -> GoalPlacement:
    placement = following(text)
    says(placement, "near", 0.010, 0.020)
    says(placement, "far", 0.050, 0.060)
    return placement


def test_the_path_grows_hop_by_hop():
    placement = settled()
    said = read_said_untrusted(placement.values(around(PARENTS)))
    assert said.path == (pytest.approx(0.7 * 0.020 + 0.3 * 0.080),)
    assert said.cost == pytest.approx(said.path[0])
    root = read_said_untrusted(placement.values(around([], level=0)))
    assert (root.path, root.cost, root.problem) == ((0.0,), 0.0, "")


def test_a_peer_moves_to_what_is_nearer_and_leaves_the_parent_that_is_worth_least():
    placement = settled()
    says(placement, "new", 0.010, 0.030)
    move = placement.better(around(PARENTS, [candidate("new")]), Random(1))
    assert (move.parent, move.candidate) == (2, b"new")
    three = [*PARENTS, Held("new", 3, since=100.0)]
    assert placement.surplus(around(three, now=105.0)).parent == 2
    assert placement.moves == 1


@pytest.mark.parametrize("changes", [{"path": 0.045}, {"now": 1.0}], ids=["gains too little", "heard too long ago"])
def test_a_candidate_that_is_not_worth_it_is_left_alone(changes):
    placement = settled()
    says(placement, "new", **({"path": 0.010, "trip": 0.060} | changes))
    assert placement.better(around(PARENTS, [candidate("new")]), Random(1)) is None


def test_an_exchange_is_sought_with_a_peer_that_is_full_and_not_again_at_once():
    placement = settled()
    says(placement, "new", 0.010, 0.030, free=0)
    trade = placement.better(around(PARENTS, [candidate("new")]), Random(1))
    assert (trade.parent, trade.candidate) == (2, b"new")
    now = 0.7 * 0.020 + 0.3 * 0.080
    assert trade.most == pytest.approx(now - (0.7 * 0.020 + 0.3 * 0.025) - 0.05 * now)
    assert placement.better(around(PARENTS, [candidate("new")]), Random(1)) is None


def test_candidates_are_not_taken_for_farther_because_inquiries_take_longer():
    """A stranger has to prove its address first: an inquiry took two round trips, and nobody ever moved."""
    placement = settled()
    says(placement, "new", 0.050, 0.026)
    measured = {1: LinkQuality(round_trip=0.010), 2: LinkQuality(round_trip=0.030)}  # half of what inquiries took
    assert placement.better(around(PARENTS, [candidate("new")], qualities=measured), Random(1)).candidate == b"new"


def test_after_a_move_a_peer_stays_for_a_while():
    placement = settled()
    says(placement, "new", 0.0, 0.010)
    placement.surplus(around([*PARENTS, Held("third", 3)], now=90.0))
    assert placement.better(around(PARENTS, [candidate("new")]), Random(1)) is None
    says(placement, "new", 0.0, 0.010, now=149.0)
    says(placement, "near", 0.010, 0.020, now=149.0)
    says(placement, "far", 0.050, 0.060, now=149.0)
    assert placement.better(around(PARENTS, [candidate("new")], now=151.0), Random(1)) is not None


def test_a_liar_is_given_up_after_its_trial_and_not_tried_again():
    placement = settled()
    says(placement, "liar", 0.0, 0.010)
    assert placement.better(around(PARENTS, [candidate("liar")]), Random(1)).candidate == b"liar"
    three = [*PARENTS, Held("liar", 3, since=100.0)]
    measured = {1: LinkQuality(first_share=0.9), 2: LinkQuality(first_share=0.1), 3: LinkQuality(first_share=0.0)}
    assert placement.surplus(around(three, now=105.0, qualities=measured)).parent == 3
    assert (placement.moves, placement.taken_back) == (0, 1)
    says(placement, "liar", 0.0, 0.010, now=200.0)
    assert PeerId(b"liar") not in placement.to_probe(around(PARENTS, [candidate("liar")], now=200.0), Random(1))


def test_a_parent_whose_copies_come_later_than_anothers_has_no_shorter_path_whatever_it_says():
    placement = settled()
    says(placement, "liar", 0.0, 0.010)
    three = [*PARENTS, Held("liar", 3, since=100.0)]
    late = {1: LinkQuality(lateness=0.0), 2: LinkQuality(lateness=0.002), 3: LinkQuality(lateness=0.04)}
    ways = placement._parent_ways(around(three, qualities=late))
    assert ways == {b"near": [0.020], b"far": [0.080], b"liar": [0.080]}
    assert placement._parent_ways(around(three, qualities={}))[b"liar"] == [0.005]


def test_bandwidth_is_what_links_were_seen_to_carry():
    placement = following("maximize min(path min(link.bandwidth))")
    for name in ("near", "far"):
        says(placement, name, 80_000.0, 0.020)
    measured = {1: LinkQuality(bandwidth=50_000.0), 2: LinkQuality(bandwidth=20_000.0)}
    here = around(PARENTS, qualities=measured)
    assert read_said_untrusted(placement.values(here)).path == (50_000.0,)
    says(placement, "new", 70_000.0, 0.020)
    move = placement.better(around(PARENTS, [candidate("new")], qualities=measured), Random(1))
    assert (move.parent, move.candidate) == (2, b"new")


def test_repair_and_disputes_go_first():
    placement = settled()
    says(placement, "new", 0.0, 0.010)
    disputed = [Held("near", 1, dispute="omitted"), Held("far", 2)]
    three = [*disputed, Held("new", 3)]
    assert placement.surplus(around(three)).parent == 1  # the best by cost, and disputed
    assert placement.better(around(disputed, [candidate("new", free=1)]), Random(1)).parent == 1


def test_a_parent_that_says_nothing_stops_no_repair_and_no_pruning():
    placement = following()
    assert placement.better(around(PARENTS, [candidate("new")]), Random(1)) is None
    assert placement.surplus(around([*PARENTS, Held("third", 3, hops=9)])).parent == 3


def test_what_a_parent_says_of_itself_counts_in_the_path():
    """Processor time is spent by the sender of a hop, so it belongs to whoever forwards."""
    placement = following("minimize average(path sum(link.latency + node.cpu))")
    root = read_said_untrusted(placement.values(around([], level=0, measures={"cpu": 0.004})))
    assert (root.path, root.node[0]) == ((0.0,), 0.004)
    placement.measured(PeerId(b"near"), 0.020, root.as_values(), 99.0)
    said = read_said_untrusted(placement.values(around(PARENTS[:1])))
    assert said.path == (pytest.approx(0.010 + 0.004),)


def test_a_constraint_that_is_broken_is_named():
    placement = settled(LATENCY + " subject to path sum(link.latency) <= 10 ms")
    said = read_said_untrusted(placement.values(around(PARENTS)))
    assert said.broken == "path sum(link.latency) <= 10 ms"
    assert said.violation == pytest.approx((said.cost - 0.01) / 0.01)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("minimize sum(superfluous)", "does not depend on paths"),
        ("minimize max(fanout)", "does not depend on paths"),
        ("minimize sum(path average(link.latency))", "the length of a path"),
        ("minimize sum(children sum(link.latency))", "children sum(link.latency)"),
    ],
)
def test_a_goal_that_cannot_be_followed_says_why_and_changes_nothing(text, problem):
    placement = following(text)
    assert placement.course is None
    assert problem in placement.problem
    assert problem in read_said_untrusted(placement.values(around(PARENTS))).problem
    move = placement.better(around([Held("a", 1, hops=5)], [candidate("near", hops=0)]), Random(1))
    assert move.candidate == b"near"  # as without a goal


def test_what_strangers_say_is_bounded():
    placement = following()
    for number in range(2 * MAX_KNOWN):
        says(placement, f"peer{number}", 0.1, 0.1)
    assert len(placement._known) == MAX_KNOWN


@given(st.dictionaries(st.integers(0, 255), st.binary(max_size=200)))
def test_any_attributes_are_read(values):
    said = read_said_untrusted(values)
    assert all(value >= 0 for value in said.path)
    assert said.cost is None or math.isfinite(said.cost)


@given(st.binary(max_size=700))
def test_any_bytes_are_no_goal_of_the_owner(data):
    with pytest.raises(MalformedGoal):
        read_goal_untrusted(data, "asdi", bytes(OWNER.peer_id))


def test_functions_arithmetic_and_several_aggregates_are_followed():
    goal = parse_goal(
        "minimize sum(larger(path sum(link.latency), path max(link.latency) * 3) + path sum(link.latency) / 2)"
    )
    course = Course(goal, VOCABULARY)
    assert course.problem == ""
    values = course.through(course.through(course.start, {"latency": 1.0}, {}), {"latency": 2.0}, {})
    assert sorted(values) == [2.0, 3.0]
    assert course.standing(values, {}).cost == max(3.0, 6.0) + 1.5
    assert course.worth(values, {}) == 7.5
