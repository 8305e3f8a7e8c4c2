"""The parents a peer holds, and what is known of each. Data and arithmetic; `upkeep.py` and the placement decide.

A parent is *held* from the taken Accept until the link ends. It is *sound*, and counts towards n, while it is heard,
fed from a root, not leaving, and, after a sleep of ours, has proved that it still holds the link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peer.mesh.hostport import HostPort
from peer.mesh.liveness import RootFeed, RootMemory, Verdict, resilience, verdict
from peer.mesh.messages import MAX_HOPS, MAX_PEERS_IN_ANSWER, UNFED, Accept, Beat, PeerAt, PeerId, RootProof

if TYPE_CHECKING:
    from peer.mesh.config import MeshConfig
    from peer.mesh.events import LinkId

NEVER = float("inf")


@dataclass(slots=True)
class PendingJoin:
    """A join that was sent and not answered yet."""

    peer_id: PeerId
    address: HostPort
    sent_at: float
    deadline_at: float
    replaces: LinkId | None
    """The parent for which a better one was found; None when a parent was missing."""


@dataclass(slots=True)
class Parent:
    """Invariant: the peer's own level is above `reported` for as long as it holds this."""

    link: LinkId
    peer_id: PeerId
    address: HostPort
    reported: int
    """The lowest level it reported over this link (see LevelRules.reported)."""
    hops: int
    resilience: int
    since: float
    heard_at: float
    feed: RootFeed
    is_suspect: bool = False
    is_fed: bool = False
    is_leaving: bool = False
    probe: int | None = None
    """Set after a sleep, until the parent echoes this number: nothing else it says counts before."""
    dispute: str | None = None
    """Why its word about the stream was last disputed; None if it never was on this link."""
    disputed_at: float = float("-inf")
    """When the owner last heard of that."""

    @property
    def is_sound(self) -> bool:
        return self.is_fed and not self.is_suspect and not self.is_leaving and self.probe is None


@dataclass(slots=True)
class Judgement:
    """What one look at the clock showed."""

    suspected: list[Parent] = field(default_factory=list)
    dead: list[Parent] = field(default_factory=list)
    starved: list[Parent] = field(default_factory=list)
    next_at: float = NEVER


class ParentTable:
    def __init__(self, config: MeshConfig) -> None:
        self._config = config
        self.links: dict[LinkId, Parent] = {}
        self._memory = RootMemory(config.beat_interval)

    def __len__(self) -> int:
        return len(self.links)

    def add(self, link: LinkId, join: PendingJoin, accept: Accept, now: float) -> Parent:
        parent = Parent(
            link,
            join.peer_id,
            join.address,
            accept.level,
            accept.hops,
            accept.resilience,
            since=now,
            heard_at=now,
            feed=RootFeed(self._memory),
        )
        parent.feed.hear(accept.feed, now)
        parent.is_fed = self._is_fresh(parent, now)
        self.links[link] = parent
        return parent

    def sound(self) -> list[Parent]:
        return [p for p in self.links.values() if p.is_sound]

    def reported(self) -> list[int]:
        return [p.reported for p in self.links.values()]

    def peer_ids(self) -> set[PeerId]:
        return {p.peer_id for p in self.links.values()}

    def hops(self) -> int:
        """One more than the farthest sound parent: what all but the last of them dying would leave us with."""
        among = self.sound() or list(self.links.values())
        return min(1 + max((p.hops for p in among), default=MAX_HOPS), MAX_HOPS)

    def resilience(self) -> int:
        return resilience([p.resilience for p in self.sound()])

    def best_feed(self, now: float) -> RootProof:
        """The proof to pass down: that of the sound parent whose root beat is youngest."""
        best = max((p for p in self.links.values() if p.is_sound), key=lambda p: p.feed.origin_at, default=None)
        return best.feed.passed_down(now) if best is not None else UNFED

    def hear(self, parent: Parent, beat: Beat, now: float) -> bool:
        """Take a beat; says whether the parent's soundness, hops or resilience may have changed."""
        if parent.probe is not None:
            return False
        parent.heard_at = now
        parent.feed.hear(beat.feed, now)
        if (
            parent.is_fed
            and not parent.is_suspect
            and parent.is_leaving == beat.is_leaving
            and parent.hops == beat.hops
            and parent.resilience == beat.resilience
        ):
            return False
        parent.is_suspect = False
        parent.is_leaving = beat.is_leaving
        parent.hops, parent.resilience = beat.hops, beat.resilience
        parent.is_fed = self._is_fresh(parent, now)
        return True

    def echoed(self, parent: Parent, number: int, now: float) -> bool:
        if parent.probe is None or parent.probe != number:
            return False
        parent.probe = None
        parent.is_suspect = False
        parent.heard_at = now
        return True

    def distrust(self, now: float, number: int) -> None:
        """After a sleep: every parent is a suspect until it echoes `number`, and is dropped if it never does."""
        for parent in self.links.values():
            parent.probe = number
            parent.is_suspect = True
            parent.is_fed = False
            parent.feed.forget()
            parent.heard_at = now - self._config.suspect_after

    def judge(self, now: float, heard_at: Callable[[LinkId], float | None]) -> Judgement:
        """Find the silent and the unfed. `heard_at` is dcp's own knowledge: data counts as a sign of life too."""
        config = self._config
        found = Judgement()
        for parent in self.links.values():
            if parent.probe is None:
                other = heard_at(parent.link)
                if other is not None and other > parent.heard_at:
                    parent.heard_at = other
            silence = now - parent.heard_at
            how = verdict(silence, suspect_after=config.suspect_after, drop_after=config.drop_after)
            if how is Verdict.DEAD:
                found.dead.append(parent)
                continue
            if how is Verdict.SUSPECT and not parent.is_suspect:
                parent.is_suspect = True
                found.suspected.append(parent)
            elif how is Verdict.ALIVE and parent.probe is None:
                parent.is_suspect = False
            limit = config.drop_after if parent.is_suspect else config.suspect_after
            found.next_at = min(found.next_at, parent.heard_at + limit)
            fresh = self._is_fresh(parent, now)
            if parent.is_fed and not fresh:
                found.starved.append(parent)
            parent.is_fed = fresh and parent.probe is None
            if parent.is_fed:
                found.next_at = min(found.next_at, parent.feed.advanced_at + config.feed_timeout)
        return found

    def answer(self) -> tuple[PeerAt, ...]:
        peers = [PeerAt(p.peer_id, p.address, p.reported) for p in self.links.values()]
        return tuple(peers[:MAX_PEERS_IN_ANSWER])

    def _is_fresh(self, parent: Parent, now: float) -> bool:
        return parent.feed.is_fresh(now, feed_timeout=self._config.feed_timeout, max_feed_age=self._config.max_feed_age)
