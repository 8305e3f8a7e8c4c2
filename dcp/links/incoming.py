"""Datagrams of parents become claims: framing, fragments and control messages end here.

There is one of these for each receiver, not for each link: ANs and payloads are equal on all links, so what pieces of
different parents make up together counts: fragments here, repairs in `mending`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dcp import control, events, wire
from dcp.claims import Claim, Report
from dcp.control import ControlType
from dcp.errors import MalformedDatagram
from dcp.group_messages import Group, decode_group_untrusted
from dcp.intake import Intake
from dcp.lateral import Siblings, decode_siblings_untrusted
from dcp.links.fragments import Assembler, Whole
from dcp.links.framing import Framing
from dcp.links.mending import Mending
from dcp.links.replies import Replies
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.parent import Parent
from dcp.protection import decode_repair_untrusted
from dcp.query_parts import decode_have_untrusted
from dcp.serial import extend

Handler = Callable[[Uplink, int, bytes, Any, float], None]


class Incoming:
    def __init__(
        self,
        stream: str,
        intake: Intake,
        framing: Framing,
        assembler: Assembler,
        replies: Replies,
        uplinks: Uplinks,
        *,
        emit: Callable[[events.Event], None],
        start_proposed: Callable[[float], None],
        prepared: Callable[[Parent, control.Prepared, float], None],
        group_offered: Callable[[Uplink, Group, float], None],
        siblings_named: Callable[[Uplink, Siblings], None],
        max_late_packets: int,
        mending: Mending | None,
    ) -> None:
        self._stream = stream
        self._intake = intake
        self._framing = framing
        self._assembler = assembler
        self._replies = replies
        self._uplinks = uplinks
        self._emit = emit
        self._start_proposed = start_proposed
        self._prepared = prepared
        self._mending = mending
        self._group_offered = group_offered
        self._siblings_named = siblings_named
        # What else a parent may send on a link, by the type that decoding gives it.
        self._control: dict[type, Handler] = {
            control.Message: self._on_message,
            control.Prepared: self._on_prepared,
            control.Hole: self._on_hole,
            control.Fragment: self._on_fragment,
            control.Index: self._on_index,
        }
        # Pieces of large packets that we had passed: apart from those that the position waits for.
        self._late = Assembler(max_late_packets)

    def receive(self, link: Uplink, flags: int, data: bytes, now: float) -> None:
        """A datagram from a parent whose seal is right. Raises MalformedDatagram only."""
        if not link.parent.up:
            return
        link.heard_at = now
        link.reset_at = None
        if not flags & wire.NOT_DATA:
            self._on_data(link, flags, data, now)
        elif flags & wire.KEEP_ALIVE:
            self._on_keep_alive(link, flags, control.decode_keep_alive_untrusted(data[wire.BODY_AT :]), now)
        elif flags & wire.CLOSE:
            reason, body = control.decode_close_untrusted(data[wire.BODY_AT :])
            self._uplinks.lose(link, reason, body)
        elif flags & wire.CONTROL and len(data) > wire.BODY_AT:
            if data[wire.BODY_AT] == ControlType.BUNDLE:
                self._on_data(link, flags, data, now, is_bundle=True)
            elif data[wire.BODY_AT] == ControlType.REPAIR:
                self._on_repair(link, data, now)
            elif data[wire.BODY_AT] == ControlType.GROUP:
                self._group_offered(link, decode_group_untrusted(data[wire.BODY_AT :]), now)
            elif data[wire.BODY_AT] == ControlType.SIBLINGS:
                self._siblings_named(link, decode_siblings_untrusted(data[wire.BODY_AT :]))
            elif data[wire.BODY_AT] == ControlType.HAVE:
                self._replies.heard_parts(link, decode_have_untrusted(data[wire.BODY_AT :]), now)
            else:
                message = control.decode_control_untrusted(data[wire.BODY_AT :])
                handler = self._control.get(type(message))
                if handler is None:
                    raise MalformedDatagram("type", "not for a receiver")
                handler(link, flags, data, message, now)
        else:
            raise MalformedDatagram("type", "not for a receiver")

    def _epoch_of(self, data: bytes) -> int | None:
        """The epoch of a claim, if it is one that we listen to, or about which something is still open."""
        bits = data[0] & 15
        epoch = self._intake.change.extend(bits)
        return self._intake.audit.previous_epoch(bits) if epoch is None else epoch

    def _on_data(self, link: Uplink, flags: int, data: bytes, now: float, *, is_bundle: bool = False) -> None:
        intake = self._intake
        position = intake.position
        if position is None:
            return
        _, _, _, an32, prev32 = wire.HEADER.unpack_from(data)
        an = extend(an32, position)
        prev = an - ((an32 - prev32) & 0xFFFFFFFF)
        if is_bundle:
            until, packets = an, self._framing.read_bundle(data, prev, an)
        else:
            until, packets = self._framing.read_data(flags, prev, an, data[wire.BODY_AT :])
        epoch = self._epoch_of(data)
        if epoch is None:
            self._replies.announce_epoch(link, now)
        elif self._mending is None:
            intake.hear(Claim(link.parent, epoch, prev, until, packets), now)
        else:
            self._hear_protected(self._mending, link, Claim(link.parent, epoch, prev, until, packets), now)
        if flags & wire.ACK_REQUEST:
            self._replies.acknowledge(link, an32, now)

    def _hear_protected(self, mending: Mending, link: Uplink, claim: Claim, now: float) -> None:
        intake = self._intake
        refused = intake.refused + intake.beyond_reach
        intake.hear(claim, now)
        if intake.refused + intake.beyond_reach == refused:  # else some of it is not to be believed
            mending.hear(link, claim.prev, claim.packets, now)

    def _on_repair(self, link: Uplink, data: bytes, now: float) -> None:
        intake, mending = self._intake, self._mending
        position = intake.position
        if position is None:
            return
        _, _, _, an32, prev32 = wire.HEADER.unpack_from(data)
        an = extend(an32, position)
        prev = an - ((an32 - prev32) & 0xFFFFFFFF)
        repair = decode_repair_untrusted(data, wire.BODY_AT, prev, an)
        if mending is None:
            raise MalformedDatagram("type", "a repair that was not asked for")
        epoch = intake.change.extend(data[0] & 15)
        if epoch is not None and intake.change.is_current(epoch):
            mending.hear_repair(link, epoch, prev, an, repair, now)

    def _on_keep_alive(self, link: Uplink, flags: int, keep_alive: control.KeepAlive, now: float) -> None:
        link.hear_times(keep_alive.times, now)
        parent = link.parent
        if self._intake.position is None:
            parent.report_head(keep_alive.highest, now)
            if keep_alive.start and parent.start is None:
                parent.start = keep_alive.previous
                self._start_proposed(now)
            return
        sent_until = None
        if keep_alive.claim:
            sent_until = keep_alive.previous
            self._framing.check_empty(sent_until, keep_alive.highest)
        report = Report(parent, keep_alive.epoch, sent_until, keep_alive.highest, keep_alive.settled)
        self._intake.hear_report(report, now)
        if flags & wire.ACK_REQUEST:
            self._replies.acknowledge(link, 0, now)

    # --- control messages ---------------------------------------------------------------------------------------------

    def _on_message(self, link: Uplink, flags: int, data: bytes, message: control.Message, now: float) -> None:
        self._emit(events.MessageReceived(self._stream, link.id, message.data))

    def _on_prepared(self, link: Uplink, flags: int, data: bytes, prepared: control.Prepared, now: float) -> None:
        self._prepared(link.parent, prepared, now)

    def _on_hole(self, link: Uplink, flags: int, data: bytes, hole: control.Hole, now: float) -> None:
        if self._intake.position is not None:
            self._intake.hear_hole(link.parent, hole, now)

    def _on_fragment(self, link: Uplink, flags: int, data: bytes, fragment: control.Fragment, now: float) -> None:
        intake, parent = self._intake, link.parent
        if intake.position is None:
            return
        self._framing.check_fragment()
        _, _, _, an32, prev32 = wire.HEADER.unpack_from(data)
        an = extend(an32, intake.position)
        prev = an - ((an32 - prev32) & 0xFFFFFFFF)
        epoch = self._epoch_of(data)
        if not intake.believes(parent, an, now, is_packet=True):
            return
        parent.report_head(an, now)
        if epoch is None:
            pass
        elif an > intake.position and intake.change.is_current(epoch):
            intake.hear_piece(parent, epoch, prev, an)
            whole = self._assembler.add(epoch, prev, an, fragment, link.id)
            if whole is not None:
                self._take_whole(parent, epoch, an, whole, now)
            self._replies.watch(now)
        elif intake.lacks(epoch, an):
            whole = self._late.add(epoch, prev, an, fragment, link.id)
            if whole is not None:
                intake.take(Claim(parent, epoch, prev, an, [(an, whole.payload)]), now)
        else:
            intake.hear_piece(parent, epoch, prev, an)
            if fragment.offset == 0:  # a copy of a packet that is there already
                parent.count(1, 0, intake.packets)
        # An acknowledgment ends a correction: not before all of the packet is here.
        if flags & wire.ACK_REQUEST and not (epoch is not None and intake.lacks(epoch, an)):
            self._replies.acknowledge(link, an32, now)

    def _on_index(self, link: Uplink, flags: int, data: bytes, index: control.Index, now: float) -> None:
        if self._intake.position is not None:
            self._intake.hear_index(link.parent, index, self._replies, now)

    def forget_late(self) -> None:
        """Drop the pieces of packets that came from elsewhere, or are no longer looked for."""
        self._late.forget_unless(self._intake.lacks)

    def _take_whole(self, parent: Parent, epoch: int, an: int, whole: Whole, now: float) -> None:
        """A large packet is complete. When it is bad, its pieces are asked for again and kept apart by sender."""
        prev, payload, is_from_one = whole
        if not self._intake.is_refused(parent, an, payload, now):
            self._intake.take(Claim(parent, epoch, prev, an, [(an, payload)]), now)
            return
        self._assembler.separate(an, epoch, prev)
        if is_from_one:
            self._intake.refuse(parent, epoch, prev, an, now)
