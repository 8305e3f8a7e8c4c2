"""The receiving side of one stream: n senders, one ordered stream, nothing skipped in silence.

Theory of operation. The whole state of the stream is one number, `position`: everything up to it was handed over,
pruned by our own query, or declared a gap. Every message of a sender is a *claim* about a stretch (prev, an] of the
stream and one query, true whenever and however often it is heard; it is taken when prev <= position < an and its epoch
is ours, and then the position is `an`. A claim that begins beyond the position waits in the buffer, and its waiting is
what shows that something is missing: after the reordering window a NACK goes to all senders, with the stretches that
are missing, and again with back-off. Keep-alives are claims too ("nothing matches in ..."): they show the loss of a
tail and carry the position through what was pruned.

The query is changed in two steps (`epochs`): prepare it with every sender while the old one goes on, then switch at a
position that is told to the application.

What this file must not know: sockets, clocks, what a query means, who the senders are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from dcp import control, events, wire
from dcp.buffer import ReorderBuffer
from dcp.claims import Packets
from dcp.config import Config
from dcp.control import MAX_RANGES, Range, Reason, Start
from dcp.epochs import QueryChange
from dcp.errors import MalformedDatagram
from dcp.events import Content
from dcp.gaps import gap_end
from dcp.handover import Handover, Item
from dcp.kinds import kind_of
from dcp.links.fragments import Assembler
from dcp.links.link import Address, clock_of
from dcp.links.losses import LossWatch
from dcp.links.sealing import wanted_sealing
from dcp.links.uplink import Uplink
from dcp.links.uplinks import Uplinks
from dcp.log import Log
from dcp.queries import EVERYTHING
from dcp.reach import Reach
from dcp.runs import RunWatch
from dcp.serial import QUARTER, extend
from dcp.starting import StartChoice
from dcp.stats import ReceiverStatistics

_COUNTERS = (
    "packets",
    "bytes",
    "duplicates",
    "overrun",
    "gaps",
    "recovered",
    "nacks",
    "slow",
    "squelches",
    "resets",
    "beyond_reach",
    "too_wide",
    "restarts",
)
REQUEST_INTERVAL = 0.1
# How often a gap that can't be filled is looked at again while its patience runs.
GAP_CHECK_INTERVAL = 0.1


class Receiver:
    """Use through `Hub`, which finds the link that a datagram belongs to."""

    def __init__(
        self,
        stream: str,
        config: Config,
        rng: random.Random,
        *,
        new_link_id: Callable[[], int],
        forget_link: Callable[[int], None],
        emit: Callable[[events.Event], None],
        send_open: Callable[[control.Opening, Address], None],
        query: bytes = EVERYTHING,
        start: Start = Start.NEW,
        position: int | None = None,
        log: Log | None = None,
        deliver: bool = True,
        stream_mode: bool = False,
        on_switch: Callable[[bytes, float], None] | None = None,
    ) -> None:
        if stream_mode and query != EVERYTHING:
            raise ValueError("a byte stream has no query")
        self.stream = stream
        self.position: int | None = None
        self._uplinks = Uplinks(stream, config, rng, new_link_id=new_link_id, forget_link=forget_link, emit=emit)
        self.links = self._uplinks.by_id
        self.change = QueryChange(query, config, is_router=log is not None)
        self._config = config
        self._emit = emit
        self._send_open = send_open
        self._sealing = wanted_sealing(config)
        self.kind = kind_of(stream_mode=stream_mode)
        self._starting = StartChoice(start, position, config)
        self.stream_mode = stream_mode
        self._on_switch = on_switch
        self._buffer = ReorderBuffer(config.max_buffer_packets, config.max_buffer_bytes)
        self._assembler = Assembler(config.max_partial_packets)
        self._handover = Handover(config.max_ready_packets, deliver=deliver, log=log, max_bytes=config.max_ready_bytes)
        self._losses = LossWatch(config, self._uplinks.fastest_rtt)
        self.reach = Reach(config, self.links, stream_mode=stream_mode)
        self._runs = RunWatch(config, self.links)
        self._gap_check_at: float | None = None
        self._position_at = 0.0
        self._hole_since: float | None = None
        """When the first hole at the present position was heard of."""
        self._ack_at: float | None = None
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self.malformed = 0

    # --- senders ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.change.epoch

    @property
    def query(self) -> bytes:
        """The query in force."""
        return self.change.query

    @property
    def is_fed(self) -> bool:
        """Whether some parent says that a root's packets reach it."""
        return self._uplinks.is_fed

    def add_sender(self, address: Address, hello: bytes = b"", *, now: float) -> int:
        """Open a link to one more sender. Nothing is lost or repeated, whenever this is called."""
        link = self._uplinks.add(address, hello, now)
        if self.position is None and self._starting.position is not None:
            self._begin(self._starting.position, now)
        self._send_request(link, now)
        return link.id

    def remove_sender(self, link_id: int, reason: int = Reason.NORMAL, body: bytes = b"") -> None:
        """Leave a sender. Its claims that are still under way no longer count."""
        link = self.links.get(link_id)
        if link is not None:
            self._uplinks.leave(link, reason, body)

    def give_up(self, link_id: int, reason: int) -> None:
        """Leave a sender, and tell the owner, as when its link was lost."""
        link = self.links.get(link_id)
        if link is not None:
            self._uplinks.give_up(link, reason)

    def send_message(self, link_id: int, data: bytes) -> bool:
        """False when it did not go out: no such link, not open yet, or too much is waiting already."""
        link = self.links.get(link_id)
        if link is None or not link.up:
            return False
        return self._uplinks.send(link, wire.CONTROL, 0, 0, control.encode_message(data))

    # --- opening ------------------------------------------------------------------------------------------------------

    def _send_request(self, link: Uplink, now: float) -> None:
        position = self.position
        start = Start.POSITION if position is not None else self._starting.mode
        mode = self.kind.mode | self._sealing.mode
        self._send_open(
            control.Request(
                mode=mode,
                link=link.id,
                nonce=link.nonce,
                cookie=link.cookie,
                epoch=self.epoch,
                start=start,
                position=position or 0,
                room=self._handover.room(),
                clock=clock_of(now),
                stream=self.stream.encode(),
                query=self.query,
                hello=link.hello,
            ),
            link.address,
        )
        link.request_at = now + REQUEST_INTERVAL * 2 ** min(link.requests, 2)
        link.requests += 1

    def receive_opening(
        self, message: control.Challenge | control.Accept | control.Refuse, address: Address, now: float
    ) -> bool:
        """An answer to one of our openings; False when it is not ours."""
        link = self._uplinks.opened_with(message.nonce, address)
        if link is None:
            return False
        if link.up:
            return True
        if isinstance(message, control.Challenge):
            if link.cookie != message.cookie:
                link.cookie = message.cookie
                link.requests = 0
                self._send_request(link, now)
        elif isinstance(message, control.Refuse):
            self._uplinks.lose(link, message.reason, message.body)
        else:
            self._accepted(link, message, now)
        return True

    def _accepted(self, link: Uplink, accept: control.Accept, now: float) -> None:
        link.up = True
        link.remote_id = accept.link
        link.epoch = accept.epoch
        link.seal_in, link.seal_out = self._sealing.seals(link.nonce, accept.parent_nonce, is_child=True)
        link.heard_at = now
        link.fed = bool(accept.status & control.ACCEPT_FED)
        link.confirmed_epoch = accept.epoch
        if accept.status & control.ACCEPT_STARTED:
            link.start = accept.start
        if accept.head or (accept.status & control.ACCEPT_STARTED and self.position is None):
            link.begun = True
        self.reach.expire()
        if self.position is None or self._reaches(link, accept.head, now):
            link.tell_position(accept.head, now)
        if accept.echo:
            elapsed = (clock_of(now) - accept.echo) & 0xFFFFFFFF
            if elapsed < 1 << 20:
                link.rtt.sample(elapsed * control.TICK)
        self._emit(events.LinkOpened(self.stream, link.id, link.address, accept.reply))
        if self._ack_at is None:
            self._ack_at = now + self._config.ack_interval
        if self.position is None:
            self._consider_start(now)
        else:
            self._confirm(link, now)
        self._step_change(now)

    def _consider_start(self, now: float) -> None:
        """A sender has answered: perhaps we know now where to begin."""
        start = self._starting.proposed(self.links.values(), now)
        if start is not None:
            self._begin(start, now)

    def _begin(self, position: int, now: float) -> None:
        self.position = position
        self.reach.begin(position)
        self._runs.begin()
        self._position_at = now
        self._starting.due_at = None
        self._handover.start(position, again=self._starting.is_again)
        if self._on_switch is not None:
            self._on_switch(self.query, now)
        if self.epoch:  # changed before there was a stream: the application hears of it all the same
            self._handover.put_switch(position, self.query)
        for link in self._uplinks.up():
            self._confirm(link, now)

    def _confirm(self, link: Uplink, now: float) -> None:
        """Tell the sender where we stand: only then does data flow."""
        link.confirm_at = now + link.rtt.timeout(self._config.min_rto, self._config.max_rto)
        if link.confirmed_epoch == self.epoch:
            self._send_nack(link, now)

    # --- datagrams ----------------------------------------------------------------------------------------------------

    def receive(self, link: Uplink, flags: int, data: bytes, now: float) -> None:
        """A packet from a sender whose seal is right. Raises MalformedDatagram only."""
        if not link.up:
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
            kind = data[wire.BODY_AT]
            if kind == control.ControlType.BUNDLE:
                self._on_bundle(link, flags, data, now)
            else:
                self._on_control(link, flags, data, now)
        else:
            raise MalformedDatagram("type", "not for a receiver")

    def _positions(self, data: bytes) -> tuple[int, int, int]:
        """The claim's (prev, an) in 64 bits, and the AN as it came."""
        _, _, _, an32, prev32 = wire.HEADER.unpack_from(data)
        an = extend(an32, self.position or 0)
        return an - ((an32 - prev32) & 0xFFFFFFFF), an, an32

    def _on_data(self, link: Uplink, flags: int, data: bytes, now: float) -> None:
        if self.position is None:
            return
        prev, an, an32 = self._positions(data)
        payload = data[wire.BODY_AT :]
        if bool(flags & wire.STREAM) != self.stream_mode:
            raise MalformedDatagram("mode", "stream and datagram mode do not mix")
        if self.stream_mode:
            if not payload or an != prev + 1:
                raise MalformedDatagram("stream", "a chunk begins right after the one before it")
            an = prev + len(payload)
        self._claim(link, data[0] & 15, prev, an, [(an, payload)], now)
        if flags & wire.ACK_REQUEST:
            self._send_ack(link, an32, now)

    def _on_bundle(self, link: Uplink, flags: int, data: bytes, now: float) -> None:
        if self.position is None:
            return
        if self.stream_mode:
            raise MalformedDatagram("mode", "a byte stream has no bundles")
        prev, an, an32 = self._positions(data)
        packets = control.decode_bundle_untrusted(data, wire.BODY_AT + 1, prev)
        if packets[-1][0] != an:
            raise MalformedDatagram("bundle", "ends elsewhere than its header says")
        self._claim(link, data[0] & 15, prev, an, packets, now)
        if flags & wire.ACK_REQUEST:
            self._send_ack(link, an32, now)

    def _on_keep_alive(self, link: Uplink, flags: int, keep_alive: control.KeepAlive, now: float) -> None:
        link.hear_times(keep_alive.times, now)
        link.fed = keep_alive.fed
        if self.position is None:
            link.tell_position(keep_alive.highest, now)
            if keep_alive.start and link.start is None:
                link.start = keep_alive.previous
                self._consider_start(now)
            return
        if self._believes(link, keep_alive, now):
            self._take_keep_alive(link, keep_alive, now)
        self._watch(now)
        if flags & wire.ACK_REQUEST:
            self._send_ack(link, 0, now)

    def _believes(self, link: Uplink, keep_alive: control.KeepAlive, now: float) -> bool:
        if keep_alive.claim and keep_alive.highest - keep_alive.previous > QUARTER:
            self._counts["too_wide"] += 1
            return False
        return self._reaches(link, keep_alive.highest, now)

    def _take_keep_alive(self, link: Uplink, keep_alive: control.KeepAlive, now: float) -> None:
        link.tell_position(keep_alive.highest, now)
        if keep_alive.claim:
            if self.stream_mode and keep_alive.highest > keep_alive.previous:
                raise MalformedDatagram("mode", "nothing is pruned from a byte stream")
            link.heard_claim = True
            if keep_alive.epoch == self.epoch:
                link.sent_until = max(link.sent_until, keep_alive.previous)
            if keep_alive.highest > keep_alive.previous:
                self._claim_in(link, keep_alive.epoch, keep_alive.previous, keep_alive.highest, [], now)

    def _on_control(self, link: Uplink, flags: int, data: bytes, now: float) -> None:
        message = control.decode_control_untrusted(data[wire.BODY_AT :])
        if isinstance(message, control.Message):
            self._emit(events.MessageReceived(self.stream, link.id, message.data))
        elif isinstance(message, control.Prepared):
            self._on_prepared(link, message, now)
        elif self.position is None:
            return
        elif isinstance(message, control.Hole):
            link.heard_claim = True
            if not self._reaches(link, message.end, now):
                return
            link.tell_position(message.end, now)
            link.add_hole(message, self.position)
            if self._hole_since is None and link.hole_at(self.position, self.epoch) is not None:
                self._hole_since = now
            self._watch(now)
            self._decide_gap(now)
        elif isinstance(message, control.Fragment):
            self._on_fragment(link, flags, data, message, now)
        else:
            raise MalformedDatagram("type", "not for a receiver")

    def _on_fragment(self, link: Uplink, flags: int, data: bytes, fragment: control.Fragment, now: float) -> None:
        if self.stream_mode:
            raise MalformedDatagram("mode", "a byte stream has no fragments")
        prev, an, an32 = self._positions(data)
        epoch = self.change.extend(data[0] & 15)
        if not self._reaches(link, an, now, is_packet=True):
            return
        link.tell_position(an, now)
        if epoch is not None and self.position is not None and an > self.position:
            whole = self._assembler.add(epoch, prev, an, fragment)
            if whole is not None:
                self._claim_in(link, epoch, whole[0], an, [(an, whole[1])], now)
            self._watch(now)
        elif epoch is not None:
            self._claim_in(link, epoch, prev, an, [], now)
            if fragment.offset == 0:  # a copy of a packet that is there already
                link.count(1, 0, self._counts["packets"])
        if flags & wire.ACK_REQUEST:
            self._send_ack(link, an32, now)

    # --- claims -------------------------------------------------------------------------------------------------------

    def _reaches(self, link: Uplink, an: int, now: float, *, is_packet: bool = False) -> bool:
        """Whether what a sender says about `an` is not too far ahead of the other senders to be believed."""
        if an <= link.reach and now <= link.reach_until:
            return True
        if self.reach.allows(link, an, self.epoch, now):
            return True
        self._counts["beyond_reach"] += 1
        link.heard_claim = True
        self.reach.refused(link, an, now, is_packet=is_packet)
        return False

    def _claim(self, link: Uplink, epoch_bits: int, prev: int, an: int, packets: Packets, now: float) -> None:
        epoch = self.change.extend(epoch_bits)
        if epoch is None:
            self._tell_epoch(link, now)
            return
        if (an > link.reach or now > link.reach_until) and not self._reaches(link, an, now, is_packet=True):
            return
        link.tell_position(an, now)
        self._claim_in(link, epoch, prev, an, packets, now)

    def _claim_in(self, link: Uplink, epoch: int, prev: int, an: int, packets: Packets, now: float) -> None:
        position = self.position
        assert position is not None
        link.heard_claim = True
        if not self.change.is_current(epoch):
            self._tell_epoch(link, now)
            return
        if packets:
            link.count(len(packets), self._losses.recovered(packets), self._counts["packets"])
            if an > self.reach.seen:
                self.reach.seen = an
        if an <= position:
            if packets:
                self._old(link, len(packets), now)
            return
        if prev > position:
            self._buffer.add(epoch, prev, an, packets)
            self._watch(now)
            return
        if not self._handover.has_room(position):
            self._counts["overrun"] += len(packets)
            return
        link.old_in_a_row = 0
        self._apply(epoch, an, packets, link, now)
        self._drain(now)
        self._advanced(now)

    def _apply(self, epoch: int, an: int, packets: Packets, link: Uplink | None, now: float) -> None:
        """Take a claim that begins at or before the position."""
        if epoch != self.epoch:
            self._switch(now)
        position = self.position
        assert position is not None
        if packets and packets[0][0] <= position:
            fresh = [packet for packet in packets if packet[0] > position]
            if link is not None:
                link.duplicates += len(packets) - len(fresh)
            self._counts["duplicates"] += len(packets) - len(fresh)
            packets = fresh
        if packets:
            if self.stream_mode:
                packets = _trimmed(packets, position)
            counts = self._counts
            counts["recovered"] += self._losses.recovered(packets)
            counts["packets"] += len(packets)
            size = sum([len(payload) for _, payload in packets])
            counts["bytes"] += size
            if link is not None:
                link.first_copies += len(packets)
            self._handover.put(packets, size, self.query)
        self._handover.advance(an, self.query)
        self.position = an

    def _drain(self, now: float) -> None:
        """Apply what waited for the position to come so far."""
        while self._buffer and self.position is not None and self._handover.has_room(self.position):
            found = self._buffer.take(self.position, self.change.current_epochs())
            if found is None:
                return
            self._apply(*found, None, now)

    def _advanced(self, now: float) -> None:
        """The position rose: the timers of what was missing start anew."""
        assert self.position is not None
        self._position_at = now
        self._hole_since = None
        self._losses.advanced(self.position, now)
        if len(self._assembler):
            self._assembler.forget(self.position, self.change.current_epochs())
        self._watch(now)
        if self.change.is_waiting:
            self._step_change(now)

    def _old(self, link: Uplink, packets: int, now: float) -> None:
        """A copy that another sender had brought before. A sender that is steadily behind is squelched."""
        link.duplicates += packets
        self._counts["duplicates"] += packets
        link.old_in_a_row += 1
        if link.old_in_a_row >= 8 and now >= link.squelch_at:
            link.squelch_at = now + max(link.rtt.smoothed, 0.05)
            link.old_in_a_row = 0
            self._counts["squelches"] += 1
            self._send_ack(link, 0, now)

    # --- what is missing ----------------------------------------------------------------------------------------------

    def _is_missing(self) -> bool:
        """Whether something was sent to us, or to be sent by now, that is not here."""
        assert self.position is not None
        return bool(len(self._buffer) or len(self._assembler) or self._uplinks.sent_until() > self.position)

    def _watch(self, now: float) -> None:
        """Start or stop the clock for what is missing at the present position."""
        self._losses.watch(self._is_missing(), now)

    def _nack_all(self, now: float) -> None:
        assert self.position is not None
        self._counts["nacks"] += 1
        ranges, highest = self._buffer.missing(self.position, self.epoch, MAX_RANGES)
        if self._uplinks.sent_until() > highest:
            ranges.append((highest, self._uplinks.sent_until()))
        nacks = self._losses.asked(ranges, now)
        self._losses.nack_at = now + self._uplinks.answer_time(nacks, now)
        for link in self._uplinks.up():
            if link.confirmed_epoch is not None:
                self._send_nack(link, now)

    def _send_nack(self, link: Uplink, now: float, *, probe: bool = False) -> None:
        epoch = self.change.epoch_for(link)
        if self.position is None or epoch is None:
            return
        missing, highest = self._buffer.missing(self.position, epoch, MAX_RANGES)
        pieces: list[Range] = []
        partial = self._assembler.pieces_after(self.position, epoch)
        if partial is not None:
            # The half-built packet lies at the front: ask for its bytes, and for what is missing beyond it.
            an, pieces = partial
            missing = [(self.position, an), *((max(s, an), e) for s, e in missing if e > an)]
            highest = max(highest, an)
        sent_until = self._uplinks.sent_until()
        if epoch == self.epoch and sent_until > highest:
            missing.append((highest, sent_until))
            highest = sent_until
        ack = control.Acknowledgment(link.times(now), epoch, self.position, self._handover.room())
        body = control.encode_nack(control.Nack(ack, highest, missing[:MAX_RANGES], pieces))
        link.epoch = epoch
        flags = wire.NACK | (wire.ACK_REQUEST if probe else 0)
        self._uplinks.send(link, flags, self.position, 0, body)

    def _send_ack(self, link: Uplink, asked: int, now: float, *, probe: bool = False) -> None:
        epoch = self.change.epoch_for(link)
        if epoch is None:
            return
        position = control.NO_POSITION if self.position is None else self.position
        ack = control.Acknowledgment(link.times(now), epoch, position, self._handover.room())
        link.epoch = epoch
        flags = wire.ACK | (wire.ACK_REQUEST if probe else 0)
        self._uplinks.send(link, flags, position, asked, control.encode_acknowledgment(ack))

    def _ack_all(self, now: float) -> None:
        for link in self._uplinks.up():
            self._send_ack(link, 0, now)

    # --- gaps ---------------------------------------------------------------------------------------------------------

    def _stuck_since(self) -> float:
        """Since when we know that there is something beyond the position which does not come."""
        known = [since for since in (self._losses.missing_since, self._hole_since) if since is not None]
        return max(self._position_at, min(known, default=self._position_at))

    def _decide_gap(self, now: float) -> None:
        """Give up, in bounded time, what nobody can supply."""
        while self.position is not None and self.links and not self._handover.turned_away:
            since = self._stuck_since()
            until = gap_end(self.links.values(), self.position, self.epoch, self._config, stuck_since=since, now=now)
            if until is None and self._losses.missing_since is not None and now - since > self._config.abandon_after:
                until = self._abandoned_until()
            if until is not None:
                until = min(until, self.reach.gap_limit(self.position, self.epoch, now))
            if until is None or until <= self.position:
                return
            self._declare_gap(until, now)

    def _abandoned_until(self) -> int | None:
        """Nobody announced a hole and nothing came: up to the next thing we know of, or to what was told of."""
        assert self.position is not None
        known = self._buffer.first_known(self.position, self.epoch)
        if known is not None:
            return known
        told = [k.highest for k in self._uplinks.up() if k.highest is not None and k.highest > self.position]
        return min(told, default=None)

    def _declare_gap(self, until: int, now: float) -> None:
        assert self.position is not None
        after = self.position
        self._counts["gaps"] += 1
        self._handover.put_gap(after, until)
        self.position = until
        self._position_at = now
        self._losses.given_up()
        if until - after > QUARTER:
            self._renew()
        self._drain(now)
        self._advanced(now)
        self._ack_all(now)

    def _renew(self) -> None:
        """After a jump over a quarter of the AN space 32-bit numbers under way could be misread: new sessions."""
        self._buffer.clear()
        self._assembler.clear()
        for link in list(self.links.values()):
            self._uplinks.give_up(link, Reason.RENEW)

    # --- a numbering that begins again --------------------------------------------------------------------------------

    def set_run(self, link_id: int, run: bytes, *, now: float) -> None:
        """Which run of the stream a sender is fed from, by its owner's word; roots that number alike are one run.

        When all senders that are heard belong to one other run than ours, we begin again with that.
        """
        link = self.links.get(link_id)
        if link is not None:
            link.run = run
            self._consider_runs(now)

    def _consider_runs(self, now: float) -> None:
        if self.position is None:
            return
        run = self._runs.other_run(now)
        if run is not None:
            self.begin_again()
            self._runs.run = run

    def _is_placed(self, now: float) -> bool:
        """Whether there is a position to work from; its owner hears when no sender has anything beyond it."""
        position = self.position
        if position is not None and self._runs.is_stranded(position, now):
            head = max(link.head for link in self._uplinks.up())
            self._emit(events.Stranded(self.stream, position, head))
        return position is not None

    def begin_again(self) -> None:
        """The numbering has begun again: leave all senders, and start with the oldest that they have.

        The owner opens the links again, as after any other loss; the application gets another `Started`.
        """
        if self.position is None:
            return
        self._counts["restarts"] += 1
        self.position = None
        self._starting.again()
        self._hole_since = None
        self._losses.given_up()
        self._renew()

    # --- changing the query -------------------------------------------------------------------------------------------

    def change_query(self, query: bytes, *, now: float) -> None:
        """Ask for other packets from some position on, which `QuerySwitched` tells. The last one asked for wins."""
        if self.stream_mode:
            raise ValueError("a byte stream has no query")
        self.change.want(query)
        self._step_change(now)

    def _tell_epoch(self, link: Uplink, now: float) -> None:
        """It speaks of an epoch that is not ours: say which is."""
        if link.confirmed_epoch == self.epoch and now - link.query_told_at > 2 * link.rtt.smoothed:
            link.query_told_at = now
            self._send_nack(link, now)

    def _on_prepared(self, link: Uplink, prepared: control.Prepared, now: float) -> None:
        if prepared.epoch == self.change.pending_epoch:
            link.prepared_epoch = prepared.epoch
            link.prepared_since = prepared.since
            self._step_change(now)
        if prepared.epoch == self.epoch and link.confirmed_epoch != self.epoch:
            link.confirmed_epoch = self.epoch
            link.hole = None
            self._send_nack(link, now)

    def _step_change(self, now: float) -> None:
        step = self.change.step(self.position, list(self.links.values()), now)
        for link in step.too_old:
            self._uplinks.give_up(link, Reason.RENEW)
        for link, epoch, query in step.prepare:
            link.query_told_at = now
            self._uplinks.send(link, wire.CONTROL, 0, 0, control.encode_prepare(control.Prepare(epoch, query)))
        for link in step.ask:
            self._send_nack(link, now)
        if step.switch:
            self._switch(now)
            if self.position is not None:
                self._watch(now)

    def _switch(self, now: float) -> None:
        """From here on the new query holds. The reorder buffer of the old one does not survive."""
        self.change.switch(list(self.links.values()), now)
        self._buffer.keep_epoch(self.epoch)
        for link in self.links.values():
            link.sent_until = 0
        if self.position is not None:
            self._assembler.forget(self.position, self.change.current_epochs())
            self._handover.put_switch(self.position, self.query)
        else:
            self._ack_all(now)
        if self._on_switch is not None:
            self._on_switch(self.query, now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle_timeout(self, now: float) -> None:
        config = self._config
        for link in list(self.links.values()):
            if not link.up:
                if now - link.opened_at > config.open_timeout:
                    self._uplinks.lose(link, Reason.TIMED_OUT)
                elif now >= link.request_at:
                    self._send_request(link, now)
            elif link.reset_at is not None and now >= link.reset_at:
                self._counts["resets"] += 1
                self._uplinks.lose(link, Reason.RESET)
            elif now - link.heard_at > config.dead_after:
                self._uplinks.give_up(link, Reason.SILENT)
            elif link.confirm_at is not None and now >= link.confirm_at and self.position is not None:
                link.confirm_at = None
                if not link.heard_claim:
                    self._confirm(link, now)
        if (start := self._starting.due(self.links.values(), now)) is not None:
            self._begin(start, now)
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = now + config.ack_interval
            self._ack_all(now)
        self._step_change(now)
        if self._gap_check_at is not None and now >= self._gap_check_at:
            self._gap_check_at = None
        if self.position is None:
            return
        self._consider_runs(now)
        if not self._is_placed(now):
            return
        if self._losses.nack_at is not None and now >= self._losses.nack_at and not self._handover.turned_away:
            self._nack_all(now)
        if now >= self._slow_at():
            self._counts["slow"] += 1
            self._losses.nacked_at = now
            for link in self._uplinks.up():
                self._send_nack(link, now, probe=True)
        self._decide_gap(now)

    def _slow_at(self) -> float:
        """When to ask although nothing shows a loss: nobody was heard, or somebody has more and does not send it."""
        position = self.position
        up = list(self._uplinks.up())
        if not up or position is None or self._handover.turned_away:
            return math.inf
        quiet_since = max(link.heard_at for link in up)
        if any(link.highest is not None and link.highest > position for link in up):
            quiet_since = min(quiet_since, self._position_at)
        interval = self._config.slow_nack_interval
        if self._config.adaptive:
            interval = max(interval, 1.5 * self._config.keep_alive_interval)
        return max(quiet_since, self._losses.nacked_at) + interval

    def _is_at_a_hole(self) -> bool:
        position, epoch = self.position or 0, self.epoch
        return any(link.hole is not None and link.hole_at(position, epoch) for link in self.links.values())

    def next_timeout(self, now: float) -> float | None:
        config = self._config
        times: list[float] = []
        for link in self.links.values():
            times += link.deadlines(config, has_position=self.position is not None)
        if self._starting.due_at is not None:
            times.append(self._starting.due_at)
        if self._ack_at is not None and self.links:
            times.append(self._ack_at)
        if self.position is not None and self.links:
            if self._losses.nack_at is not None and not self._handover.turned_away:
                times.append(self._losses.nack_at)
            times.append(self._slow_at())
            if self._losses.missing_since is None and not self._is_at_a_hole():
                self._gap_check_at = None
            else:
                if self._gap_check_at is None:
                    self._gap_check_at = now + GAP_CHECK_INTERVAL
                times.append(self._gap_check_at)
            if (stranded_at := self._runs.next_timeout()) is not None:
                times.append(stranded_at)
        if self.change.is_waiting and self.links:
            at = self.change.next_timeout(list(self.links.values()), now)
            if at is not None:
                times.append(at)
        soonest = min(times, default=math.inf)
        return None if soonest == math.inf else soonest

    # --- output -------------------------------------------------------------------------------------------------------

    def next_event(self) -> Content | None:
        """The next packet, gap, start or query switch, in the order of the stream."""
        return self._handover.next(self.position)

    def take(self, most: int) -> list[Content]:
        """Up to `most` events at once."""
        return self._handover.take(most, self.position)

    def take_plain(self, most: int) -> list[Item]:
        """The same, with packets as bare (AN, payload): for who makes something else of them anyway."""
        return self._handover.take_plain(most, self.position)

    @property
    def has_events(self) -> bool:
        """Whether something waits for the application."""
        return self._handover.has_events

    @property
    def backlog(self) -> float:
        """How full the application's queue is: 1 and more when it holds all it may."""
        return self._handover.backlog

    @property
    def has_closed_window(self) -> bool:
        """The application did not take packets fast enough: claims were turned away, or senders told to hold back."""
        return self._handover.turned_away or self._handover.told_little_room

    def reopen_window(self, now: float) -> None:
        """The application has taken packets: if the senders know of no room, tell them that there is some again."""
        handover = self._handover
        if len(handover) > handover.limit // 2 or handover.bytes > handover.max_bytes // 2:
            return
        if handover.turned_away:
            handover.turned_away = False
            self._drain(now)
            self._advanced(now)
            for link in self._uplinks.up():
                self._send_nack(link, now)
        elif handover.told_little_room:
            self._ack_all(now)
            handover.told_little_room = False  # with no link there was nobody to tell

    def receive_reset(self, link: Uplink, now: float) -> None:
        """Somebody says that the sender does not know this link: ask, and close it if nothing valid comes."""
        if link.up and link.reset_at is None:
            link.reset_at = now + 3 * link.rtt.timeout(self._config.min_rto, self._config.max_rto)
            self._send_ack(link, 0, now, probe=True)

    def next_datagrams(self, most: int) -> list[tuple[bytes, Address]]:
        return self._uplinks.next_datagrams(most)

    def statistics(self, now: float) -> ReceiverStatistics:
        counts = self._counts
        position = self.position
        return ReceiverStatistics(
            position=position,
            epoch=self.epoch,
            packets=counts["packets"],
            bytes=counts["bytes"],
            duplicates=counts["duplicates"],
            buffered=len(self._buffer),
            ready=len(self._handover),
            overrun=counts["overrun"],
            buffer_dropped=self._buffer.dropped + self._assembler.dropped,
            gaps=counts["gaps"],
            recovered=counts["recovered"],
            nacks=counts["nacks"],
            slow_nacks=counts["slow"],
            squelches=counts["squelches"],
            resets=counts["resets"],
            beyond_reach=counts["beyond_reach"],
            too_wide=counts["too_wide"],
            restarts=counts["restarts"],
            unsent=self._uplinks.unsent,
            reorder_window=self._losses.delay(),
            malformed=self.malformed,
            links=tuple(link.statistics(position or 0, counts["packets"], now) for link in self.links.values()),
        )


def _trimmed(packets: Packets, position: int) -> Packets:
    """Byte streams may be cut differently by different senders: drop the bytes that we have."""
    an, payload = packets[0]
    have = position - (an - len(payload))
    return [(an, payload[have:]), *packets[1:]] if have > 0 else packets
