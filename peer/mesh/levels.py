"""Levels: the seven rules that keep the mesh acyclic, each in one place with its reason.

The claim: at every instant, over every link that both ends hold, level(child) > level(parent). No clock is assumed, no
delivery, no order.

The argument. While a link's nonce is in the parent's table, the parent does not rise (R4), so every level it reported
over this link is at or above its present one. The child is above every level reported over this link: when it took the
link (R3), and ever after, because it falls only to above the last report (R5) and rises freely. So it is above the
parent's present level. A nonce is random and entered before it is sent (R1), so a link that the child holds is
either exactly that table entry, or one that the parent dropped: then only the child believes in it, beats and data no
longer come (an unknown nonce gets a reset), and the belief ends with the silence limit.

Three are not functions of this file: R1 is dcp's (it mints the nonce when we accept, and we enter the child before), R6
is the COLD transition of `membership.py`, which exists only from ORPHANED, and the first half of R7, that an Accept
counts only for a pending join, is that `Mesh.link_opened` takes the join out of the pending ones. They are named here
so that the list is whole.

A subclass may switch a rule off: that is how the tests show that each check of the simulator can fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from peer.mesh.messages import MAX_LEVEL, UNPLACED

ROOT_LEVEL = 0


class LevelRules:
    """What a level may do. Holds no state: the level and the tables are the mesh machine's."""

    def __init__(self, step: tuple[int, int] = (512, 1024)) -> None:
        self.step = step

    def ceiling(self, level: int, *, has_children: bool) -> int:
        """The level to put in a join: parents must be below it.

        Without children a peer can still rise above whatever accepts it, so every parent will do.
        """
        return level if has_children else UNPLACED

    def may_accept(self, level: int, join_level: int) -> bool:
        """R2: accept only while our level is below the level in the join.

        The join may be old; then R3 catches it at the child. Without R2 the child would have to refuse what the parent
        has already entered, and a crowd of joins would circle among peers of the same level.
        """
        return level < join_level

    def may_take(self, level: int, accepted: int, *, has_children: bool) -> bool:
        """R3: on Accept, check again with the level *now*.

        Between join and accept the child may have been placed elsewhere, have fallen, or have taken children; and an
        answer can come out of a long freeze.
        """
        if accepted + self.step[0] > MAX_LEVEL:
            return False
        return accepted < level or self.may_rise(has_children=has_children)

    def may_rise(self, *, has_children: bool) -> bool:
        """R4: a level rises only with an empty child table.

        Not "while it stays below every child's": a parent's rise and a child's fall, each legal on what it knows, cross
        on the way.
        """
        return not has_children

    def may_fall(self, level: int, reported: Iterable[int]) -> bool:
        """R5: a level falls only to above what every parent last reported."""
        return all(level > parent for parent in reported)

    def reported(self, before: int, now: int) -> int:
        """The level that counts as reported over one link: the lowest.

        It cannot rise while it holds the link (R4), so a higher number is an old datagram that came late.
        """
        return min(before, now)

    def may_parent(self, *, rooted: bool) -> bool:
        """R7: take children only while a root's beat, passed down, is fresh.

        A parent's keep-alive proves that the parent lives, not that anything feeds it: cut-off peers would adopt one
        another forever.
        """
        return rooted

    def place(self, reported: Iterable[int], rng: Random) -> int:
        """A new level above every parent, sparse: room for a repair to fit between two neighbours."""
        return min(max(reported, default=ROOT_LEVEL) + rng.randint(*self.step), MAX_LEVEL)

    def lowered(self, level: int, reported: Iterable[int], rng: Random) -> int | None:
        """Where to fall to when the parents are far below, or None.

        A peer that was re-placed nearer to the root but kept its old level would stay out of reach as a parent for
        those in between. Falling is legal with children (R5); they only see more room.
        """
        highest = max(reported, default=None)
        if highest is None or level - highest <= 2 * self.step[1]:
            return None
        target = highest + rng.randint(*self.step)
        return target if target < level else None
