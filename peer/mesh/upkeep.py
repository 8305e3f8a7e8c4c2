"""Keeping the mesh around this peer in order: after every loss, and whenever time has shown something.

A repair is not a procedure but a difference: `review` compares the sound parents with the wanted ones, and everything
that changes either ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh.events import (
    ChildLost,
    ColdRestart,
    Degraded,
    Disputed,
    Left,
    ParentLost,
    ParentSuspected,
    Restored,
    Starved,
)
from peer.mesh.guidance import PERIOD, PROBE_PATIENCE, Guidance
from peer.mesh.membership import SEEKING, Input, Membership
from peer.mesh.messages import UNPLACED, CloseReason
from peer.mesh.placement.moves import Trade
from peer.mesh.timers import Timer

if TYPE_CHECKING:
    from peer.mesh.advertising import Advertising
    from peer.mesh.children import Child, ChildTable
    from peer.mesh.disputes import DisputeMemory
    from peer.mesh.parents import Parent, ParentTable
    from peer.mesh.placement.moves import Placement
    from peer.mesh.seeking import Seeking
    from peer.mesh.state import MeshState
    from peer.mesh.surroundings import LinkObserver, Surroundings

COLD_RETRY = 1.0
"""Seconds until an orphan that found nobody at any level looks again whether a cold restart would help."""
STARVES = "it reports packets and brings none"
NEVER = float("inf")


class Upkeep:
    """Invariant: after each public call the state, the level and the timers fit the two tables of links."""

    def __init__(
        self,
        own: MeshState,
        parents: ParentTable,
        children: ChildTable,
        *,
        seeking: Seeking,
        advertising: Advertising,
        placement: Placement,
        surroundings: Surroundings,
        observer: LinkObserver,
        disputes: DisputeMemory,
        guidance: Guidance,
    ) -> None:
        self._own, self._parents, self._children = own, parents, children
        self._seeking, self._advertising = seeking, advertising
        self._placement, self._surroundings, self._observer = placement, surroundings, observer
        self._disputes, self._guidance = disputes, guidance
        self._looked_for_better_at = float("-inf")
        self.short_since: float | None = None
        """Since when there have been fewer sound parents than wanted; None while there are enough."""

    # Level and state

    def relevel(self) -> None:
        """Keep the level above every parent: rise where R4 lets it, fall where R5 lets it and it pays."""
        own = self._own
        reported = self._parents.reported()
        if not reported or own.is_root:
            return
        if own.level == UNPLACED or own.level <= max(reported):
            if own.rules.may_rise(has_children=bool(self._children)):
                own.set_level(own.rules.place(reported, own.rng))
            return
        lower = own.rules.lowered(own.level, reported, own.rng)
        if lower is not None and own.rules.may_fall(lower, reported):
            own.set_level(lower)

    def review(self, now: float) -> None:
        """Sum up the parents as one input of the table, and act on the difference."""
        own = self._own
        if own.state not in SEEKING:
            return
        wanted = own.config.parents_wanted
        sound = len(self._parents.sound())
        if sound >= wanted:
            given = Input.COMPLETE
        elif self._parents:
            given = Input.SHORT
        else:
            given = Input.BARE if self._children else Input.FREE
        before = own.state
        own.step(given)
        if own.state is not Membership.ORPHANED:
            own.timers.stop(Timer.COLD)
        elif before is not Membership.ORPHANED:
            own.timers.set(Timer.COLD, now + own.config.cold_after)
        if given is Input.FREE:
            own.set_level(UNPLACED)
        if sound >= wanted:
            own.is_repairing = False
            if self.short_since is not None:
                own.events.append(Restored(wanted, now - self.short_since))
                self.short_since = None
            if len(self._parents) > own.parents_to_hold:
                own.timers.set_earlier(Timer.PRUNE, now + max(own.config.spare_patience, self._guidance.trial))
            return
        if self.short_since is None:
            self.short_since = now
            own.events.append(Degraded(sound, wanted))
            self._seeking.soon(now)
        own.timers.set_earlier(Timer.SEEK, now + own.config.backoff_limit)

    # Losses

    def lose_parent(self, parent: Parent, reason: CloseReason | str, now: float) -> None:
        """A CloseReason closes the link; words mean that it is gone already."""
        own = self._own
        del self._parents.links[parent.link]
        own.version += 1
        own.counters["parents_lost"] += 1
        was_given_up = reason is CloseReason.EXCESS
        own.is_repairing |= not was_given_up
        if isinstance(reason, CloseReason):
            own.close(parent.link, reason)
            reason = reason.name.lower()
        own.events.append(ParentLost(parent.link, parent.peer_id, reason))
        if not (was_given_up and parent.is_sound and parent.dispute is None):
            # One that was given up for a better one did nothing wrong, and may be asked again at once.
            self._seeking.candidates.failed(parent.peer_id, now=now)
        self._advertising.touch(now)
        self.relevel()
        self._seeking.soon(now)
        self.review(now)

    def lose_child(self, child: Child, reason: CloseReason | str, now: float) -> None:
        own = self._own
        del self._children.links[child.link]
        own.version += 1
        if isinstance(reason, CloseReason):
            own.close(child.link, reason)
            reason = reason.name.lower()
        own.events.append(ChildLost(child.link, child.peer_id, reason))
        if own.state is Membership.LEAVING:
            if not self._children:
                self.finish(now)
            return
        self._advertising.touch(now)
        if not self._children:
            self.review(now)

    def finish(self, now: float) -> None:
        own = self._own
        if own.state is Membership.LEAVING:
            own.step(Input.GONE)
        for link in (*self._children.links, *self._parents.links):
            own.close(link, CloseReason.LEAVING)
        self._children.links.clear()
        self._parents.links.clear()
        own.version += 1
        own.timers.clear()
        own.events.append(Left())

    # What time shows

    def on_watch(self, now: float) -> None:
        own = self._own
        joins_at = self._seeking.expire(now)
        gone, children_at = self._children.silent(now, self._observer.heard_at)
        for child in gone:
            if child.link in self._children.links:
                self.lose_child(child, CloseReason.SILENT, now)
        if own.state is Membership.LEFT:
            return
        found = self._parents.judge(now, self._observer.heard_at)
        for parent in found.suspected:
            own.counters["suspected"] += 1
            own.events.append(ParentSuspected(parent.link, parent.peer_id))
        for parent in found.dead:
            self.lose_parent(parent, CloseReason.SILENT, now)
        if found.suspected or found.starved:
            self._advertising.touch(now)
            self._seeking.soon(now)
        self.review(now)
        next_at = min(joins_at, children_at, found.next_at)
        if next_at < NEVER:
            own.timers.set_earlier(Timer.WATCH, max(next_at, now + own.config.beat_interval / 4))

    def on_cold(self, now: float) -> None:
        """R6: no parent at all for too long. Only worth it if somebody, at whatever level, might take us then."""
        if self._own.state is not Membership.ORPHANED:
            return
        if not self._seeking.candidates.eligible(now, below=UNPLACED, exclude=self._children.peer_ids()):
            self._seeking.look_up(now, below=UNPLACED)
            self._own.timers.set(Timer.COLD, now + COLD_RETRY)
            return
        self._restart_cold(now)

    def _restart_cold(self, now: float) -> None:
        """Let the children go with the reason, forget the level, start over."""
        own = self._own
        own.step(Input.COLD)
        own.counters["cold_restarts"] += 1
        own.events.append(ColdRestart(len(self._children)))
        for child in self._children.links.values():
            own.close(child.link, CloseReason.COLD_RESTART)
            own.events.append(ChildLost(child.link, child.peer_id, CloseReason.COLD_RESTART.name.lower()))
        self._children.links.clear()
        own.version += 1
        self._seeking.give_up()
        own.set_level(UNPLACED)
        self._advertising.withdraw()
        self._seeking.soon(now)

    def on_prune(self, now: float) -> None:
        """Down to n, only while n sound ones remain."""
        wanted = self._own.parents_to_hold
        while len(self._parents) > wanted <= len(self._parents.sound()):
            move = self._placement.surplus(self._surroundings.at(now))
            parent = None if move is None else self._parents.links.get(move.parent)
            if parent is None:
                return
            self._own.counters["pruned"] += 1
            self.lose_parent(parent, CloseReason.EXCESS, now)

    def on_replace(self, now: float) -> None:
        """STEADY, with nothing pending: the moment to look for a better place."""
        own = self._own
        is_disputed = any(parent.dispute is not None for parent in self._parents.links.values())
        interval = own.config.rotate_interval if is_disputed else own.config.replace_interval
        if self._guidance.is_active:
            interval = min(interval, PERIOD)
        own.timers.set(Timer.REPLACE, now + own.jittered(interval))
        if own.state is Membership.STEADY and not self._seeking.pending:
            if not is_disputed and self._guidance.explore(now):
                own.timers.set(Timer.REPLACE, now + PROBE_PATIENCE)
                return
            self._looked_for_better_at = now
            if is_disputed:
                self._seeking.look_up(now)
            self._seeking.probe(now)
            move = self._seeking.improve(now)
            self.relevel()  # in the reference tree a place can rise while the parents stay the same
            if isinstance(move, Trade):
                self._guidance.trade(move, now)
            elif move is not None:
                self._vacate(now)

    def _vacate(self, now: float) -> None:
        """Our place is farther from the roots than our level, and with children a level can't rise (R4)."""
        self._own.counters["vacated"] += 1
        for child in list(self._children.links.values()):
            self.lose_child(child, CloseReason.MAKE_ROOM, now)
        # At once: the children will be back, and hold it down again.
        if self._own.rules.may_rise(has_children=bool(self._children)):
            self._own.set_level(self._own.rules.place(self._parents.reported(), self._own.rng))
        self._own.timers.set_earlier(Timer.REPLACE, now + self._own.config.rotate_interval)

    # Disputes

    def dispute(self, parent: Parent, *, after: int, until: int, reason: str, now: float) -> None:
        """A parent's word about the stream is contradicted: prefer others from now on, and look for one soon."""
        own = self._own
        own.counters["disputed"] += 1
        self._disputes.remember(parent.peer_id, now)
        parent.dispute = reason
        # A liar can be contradicted about every packet: say it once in a while, and count the rest.
        if now - parent.disputed_at < own.config.rotate_interval:
            return
        parent.disputed_at = now
        own.events.append(Disputed(parent.link, parent.peer_id, parent.address, after, until, reason))
        own.timers.set_earlier(Timer.REPLACE, max(now, self._looked_for_better_at + own.config.rotate_interval))

    def convict(self, parent: Parent, *, an: int, reason: str, closes: bool, now: float) -> None:
        """A parent lied, and that is proved. One that only left packets out stays until another is there (rule L10)."""
        self._own.counters[f"convicted_{reason}"] += 1
        self.dispute(parent, after=an - 1, until=an, reason=f"convicted: {reason}", now=now)
        if closes:
            self.lose_parent(parent, CloseReason.FORGED, now)
        self._seeking.candidates.convicted(parent.peer_id, now=now)

    def starve(self, *, head: int, seconds: float, now: float) -> None:
        """No parent brings anything of what all say is there: none of them is worth keeping if others have room."""
        own = self._own
        own.counters["starved"] += 1
        own.events.append(Starved(head, seconds))
        for parent in self._parents.links.values():
            self._disputes.remember(parent.peer_id, now)
            parent.dispute = STARVES
        if self._parents:
            own.timers.set_earlier(Timer.REPLACE, max(now, self._looked_for_better_at + own.config.rotate_interval))
