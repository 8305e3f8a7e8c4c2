"""Every knob of the mesh machine: what it does, its formula where it has one, and what raising it costs.

The defaults are for a LAN or a good wide-area network with data flowing; `wan()` is for long paths with bursty loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

MAX_NAME_BYTES = 64
"""Of a peer's name and of its version."""
MAX_PARENTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    """Frozen; a wrong value is refused at once with the names of the knobs that disagree."""

    # What this peer is.
    parents_wanted: int = 2
    """n: any n-1 parents can die with no stall. Each one more costs one more copy of the stream on the way in."""
    capacity: int = 6
    """Children this peer carries; 0 makes it a leaf. Raising it makes the mesh shallower and this peer busier."""
    repair_share: float = 0.25
    """Share of the capacity kept for peers that have children themselves (see `reserved_slots`). Without it p99 of
    repair was 7.6 s instead of 2.0 s in the placement model; raising it makes new peers go deeper."""
    makes_room: bool = True
    """When full, move a childless child that has another parent elsewhere for the sake of a repair. The moved child
    looks for a parent once more; without it a peer under churn can find every lower slot taken by leaves."""
    requires_resilient_parents: bool = False
    """Take only parents whose own resilience is at least `parents_wanted`: then resilience holds up to the roots. Costs
    choice, and a wait while the mesh above is degraded."""

    # Noticing death.
    beat_interval: float = 0.1
    """Parent to child. Raising it saves datagrams and delays everything below in proportion."""
    report_interval: float = 0.5
    """Child to parent. A dead child costs only a slot, so this is slower than the beat."""
    suspect_after: float = 0.9
    """Silence of a parent after which a spare is sought: nine beats. At 10 % independent loss a false alarm has odds of
    1e-9 a beat; under bursty loss any limit below 1 s raises some, which is why suspicion only adds."""
    drop_after: float = 2.7
    """Silence after which a parent is given up: three times `suspect_after`. Raising it keeps dead parents longer in
    dcp's list of whom to wait for."""
    child_timeout: float = 3.0
    """Silence of a child after which its slot is free again: six reports."""
    confirm_timeout: float = 1.5
    """How long an accepted child may take to say its first word before the slot is free again."""
    feed_timeout: float = 3.0
    """A parent whose root counter has not advanced for this long is not fed, does not count towards n, and a peer with
    only such parents takes no children (R7). Raising it lets a cut-off subtree believe for longer."""
    max_feed_age: float = 10.0
    """A root beat that is said to be older proves nothing, advancing or not. Each hop adds up to one
    `beat_interval`, so this bounds the depth at which a mesh still counts as rooted to 100 hops at the default beat."""
    thaw_after: float = 0.7
    """Lateness of a timer from which this peer knows that it slept, and trusts nothing it believed. Below
    `suspect_after`, so that a sleeper knows it no later than its children do. Too low makes a busy machine distrust
    itself, which costs one probe a parent."""

    # Joining and repair.
    join_timeout: float = 0.8
    """How long an opening may take; two round trips and a retry of dcp's on a wide-area path."""
    hedge_after: float = 0.3
    """A join that is not answered by then is joined by a second one to somebody else; the slower answer is declined.
    Among many dead candidates time-outs would be the whole of the repair time. Lower wastes joins on slow paths."""
    choices: int = 3
    """A new join goes to the best of so many random candidates. 1 is blind, many make a herd."""
    repair_choices: int = 8
    """The same for a peer with children, whose choice is narrower and matters to more."""
    joins_per_round: int = 24
    """Refusals and time-outs in a row before backing off."""
    backoff_base: tuple[float, float] = (0.1, 0.3)
    """Wait between rounds: uniform in this range, doubled each round, see `backoff_limit`."""
    backoff_limit: float = 4.0
    """No wait between rounds is longer. Raising it slows the return to n parents when a peer or a path is there again
    after a long outage (16 s made it 9 to 20 s); lowering it asks the directory more often while nobody is there."""
    max_joins_per_second: float = 20.0
    """Joins this peer answers with more than a refusal, in a second (bursts of the same size). Keeps a crowd of orphans
    from falling on one peer."""
    cold_after: float = 3.0
    """A peer with children waits so long with no parent at all before it lets them go and starts cold (R6)."""
    leave_grace: float = 1.5
    """How long a leaving peer goes on feeding its children, so that they repair before the link goes: suspicion is
    instant then, so a join and a margin."""

    # Levels.
    level_step: tuple[int, int] = (512, 1024)
    """A new level is the highest parent's plus a random number from here: sparse, so that there is room between two
    neighbours for a repair (p99 of repair 9.0 s with step 1, 2.0 s with this). Raising it only uses up numbers."""

    # Shape over time.
    replace_interval: float = 60.0
    """About every so often (jittered by half) a peer looks whether a parent nearer to the root has room. Lower flattens
    faster and joins more."""
    replace_gain: int = 1
    """Hops that must be won for it."""
    rotate_interval: float = 5.0
    """A parent whose word about the stream was disputed is replaced, if somebody undisputed has room; at most one in
    this time, so that a liar that frames everybody else cannot keep its children moving."""
    dispute_lifetime: float = 300.0
    """A dispute is forgotten after this long."""
    spare_patience: float = 2.0
    """A parent above n is kept this long after it came, so that a suspect can prove itself first."""

    # The directory and the warm cache.
    lookup_interval: float = 20.0
    """The warm cache is refreshed about this often (jittered by half) when nothing is wrong."""
    lookup_patience: float = 0.5
    """Not more than one lookup in this time while something is wrong."""
    max_candidates: int = 64
    """Candidates kept; beyond it the least useful goes."""
    candidate_lifetime: float = 60.0
    """A candidate not heard of for this long is forgotten."""
    publish_interval: float = 10.0
    """The record is published again at least this often (jittered by half)."""
    publish_patience: float = 1.0
    """Changes are published at most this often."""

    def __post_init__(self) -> None:
        if not 1 <= self.parents_wanted <= MAX_PARENTS:
            raise ValueError(f"parents_wanted is 1 to {MAX_PARENTS}, not {self.parents_wanted}")
        if not 0 <= self.capacity <= 4_096:
            raise ValueError(f"capacity is 0 to 4,096 children, not {self.capacity}")
        if not 0 <= self.repair_share < 1:
            raise ValueError(f"repair_share is 0 up to 1, not {self.repair_share}")
        if not 2 * self.beat_interval < self.suspect_after < self.drop_after:
            raise ValueError("two beats must fit into suspect_after, and suspect_after must be below drop_after")
        if not self.report_interval * 2 < self.child_timeout:
            raise ValueError("two reports must fit into child_timeout")
        if not self.beat_interval < self.thaw_after:
            raise ValueError("thaw_after must be above beat_interval, or every beat is a sleep")
        if not 1 <= self.level_step[0] <= self.level_step[1]:
            raise ValueError(f"level_step is a range from 1 up, not {self.level_step}")

    def for_tree(self) -> Self:
        """For placement by the reference tree: it looks at its place often, and has to know everybody around it."""
        return replace(self, replace_interval=8.0, lookup_interval=8.0, max_candidates=max(self.max_candidates, 512))

    @property
    def reserved_slots(self) -> int:
        """A quarter of the capacity, at least one, and never all of it: max(1, share * capacity), below capacity."""
        if self.repair_share == 0:
            return 0
        return min(max(1, int(self.capacity * self.repair_share)), max(0, self.capacity - 1))

    @property
    def host_share(self) -> int:
        """Slots that one host keeps when others ask for them: a third of the capacity, at least two. Fewer would move
        honest peers that share a host; more would let two hosts shut out everybody else."""
        return max(2, self.capacity // 3)

    def wan(self) -> Self:
        """For long, lossy paths: three times the patience, and so three times the time until a repair starts."""
        return replace(
            self,
            beat_interval=0.3,
            report_interval=1.0,
            suspect_after=2.7,
            drop_after=8.0,
            child_timeout=8.0,
            confirm_timeout=4.0,
            feed_timeout=9.0,
            max_feed_age=30.0,
            thaw_after=2.0,
            join_timeout=2.4,
            hedge_after=0.9,
            cold_after=9.0,
            leave_grace=4.0,
        )
