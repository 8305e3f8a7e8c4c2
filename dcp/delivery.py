"""What an application gets from the mesh: packets in order, gaps, and where queries were switched."""

from __future__ import annotations

from dcp.events import Content
from dcp.handover import Handover, Item
from dcp.kinds import StreamKind


class DeliveredStream:
    """The half of a receiver that its owner reads from."""

    def __init__(self, stream: str, kind: StreamKind, handover: Handover) -> None:
        self.stream = stream
        self.kind = kind
        self.handover = handover

    @property
    def position(self) -> int | None:
        """Everything up to here was handed over, pruned by our query, or declared a gap. None: not started."""
        raise NotImplementedError

    def next_event(self) -> Content | None:
        """The next packet, gap, start or query switch, in the order of the stream."""
        return self.handover.next(self.position)

    def take(self, most: int) -> list[Content]:
        """Up to `most` events at once."""
        return self.handover.take(most, self.position)

    def take_plain(self, most: int) -> list[Item]:
        """The same, with packets as bare (AN, payload): for an owner that makes something else of them anyway."""
        return self.handover.take_plain(most, self.position)

    @property
    def has_events(self) -> bool:
        """Whether something waits for the application."""
        return self.handover.has_events

    @property
    def is_drained(self) -> bool:
        """Whether the application has been handed everything up to the position."""
        return self.handover.is_drained

    @property
    def backlog(self) -> float:
        """How full the application's queue is: 1 and more when it holds all it may."""
        return self.handover.backlog

    @property
    def has_closed_window(self) -> bool:
        """The application did not take packets fast enough: claims were turned away, or senders asked to hold back."""
        return self.handover.turned_away or self.handover.announced_little_room
