"""Random audits: does another peer have packets that all our parents left out?

Parents that lie together about a narrow query contradict nobody, and neither does an only parent. So now and then a
stretch of the stream is chosen while it passes. When it is over, and corrections have had their time, we look into the
log of a peer that the directory names and that is not one of our parents, and ask for *everything* there. What it shows
there of packets that match our query, that a root has signed and that we passed, is proof: it is handed over late, and
held against every parent that said it is not there, as if another parent had brought it (`dcp.verdicts`).

The one that is asked may lie as well, by leaving out. So nothing found proves nothing, unless the answer is *whole*:
each signed packet says how many there are in its batch, which one of them it is, and where the batch begins and ends,
so that packets in a row prove that there is nothing between them. Nobody is blamed for an answer that is not whole.

Pure. It costs `share` of the stream, at most `MAX_SAMPLE` packets per audit, and asks for nothing where it would show
nothing: in a stream that is not signed, without encryption, and with a root as a parent.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dcp import Hub, Packet
from peer.mesh.encoding import encode_visit
from peer.mesh.events import Uncovered
from peer.trust.batches import stated
from peer.trust.doors import is_peer

if TYPE_CHECKING:
    from dcp.receiver import Receiver
    from peer.coreconfig import CoreConfig
    from peer.mesh.candidates import Candidate
    from peer.mesh.machine import Mesh
    from peer.mesh.messages import PeerId
    from peer.trust.check import Trust

SAMPLE_SECONDS = 1.0
"""How long a stretch is watched: this, divided by the share, is the time between two audits."""
MAX_SAMPLE = 1_024
"""ANs of a stretch: of a fast stream less than the share is looked at."""
SETTLE_SECONDS = 3.0
"""From the end of a stretch until it is asked about: parents may correct themselves first."""
MARGIN = 8
"""ANs before and after the stretch that are asked for too, one for so many in it: batches may begin before it."""
VISIT_SECONDS = 10.0
PATIENCE = 1.0
"""How long to wait, once the other peer has said all about the stretch, for what shows that it was whole."""
VERDICT_SECONDS = 4.0
"""After something was found: until those that left it out have corrected themselves, or have been convicted."""
RETRY_SECONDS = 10.0
"""When nobody could be asked, or something was found: the next audit is not far."""
ASIDE = " audit"
WHOLE, PARTIAL, REFUSED, NOBODY = ANSWERS = ("whole", "partial", "refused", "nobody")
"""How an audit ends: the answer was proved to be whole, or not; there was none; there was nobody to ask."""
FOUND = "found"


def is_whole(start: int, end: int, packets: Iterable[tuple[int, bytes]]) -> bool:
    """Whether signed packets, all of them verified, prove that there are no others in (start, end]."""
    held = sorted(packets)
    known = [(an - 1, an) for an, _ in held]
    last: dict[tuple[int, int, int], tuple[int, int]] = {}
    for an, envelope in held:
        batch = stated(an, envelope)
        name = batch[:3]
        if batch.place == 0:
            known.append((batch.start, an))
        elif name in last and last[name][0] == batch.place - 1:
            known.append((last[name][1], an))
        if batch.place == batch.packets - 1:
            known.append((an, batch.end))
        last[name] = batch.place, an
    reached = start
    for since, until in sorted(known):
        if since > reached:
            break
        reached = max(reached, until)
    return reached >= end


@dataclass(slots=True)
class _Visit:
    candidate: Candidate
    receiver: Receiver
    link: int
    end_by: float
    packets: dict[int, bytes] = field(default_factory=dict)
    said_at: float | None = None
    """When it had said all about the stretch."""


@dataclass(slots=True)
class _Stretch:
    start: int
    epoch: int
    begun_at: float
    end: int | None = None
    ask_at: float = 0.0
    visit: _Visit | None = None


class Audits:
    def __init__(
        self,
        stream: str,
        hub: Hub,
        receiver: Receiver,
        trust: Trust,
        *,
        share: float,
        rng: random.Random,
        tell: Callable[[Uncovered], None],
    ) -> None:
        """`share`: of the stream, 0.01 for one packet in a hundred."""
        self.counts: Counter[str] = Counter()
        """How audits ended, by `ANSWERS`; and FOUND: packets that had been left out."""
        self._stream, self._hub, self._receiver, self._trust = stream, hub, receiver, trust
        self._interval = SAMPLE_SECONDS / share
        self._rng = rng
        self._tell = tell
        self._stretch: _Stretch | None = None
        self._due_at: float | None = None
        self._release_at: float | None = None
        self._accused: dict[int, list[int]] = {}
        self._dispute_at = 0.0

    @property
    def is_visiting(self) -> bool:
        return self._stretch is not None and self._stretch.visit is not None

    def look(self, mesh: Mesh, now: float) -> None:
        """Called often: whatever is due."""
        stretch = self._stretch
        if stretch is not None and self._receiver.epoch != stretch.epoch:
            self._end("cut short", now)  # another query: what was passed under the one before is another book
        elif stretch is None:
            self._begin_if_due(mesh, now)
        elif stretch.visit is not None:
            self._go_on(stretch, stretch.visit, now)
        elif stretch.end is None:
            self._watch(stretch, now)
        elif now >= stretch.ask_at:
            self._ask(stretch, stretch.end, mesh, now)
        if self._accused and now >= self._dispute_at:
            self._receiver.audit.dispute(self._accused)  # a parent that corrects itself now is replaced, too
            self._accused = {}
        if self._release_at is not None and self._stretch is None and now >= self._release_at:
            self._release_at = None
            self._receiver.audit.release()

    def _begin_if_due(self, mesh: Mesh, now: float) -> None:
        position = self._receiver.position
        if self._due_at is None:
            self._due_at = now + self._interval * self._rng.random()
        if now < self._due_at or position is None or not self._shows_something(mesh):
            return
        self._due_at = now + self._interval * self._rng.uniform(0.5, 1.5)
        self._stretch = _Stretch(position, self._receiver.epoch, now)
        self._receiver.audit.hold(self._receiver.epoch, position)

    def _shows_something(self, mesh: Mesh) -> bool:
        """A root as a parent leaves nothing out of what it signs."""
        parents = mesh.parents.links.values()
        return self._trust.is_signed and bool(parents) and not any(self._is_root(mesh, p.peer_id) for p in parents)

    def _is_root(self, mesh: Mesh, peer_id: PeerId) -> bool:
        known = mesh.candidates.find(peer_id)
        return known is not None and known.is_root

    def _watch(self, stretch: _Stretch, now: float) -> None:
        """Until the stretch is long enough. Where nothing passes there is nothing to compare."""
        position = self._receiver.position
        if position is None or position < stretch.start:
            self._end("cut short", now)
        elif position > stretch.start and now - stretch.begun_at >= SAMPLE_SECONDS:
            stretch.end = min(position, stretch.start + MAX_SAMPLE)
            stretch.ask_at = now + SETTLE_SECONDS
        elif now - stretch.begun_at >= self._interval:
            self._end("cut short", now)

    def _ask(self, stretch: _Stretch, end: int, mesh: Mesh, now: float) -> None:
        ours = mesh.parents.peer_ids() | mesh.children.peer_ids()
        found = mesh.candidates.witnesses(now, below=mesh.level, exclude=ours)
        if not found:
            self._due_at = now + RETRY_SECONDS
            self._end(NOBODY, now)
            return
        candidate = self._rng.choice(found)
        margin = 1 + (end - stretch.start) // MARGIN
        position = max(0, stretch.start - margin)
        # The other peer sends as much as there is room for, and nothing is taken out before the end.
        config = replace(self._hub.config, multicast=False, max_ready_packets=end + margin - position)
        accepts = self._trust.vouches_for
        receiver = self._hub.look_into(self._stream, ASIDE, position=position, config=config, accepts=accepts)
        link = self._hub.add_sender(
            self._stream + ASIDE,
            candidate.address,
            encode_visit(),
            now=now,
            is_expected=is_peer(candidate.peer_id),
        )
        stretch.visit = _Visit(candidate, receiver, link, now + VISIT_SECONDS)

    def _go_on(self, stretch: _Stretch, visit: _Visit, now: float) -> None:
        assert stretch.end is not None
        receiver = visit.receiver
        is_over = visit.link not in receiver.links or now >= visit.end_by
        if not is_over and (receiver.position or 0) < stretch.end:
            return
        if visit.said_at is None:
            visit.said_at = now
        visit.packets.update(item for item in receiver.take(2 * MAX_SAMPLE) if isinstance(item, Packet))
        whole = is_whole(stretch.start, stretch.end, visit.packets.items())
        if whole or is_over or now - visit.said_at >= PATIENCE:
            self._compare(stretch, stretch.end, visit, now)
            self._end(WHOLE if whole else PARTIAL if visit.packets else REFUSED, now)

    def _compare(self, stretch: _Stretch, end: int, visit: _Visit, now: float) -> None:
        """Whatever was found counts, whole or not."""
        ours = self._receiver
        position, query = ours.position or 0, ours.query
        found = [
            (an, payload)
            for an, payload in sorted(visit.packets.items())
            if stretch.start < an <= end
            and ours.audit.lacks(an, position)
            and self._trust.keep_wanted(an, payload, query)
        ]
        if not found:
            return
        ours.take_found(found, now)
        self._accused = ours.audit.accused_of([an for an, _ in found])
        self._dispute_at = now + VERDICT_SECONDS
        self.counts[FOUND] += len(found)
        self._due_at = now + RETRY_SECONDS
        self._release_at = now + ours.audit.patience
        candidate = visit.candidate
        self._tell(Uncovered(candidate.peer_id, candidate.address, found[0][0] - 1, found[-1][0], len(found)))

    def _end(self, how: str, now: float) -> None:
        self.counts[how] += 1
        if self.is_visiting:
            self._hub.remove_stream(self._stream + ASIDE)
        self._stretch = None
        if self._release_at is None:
            self._release_at = now


def audits_for(
    config: CoreConfig,
    hub: Hub,
    receiver: Receiver | None,
    trust: Trust | None,
    rng: random.Random,
    tell: Callable[[Uncovered], None],
) -> Audits | None:
    """None where there is nothing to compare, where links are not encrypted, or where no audits are wanted."""
    if receiver is None or trust is None or not hub.keying.suites or not config.audit_share:
        return None
    own = random.Random(rng.getrandbits(64))
    return Audits(config.stream, hub, receiver, trust, share=config.audit_share, rng=own, tell=tell)
