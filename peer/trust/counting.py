"""Whether a client of everything has everything, by what the roots have counted and signed.

Two beats of one run say how many packets lie between their heads. A client that asked for everything, and was handed
fewer without a gap, was cheated by all its parents together: nothing else can show that. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from dcp import Gap, Omitted, Packet, Started
from peer.items import Content, QuerySwitched
from peer.trust.beats import Beat

if TYPE_CHECKING:
    from dcp.receiver import Receiver

MAX_COUNTED = 65_536
"""Packets whose numbers are kept; a stretch that is longer is not judged."""
MAX_STRETCHES = 16
PATIENCE = 5.0
"""Packets that a parent left out come late from another one."""


class Missing(NamedTuple):
    """So many packets in (after, until] were never handed over, and no gap was reported there."""

    after: int
    until: int
    packets: int


class _Stretch(NamedTuple):
    after: int
    until: int
    packets: int
    judge_at: float


class Counting:
    def __init__(self) -> None:
        self._ans: list[int] = []  # in order, but for the few that came late
        self.is_everything = False
        """The client asks for everything at first."""
        self.has_withheld = False
        """This peer receives withheld packets too; others count without them."""
        self._since: int | None = None
        self._holes_until = -1
        self._last: dict[bytes, Beat] = {}
        self._stretches: list[_Stretch] = []
        self.checked = 0
        """Packets in stretches that were found complete."""

    def begin(self, position: int) -> None:
        """From here on everything was asked for."""
        self._ans, self._stretches, self._holes_until = [], [], -1
        self._last.clear()
        self._since = position

    def stop(self) -> None:
        """Something else than everything is asked for."""
        self._since = None

    def packet(self, an: int) -> None:
        if self._since is None:
            return
        if self._ans and an < self._ans[-1]:
            self._ans.insert(bisect_right(self._ans, an), an)
        else:
            self._ans.append(an)
        if len(self._ans) > MAX_COUNTED:
            self._since = self._ans[MAX_COUNTED // 2 - 1]
            del self._ans[: MAX_COUNTED // 2]

    def gap(self, until: int) -> None:
        """What is reported as lost is not missing in silence: nothing up to here is judged."""
        self._holes_until = max(self._holes_until, until)

    def hear(self, beat: Beat, now: float) -> None:
        last = self._last.get(beat.signer)
        self._last[beat.signer] = beat
        if last is None or last.run != beat.run or last.after != beat.after or beat.head <= last.head:
            return
        if len(self._stretches) < MAX_STRETCHES:
            packets = beat.packets - last.packets
            if not self.has_withheld:
                packets -= beat.withheld - last.withheld
            self._stretches.append(_Stretch(last.head, beat.head, packets, now + PATIENCE))

    def lose_withheld(self) -> None:
        """From here on withheld packets no longer come: what was counted with them says nothing about the rest."""
        self.has_withheld = False
        self._last.clear()
        self._stretches.clear()

    def note(self, item: Content) -> None:
        """What the client is handed."""
        if type(item) is Packet:  # nearly always
            self.packet(item.an)
            return
        match item:
            case Omitted(an, _):
                self.packet(an)
            case Gap(_, until):
                self.gap(until)
            case Started(position):
                if self.is_everything:
                    self.begin(position)
            case QuerySwitched(position, None):
                self.is_everything = True
                self.begin(position)
            case QuerySwitched():
                self.is_everything = False
                self.stop()

    def judge(self, receiver: Receiver | None, now: float) -> Missing | None:
        """The next stretch in which packets are missing."""
        if receiver is None or not self._stretches or now < self._stretches[0].judge_at:
            return None
        # What waits to be handed over has not been counted yet.
        handed = self._ans[-1] if self._ans else None
        return self._judge(receiver.position if receiver.is_drained else handed, now)

    def _judge(self, position: int | None, now: float) -> Missing | None:
        while self._stretches and now >= self._stretches[0].judge_at:
            stretch = self._stretches[0]
            if self._since is None or stretch.after < max(self._since, self._holes_until):
                self._stretches.pop(0)
                continue
            if position is None or position < stretch.until:
                return None  # not there yet
            self._stretches.pop(0)
            got = bisect_right(self._ans, stretch.until) - bisect_right(self._ans, stretch.after)
            if got < stretch.packets:
                return Missing(stretch.after, stretch.until, stretch.packets - got)
            self.checked += got
        return None
