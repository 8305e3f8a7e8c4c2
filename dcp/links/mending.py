"""Protection as a receiver sees it: it measures, decides (`steer`), asks its parents (`Protect`), and decodes.

The child decides, the parent caps. With several parents the fastest one protects: what all of them lost is little, and
its repairs mend that, whoever brought the rest. Parents hear what we want every second, so a lost wish does not matter,
and earlier versions, which do not take it, never get one.
"""

from __future__ import annotations

from collections.abc import Callable

from dcp import events, handshake, wire
from dcp.claims import Claim, Packets, Report
from dcp.config import Config
from dcp.intake import Intake
from dcp.links.decoding import Decoder
from dcp.links.losses import LossWatch
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.parent import Parent
from dcp.profile import Profile
from dcp.protection import Protect, Repair, encode_protect
from dcp.stats import ProtectionStatistics
from dcp.steer import INTERVAL, NOTHING, Choice, Sample, Steering, copy_delay, wait_for_repair

# Repairs that a parent may send for each datagram with packets that it sends, and without any.
REPAIRS_PER_DATAGRAM = 2
MAX_REPAIR_CREDIT = 64
# After the last wish for repairs, parents hear that none are wanted, and late ones are still taken.
LINGER = 5.0
# Packets that were computed and may still come: then they were not lost.
MAX_REBUILT = 1_024


