"""The other side of a random audit (`audits`): peers that look into our log for a moment.

A visitor is no child: it takes no slot, is in no level order, and nobody waits for it. It costs as much as a child does
for `MAX_SECONDS` at most, and there are few at a time; whoever needs a grant to be a child needs it here. A peer that
does not ask for everything itself has nothing to show, and must not begin to ask for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcp import EVERYTHING, Reason
from dcp.admission import Bucket
from peer.mesh.encoding import encode_visit

if TYPE_CHECKING:
    from dcp import Hub
    from dcp import events as dcp_events

MAX_VISITORS = 2
MAX_SECONDS = 12.0
VISITS_PER_SECOND = 0.5
VISITS_AT_ONCE = 4
_HELLO = encode_visit()


class Visitors:
    def __init__(self, stream: str, hub: Hub) -> None:
        self.received = self.refused = 0
        self._stream, self._hub = stream, hub
        self._until: dict[int, float] = {}  # by dcp's number of the link
        self._bucket = Bucket(VISITS_PER_SECOND, VISITS_AT_ONCE)

    def __len__(self) -> int:
        return len(self._until)

    def receives(self, opening: dcp_events.OpeningReceived, now: float, *, is_restricted: bool = False) -> bool:
        """Whether somebody who may come in wants to look only: then it was let in, or refused.

        `is_restricted`: it gets nothing that is withheld.
        """
        if opening.hello != _HELLO:
            return False
        sender = self._hub.senders[self._stream]
        is_fit = opening.public_key and opening.query == EVERYTHING == sender.upstream_query and sender.log.started
        number = None
        if is_fit and len(self._until) < MAX_VISITORS and self._bucket.allows(now):
            number = self._hub.accept(self._stream, opening.ticket, now=now, is_restricted=is_restricted)
        if number is None:
            self.refused += 1
            self._hub.refuse(self._stream, opening.ticket, Reason.FULL)
        else:
            self.received += 1
            self._until[number] = now + MAX_SECONDS
        return True

    def look(self, now: float) -> None:
        """See who has gone, and who has to go."""
        for number, until in list(self._until.items()):
            sender = self._hub.senders.get(self._stream)
            if sender is None or number not in sender.links:
                del self._until[number]
            elif now >= until:
                del self._until[number]
                sender.close(number, Reason.NORMAL)
