"""How far ahead of the other parents one parent is believed. Pure arithmetic over what the parents have said.

A parent that says "nothing matches up to 2^62" would carry the position past everything that the others will ever
bring. So with two or more parents no claim, head, hole or "all sent up to" counts beyond *reach*: the smallest head
that the other counting parents have reported, plus a slack for honest differences in delay. It is never measured from
our own position, which a liar could push ahead bit by bit.

A parent *counts* while it is up in our epoch, was heard within three keep-alive intervals, and is not *mute*: its head
is not below a packet that came from anybody `mute_after` ago. A refused head is remembered as reported: when every
parent jumps (feeds may number their packets by time), the last one to say so is believed at once, and the others
with it.

One honest case looks like a lie: a parent brings packets far ahead, and the others, which are heard, stand still.
After `reach_patience` without any progress of theirs the packets are believed; emptiness, heads and holes never are.

In a signed stream the head that its owner has signed takes the place of the others' heads, and a single parent is
bounded by it too. A convicted parent does not count.

With a single parent there is nothing to compare: then only the width of a claim is limited (2^30). But when the others
have only just gone, all at once, their last heads still limit its emptiness and holes for `reach_patience`: a liar must
not win by being the first to come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from dcp.authority import Authority
from dcp.config import Config
from dcp.parent import Parent
from dcp.serial import MAX_POSITION

# Honest parents differ by their delay: 4 s of the stream is twice the time after which a parent is mute.
SLACK_SECONDS = 4.0
# How often a parent's rate is measured, and what of an earlier, higher rate is left after each time.
RATE_INTERVAL = 0.5
RATE_DECAY = 0.9
# A parent's reach is computed at most this often while its claims stay within the last result.
RECHECK_INTERVAL = 0.05


class Reach:
    def __init__(
        self, config: Config, parents: Mapping[int, Parent], *, slack: int, authority: Authority | None = None
    ) -> None:
        self.seen = 0
        """The highest packet that came from anybody."""
        self._config = config
        self._parents = parents
        self._slack = slack
        self._authority = authority
        self._heard_within = 3 * config.keep_alive_interval
        self._marks: deque[tuple[float, int]] = deque()  # (when, `seen` then), of the last `mute_after`
        self._seen_before = 0
        self._compared: tuple[float, int, float] | None = None
        """When two parents counted last, the smaller head then, and its rate."""

    def begin(self, position: int) -> None:
        """The stream begins after `position`. A parent that still ends below it after `mute_after` has nothing for us.

        Not at once: the first one to answer may be a liar that ran ahead, and the honest ones must be heard.
        """
        self.seen = position
        self._seen_before = 0
        self._compared = None
        self._marks.clear()
        self.expire()

    def expire(self) -> None:
        """The parents have changed: compute every reach again."""
        for parent in self._parents.values():
            parent.reach = -1

    def allows(self, parent: Parent, an: int, epoch: int, now: float) -> bool:
        """Whether what `parent` says about `an` is believed. The result holds for a moment: see `Parent.reach`."""
        self._look(now)
        parent.reach = self.limit(parent, epoch, now)
        parent.reach_until = now + RECHECK_INTERVAL
        if parent.refused_head is not None and parent.refused_head <= parent.reach:
            parent.refused_since = None
        return an <= parent.reach

    def refused(self, parent: Parent, an: int, now: float, *, is_packet: bool) -> None:
        """Something beyond reach was said: it is not believed, but it shows where this parent stands."""
        if parent.refused_head is None or an > parent.refused_head:
            parent.refused_head = an
            parent.refused_head_at = now
        if is_packet:
            if parent.refused_since is None:
                parent.refused_since = now
                parent.refused_packet = an
            parent.refused_packet = max(parent.refused_packet, an)

    def counts(self, parent: Parent, epoch: int, now: float) -> bool:
        """Whether what this parent says, or does not say, limits the others."""
        return (
            parent.up
            and parent.begun
            and not parent.is_convicted
            and parent.confirmed_epoch == epoch
            and now - parent.link.heard_at < self._heard_within
            and parent.head >= self._seen_before
        )

    def limit(self, parent: Parent | None, epoch: int, now: float) -> int:
        """Nothing that `parent` (None: any parent) says counts beyond this position."""
        if (signed := self.signed_limit()) is not None:
            return signed
        limit = MAX_POSITION
        for other in self._parents.values():
            if other is parent or not self.counts(other, epoch, now):
                continue
            bound = other.head + max(self._slack, int(SLACK_SECONDS * other.head_rate))
            if parent is not None and parent.refused_since is not None:
                still_since = max(parent.refused_since, other.progress_at, other.refused_head_at)
                if now - still_since > self._config.reach_patience:
                    bound = max(bound, parent.refused_packet + self._slack)
            limit = min(limit, bound)
        return limit

    def limit_alone(self, epoch: int, now: float) -> int:
        """How far a single parent's emptiness is believed shortly after the others went."""
        counting = [parent for parent in self._parents.values() if self.counts(parent, epoch, now)]
        if len(counting) > 1:
            slowest = min(counting, key=lambda parent: parent.head)
            self._compared = (now, slowest.head, slowest.head_rate)
        if len(counting) > 1 or self._compared is None or now - self._compared[0] > self._config.reach_patience:
            return MAX_POSITION
        at, head, rate = self._compared
        return head + max(self._slack, int(SLACK_SECONDS * rate)) + int(rate * (now - at))

    def signed_head(self) -> int | None:
        """How far the stream goes, by the newest word that its owner has signed; None: there is none."""
        return self._authority.head() if self._authority is not None else None

    def signed_limit(self) -> int | None:
        """Nothing counts beyond the head that the stream's owner has signed, plus the slack; None: there is none."""
        head = self.signed_head()
        if head is None:
            return None
        rate = min((parent.head_rate for parent in self._parents.values() if parent.up), default=0.0)
        return min(MAX_POSITION, head + max(self._slack, int(SLACK_SECONDS * rate)))

    def gap_limit(self, position: int, epoch: int, now: float) -> int:
        """No gap after `position` ends beyond this: a counting parent with no hole there may still bring something."""
        self._look(now)
        limit = self.limit(None, epoch, now)
        if (head := self.signed_head()) is not None:
            limit = min(limit, max(head, self.seen))  # beyond it there is nothing yet that could be lost
        for parent in self._parents.values():
            if self.counts(parent, epoch, now) and parent.hole_at(position, epoch) is None:
                limit = min(limit, parent.head)
        return limit

    def _look(self, now: float) -> None:
        """Bring the rates, and what was seen a while ago, up to date."""
        marks = self._marks
        if not marks or (marks[-1][1] < self.seen and now - marks[-1][0] >= RECHECK_INTERVAL):
            marks.append((now, self.seen))
        while marks and marks[0][0] <= now - self._config.mute_after:
            self._seen_before = max(self._seen_before, marks.popleft()[1])
        for parent in self._parents.values():
            if parent.begun and now - parent.head_rate_at >= RATE_INTERVAL:
                self._measure(parent, now)

    def _measure(self, parent: Parent, now: float) -> None:
        """A parent's head, in ANs per second. It at most doubles with each measurement: a jump is not a rate."""
        if parent.head_rate_from is not None:
            measured = (parent.head - parent.head_rate_from) / (now - parent.head_rate_at)
            most = 2 * parent.head_rate + self._slack
            parent.head_rate = min(max(RATE_DECAY * parent.head_rate, measured), most)
        parent.head_rate_from = parent.head
        parent.head_rate_at = now