class Mending:
    def __init__(
        self,
        stream: str,
        profile: Profile,
        config: Config,
        intake: Intake,
        losses: LossWatch,
        uplinks: Uplinks,
        *,
        emit: Callable[[events.Event], None],
    ) -> None:
        fixed = Choice(*config.fixed_protection) if config.fixed_protection is not None else None
        self.steering = Steering(profile, fixed)
        self.is_wanted = profile.is_negotiated or fixed is not None
        """Whether parents are asked for anything. If not, none of this runs."""
        self.deadline = profile.deadline
        """What parents hear; a router's is its children's."""
        self.unasked = 0
        """Repairs that nobody asked for, or too many of them."""
        self._stream = stream
        self._intake = intake
        self._losses = losses
        self._uplinks = uplinks
        self._emit = emit
        self._adapts = profile.adapts or fixed is not None
        self._granting: set[int] = set()
        self._credit: dict[int, int] = {}
        self._decoders: dict[int | None, Decoder] = {}
        self._is_joint = config.joint_decoding
        self._past = [0, 0, 0]  # rebuilt, unneeded, unfit of decoders that are gone
        self._revision = 0
        self._asked: dict[int, Choice] = {}
        self._delay = 0.0
        self._asked_deadline = self.deadline
        self._decodes_until = -1.0
        self._look_at: float | None = None
        self._looked_at = 0.0
        self._ends: dict[int, int] = {}
        self._counts = (0, 0, 0, 0, 0)
        self._wanted_parent = False
        self._breaks = 0
        self._rebuilt: dict[int, None] = {}
        self._overtaken = 0

    # --- links --------------------------------------------------------------------------------------------------------

    def accepted(self, link: Uplink, status: int, now: float) -> None:
        """A parent has taken us, and says whether it protects links."""
        if not self.is_wanted:
            return
        if status & handshake.ACCEPT_PROTECTS:
            self._granting.add(link.id)
        if self._look_at is None:
            self._look_at = now + INTERVAL
            self._looked_at = now
        self._ask(now)

    def clear(self) -> None:
        """Nothing that is under way counts any longer."""
        for decoder in self._decoders.values():
            decoder.clear()

    def switched(self) -> None:
        for decoder in self._decoders.values():
            decoder.forget_repairs()

    # --- in -----------------------------------------------------------------------------------------------------------

    def hear(self, link: Uplink, prev: int, packets: Packets, now: float) -> None:
        """Packets came on a link, and were good."""
        last = self._ends.get(link.id, 0)
        an = packets[-1][0]
        if an > last:
            if prev > last and last:
                self._breaks += 1
            self._ends[link.id] = an
        if self._rebuilt:
            for number, _ in packets:
                if number in self._rebuilt:  # its repair had overtaken it
                    del self._rebuilt[number]
                    self._overtaken += 1
        if now < self._decodes_until:
            credit = self._credit.get(link.id, MAX_REPAIR_CREDIT) + REPAIRS_PER_DATAGRAM
            self._credit[link.id] = min(credit, MAX_REPAIR_CREDIT)
            decoder = self._decoder(link.id)
            if claims := decoder.hear(packets):
                self._take(decoder, claims, now)

    def hear_repair(self, link: Uplink, epoch: int, prev: int, an: int, repair: Repair, now: float) -> None:
        """A repair came, of an epoch that we listen to."""
        intake, parent = self._intake, link.parent
        position = intake.position
        credit = self._credit.get(link.id, MAX_REPAIR_CREDIT)
        if position is None or now >= self._decodes_until or credit <= 0:
            self.unasked += 1
            return
        self._credit[link.id] = credit - 1
        if not intake.believes(parent, an, now, is_packet=True):
            return
        # It is a claim, too (rule T5): everything up to its last member was sent, and in between there is nothing else.
        ans = [number for group in repair.groups for number in group]
        intake.hear_piece(parent, epoch, prev, an, before=tuple(ans[:-1]))
        decoder = self._decoder(link.id)
        self._take(decoder, decoder.hear_repair(parent, epoch, prev, repair, position), now)
        intake.hear_report(Report(parent, epoch, an, an), now)

    def _decoder(self, link_id: int) -> Decoder:
        key = None if self._is_joint else link_id
        if (found := self._decoders.get(key)) is None:
            found = self._decoders[key] = Decoder()
        return found

    def _take(self, decoder: Decoder, claims: list[Claim], now: float) -> None:
        intake = self._intake
        for claim in claims:
            if any(intake.is_refused(claim.parent, an, payload, now) for an, payload in claim.packets):
                decoder.refuse(claim.packets)
                break
            self._losses.mending(claim.packets)
            self._rebuilt.update((an, None) for an, _ in claim.packets)
            while len(self._rebuilt) > MAX_REBUILT:
                del self._rebuilt[next(iter(self._rebuilt))]
            intake.hear(claim, now)
            self._losses.mended()
        if decoder.unfit and self._is_joint and len(self._uplinks.by_id) > 1:
            # Copies of different parents are not the same bytes: from now on each parent's repairs stand alone.
            self._is_joint = False
            self._forget_decoders()

    def _forget_decoders(self, *, unless: set[int | None] | None = None) -> None:
        for key in [key for key in self._decoders if unless is None or key not in unless]:
            gone = self._decoders.pop(key)
            for index, count in enumerate((gone.rebuilt, gone.unneeded, gone.unfit)):
                self._past[index] += count

    # --- deciding -----------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        if self._look_at is None or now < self._look_at:
            return
        self._look_at = now + INTERVAL
        ids = set(self._uplinks.by_id)
        self._granting &= ids
        for table in (self._credit, self._asked, self._ends):
            for link_id in [link_id for link_id in table if link_id not in ids]:
                del table[link_id]
        if not self._is_joint:
            self._forget_decoders(unless={None, *ids})
        if self._adapts and self._intake.position is not None:
            self.steering.look(self._sample(now), now)
            if self.steering.wants_parent != self._wanted_parent:
                self._wanted_parent = self.steering.wants_parent
                self._emit(events.ParentWanted(self._stream, self._wanted_parent, self.steering.run))
        self._ask(now)

    def next_timeout(self) -> float | None:
        return self._look_at if self._uplinks.by_id else None

    def _sample(self, now: float) -> Sample:
        intake = self._intake
        parents = [link.parent for link in self._uplinks.up()]
        there = sum(self._lost_by(parent) for parent in parents)
        lost_by_all = intake.recovered + intake.gaps - self._overtaken
        counts = (intake.packets, lost_by_all, self._breaks, there, intake.bytes)
        packets, lost, breaks, lost_there, size = (a - b for a, b in zip(counts, self._counts, strict=True))
        seconds = now - self._looked_at
        self._counts, self._looked_at = counts, now
        return Sample(packets, lost, breaks, lost_there, size, seconds, self._uplinks.fastest_rtt())

    def _lost_by(self, parent: Parent) -> int:
        if parent.packets_before is None:
            return 0
        return max(0, self._intake.packets - parent.packets_before - parent.brought)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, now: float) -> None:
        """Every parent hears what we want of it: of all but the fastest, nothing."""
        steering = self.steering
        willing = [link for link in self._uplinks.up() if link.id in self._granting]
        if not willing:
            return
        is_fixed = steering.why == "fixed"
        chosen = min(
            willing, key=lambda link: link.rtt.smoothed * (0.8 if self._asked.get(link.id, NOTHING).every else 1)
        )
        wishes = {link.id: steering.choice if is_fixed or link is chosen else NOTHING for link in willing}
        delay = 0.0
        if steering.choice.every == 1 and steering.path is not None:
            delay = copy_delay(steering.path.round_trip, steering.path.gap)
        is_new_delay = not 0.8 * self._delay <= delay <= 1.25 * self._delay
        if wishes != self._asked or self.deadline != self._asked_deadline or is_new_delay:
            self._revision += 1
            self._asked, self._asked_deadline, self._delay = wishes, self.deadline, delay
        if steering.choice.every:
            self._decodes_until = now + LINGER
        is_quiet = now >= self._decodes_until and self.deadline is None
        self._losses.patience = 0.0
        if steering.choice.every and steering.path is not None:
            self._losses.patience = wait_for_repair(steering.choice, steering.path)
        if not is_quiet:
            for link in willing:
                self._send(link, wishes[link.id])

    def _send(self, link: Uplink, choice: Choice) -> None:
        budget = 100 if choice.every else 0
        wish = Protect(self._revision, *choice, self._delay, budget, self.deadline)
        self._uplinks.send(link, wire.CONTROL, 0, 0, encode_protect(wish))

    def statistics(self, now: float) -> ProtectionStatistics | None:
        if not self.is_wanted:
            return None
        steering = self.steering
        counts = [
            past + sum(getattr(decoder, name) for decoder in self._decoders.values())
            for past, name in zip(self._past, ("rebuilt", "unneeded", "unfit"), strict=True)
        ]
        return ProtectionStatistics(
            choice=steering.choice.name,
            why=steering.why,
            seconds=now - steering.since,
            changes=steering.changes,
            loss=steering.loss,
            run=steering.run,
            wants_parent=steering.wants_parent,
            links=frozenset(link for link, choice in self._asked.items() if choice.every),
            rebuilt=counts[0],
            unneeded=counts[1],
            unfit=counts[2],
            unasked=self.unasked,
        )
