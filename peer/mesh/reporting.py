"""What this peer says about itself: beats to its children, reports to its parents, its status to anybody who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer.mesh import encoding, messages
from peer.mesh.events import SendMessage
from peer.mesh.membership import Membership
from peer.mesh.messages import ROOT_RESILIENCE
from peer.mesh.timers import Timer

if TYPE_CHECKING:
    from peer.mesh.children import ChildTable
    from peer.mesh.events import LinkId
    from peer.mesh.guidance import Guidance
    from peer.mesh.parents import ParentTable
    from peer.mesh.state import MeshState


class Reporting:
    def __init__(self, own: MeshState, parents: ParentTable, children: ChildTable, guidance: Guidance) -> None:
        self._own, self._parents, self._children = own, parents, children
        self._guidance = guidance
        self._root_beat = 0

    @property
    def hops(self) -> int:
        return 0 if self._own.is_root else self._parents.hops()

    @property
    def resilience(self) -> int:
        return ROOT_RESILIENCE if self._own.is_root else self._parents.resilience()

    @property
    def is_rooted(self) -> bool:
        """A root, or with a sound parent: fed, heard, certain."""
        return self._own.is_root or any(p.is_sound for p in self._parents.links.values())

    def status(self) -> messages.State:
        own = self._own
        return messages.State(
            own.peer_id,
            own.level,
            self.hops,
            self.resilience,
            self.is_rooted,
            len(self._parents),
            0 if own.is_root else own.config.parents_wanted,
            len(self._children),
            own.config.capacity,
        )

    def proof(self, now: float) -> messages.RootProof:
        """That a root lives, to pass down."""
        if self._own.is_root:
            return messages.RootProof(self._own.run, self._root_beat, 0)
        return self._parents.best_feed(now)

    def report(self) -> messages.Report:
        own = self._own
        leaving = own.state is Membership.LEAVING
        serving = self.is_rooted and not leaving
        return messages.Report(
            min(own.level, messages.MAX_LEVEL),
            self.hops,
            self.resilience,
            leaving,
            len(self._parents.sound()),
            len(self._children),
            self._children.free if serving else 0,
            self._children.room_for_repair if serving else 0,
        )

    def send_report(self, *links: LinkId) -> None:
        self._own.effects.append(SendMessage(links, encoding.encode_link_message(self.report())))

    def on_beat_due(self, now: float) -> None:
        if self._children:
            self.send_beat(now)

    def send_beat(self, now: float) -> None:
        own = self._own
        if own.is_root:
            self._root_beat += 1
        leaving = own.state is Membership.LEAVING
        beat = messages.Beat(own.level, self.hops, self.resilience, leaving, self.proof(now))
        own.effects.append(SendMessage(tuple(self._children.links), encoding.encode_link_message(beat)))
        self._guidance.tell(self._children.links, up=False, now=now)
        own.timers.set(Timer.BEAT, now + own.config.beat_interval)

    def on_report_due(self, now: float) -> None:
        own = self._own
        if self._parents:
            self.send_report(*self._parents.links)
            self.send_probes()
            self._guidance.tell(self._parents.links, up=True, now=now)
            own.timers.set(Timer.REPORT, now + own.config.report_interval)

    def send_probes(self) -> None:
        """After a sleep: ask every parent that has not proved itself yet whether it still holds the link."""
        for parent in self._parents.links.values():
            if parent.probe is not None:
                probe = messages.Probe(parent.probe)
                self._own.effects.append(SendMessage((parent.link,), encoding.encode_link_message(probe)))
