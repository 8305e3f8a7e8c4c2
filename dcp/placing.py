"""Where a receiver stands: choosing where to begin, telling parents, and beginning again when the numbering has.

`starting` decides on the position that a stream begins after, `runs` notices that a stream has begun again; this does
what follows from both.
"""

from __future__ import annotations

from collections.abc import Callable

from dcp import events, handshake
from dcp.config import Config
from dcp.handshake import Start
from dcp.intake import Intake
from dcp.links.dialing import Wish
from dcp.links.replies import Replies
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.parent import Parent
from dcp.runs import RunWatch
from dcp.starting import StartChoice


class Placing:
    def __init__(
        self,
        stream: str,
        start: StartChoice,
        config: Config,
        intake: Intake,
        uplinks: Uplinks,
        replies: Replies,
        *,
        emit: Callable[[events.Event], None],
        on_switch: Callable[[bytes, float], None] | None,
        forget: Callable[[], None],
    ) -> None:
        """`forget`: drop everything that is known about the stream, and all links."""
        self.restarts = 0
        """How often the numbering has begun again below our position."""
        self._stream = stream
        self._starting = start
        self._runs = RunWatch(config, uplinks.parents)
        self._config = config
        self._intake = intake
        self._uplinks = uplinks
        self._replies = replies
        self._emit = emit
        self._on_switch = on_switch
        self._forget = forget

    # --- the beginning ------------------------------------------------------------------------------------------------

    def wish(self) -> Wish:
        """What to ask a parent for."""
        intake = self._intake
        position = intake.position
        start = Start.POSITION if position is not None else self._starting.mode
        return Wish(*intake.change.opening(), start, position or 0, intake.handover.room())

    def begin_where_asked(self, now: float) -> None:
        """If the application gave a position, no parent needs to propose one."""
        if self._intake.position is None and self._starting.position is not None:
            self._begin(self._starting.position, now)

    def accepted(self, link: Uplink, accept: handshake.Accept, now: float) -> None:
        """A parent has taken us: what its answer says about the stream."""
        intake, parent = self._intake, link.parent
        parent.up = True
        parent.confirmed_epoch = accept.epoch
        has_begun = bool(accept.status & handshake.ACCEPT_STARTED)
        if has_begun:
            parent.start = accept.start
        if accept.head or (has_begun and intake.position is None):
            parent.begun = True
        intake.reach.expire()
        if intake.position is None or intake.believes(parent, accept.head, now):
            parent.report_head(accept.head, now)
        self._emit(
            events.LinkOpened(self._stream, link.id, link.dialled, accept.reply, link.public_key, link.credentials)
        )
        if intake.position is None:
            self.consider_start(now)
        else:
            self._confirm(link, now)

    def consider_start(self, now: float) -> None:
        """A parent has answered: perhaps we know now where to begin."""
        start = self._starting.proposed(self._intake.parents.values(), now)
        if start is not None:
            self._begin(start, now)

    def _begin(self, position: int, now: float) -> None:
        intake = self._intake
        intake.begin(position, now, again=self._starting.is_again)
        self._runs.begin()
        self._starting.due_at = None
        if self._on_switch is not None:
            self._on_switch(intake.change.query, now)
        if intake.change.has_changed:  # changed before there was a stream: the application hears of it all the same
            intake.handover.put_switch(position, intake.change.query)
        for link in self._uplinks.up():
            self._confirm(link, now)

    def _confirm(self, link: Uplink, now: float) -> None:
        """Tell the parent where we stand: only then does data flow."""
        link.confirm_at = now + link.rtt.timeout(self._config.min_rto, self._config.max_rto)
        if link.parent.confirmed_epoch == self._intake.change.epoch:
            self._replies.request(link, now)

    def confirm_again(self, link: Uplink, now: float) -> None:
        """Unless the parent has sent something since: then it knows."""
        if self._intake.position is not None:
            link.confirm_at = None
            if not link.parent.heard_claim:
                self._confirm(link, now)

    def begin_if_due(self, now: float) -> None:
        """The window for proposals may have closed."""
        if (start := self._starting.due(self._intake.parents.values(), now)) is not None:
            self._begin(start, now)

    # --- a numbering that begins again --------------------------------------------------------------------------------

    def set_run(self, parent: Parent, run: bytes, now: float) -> None:
        parent.run = run
        self.consider_runs(now)

    def consider_runs(self, now: float) -> None:
        """Begin again if the parents agree on another run."""
        if self._intake.position is None:
            return
        run = self._runs.other_run(now)
        if run is not None:
            self.begin_again()
            self._runs.run = run

    def look_for_heads(self, now: float) -> None:
        """The owner hears when no parent has anything beyond our position."""
        position = self._intake.position
        if position is not None and self._runs.is_stranded(position, now):
            head = max(parent.head for parent in self._intake.parents.values() if parent.up)
            self._emit(events.Stranded(self._stream, position, head))

    def begin_again(self) -> None:
        if self._intake.position is not None:
            self.restarts += 1
            self._intake.position = None
            self._starting.again()
            self._forget()

    def next_timeouts(self) -> list[float | None]:
        has_position = self._intake.position is not None and bool(self._intake.parents)
        return [self._starting.due_at, self._runs.next_timeout() if has_position else None]
