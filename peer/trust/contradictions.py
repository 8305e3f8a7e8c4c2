"""Signed packets that are shown upwards: to a parent which said that they are not there, by a child that holds them.

A router all of whose parents lie together lies without knowing it. So before a parent is convicted of leaving a packet
out it is shown the packet, as a message on the link (0x52, the AN u64, the packet as it was signed). An honest one that
passed it puts it in its place, corrects itself to all its children, and shows it to its own parents. One that knew, and
does not correct itself, is convicted a second later (`dcp.verdicts`).

A child can show only what a root has signed and what matches our own query; anything else changes nothing. What does
not fit a datagram can't be shown.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from dcp.admission import Bucket

if TYPE_CHECKING:
    from dcp.receiver import Receiver
    from dcp.sender import Sender
    from peer.trust.check import Trust

MARK = b"\x52"
MAX_BYTES = 1_100
"""Of a packet that is shown: it must fit one datagram on any path."""
CHECKS_PER_SECOND = 32
_AN = struct.Struct(">Q")


class Contradictions:
    def __init__(self, receiver: Receiver, sender: Sender | None, trust: Trust) -> None:
        self.taken = 0
        """Packets that children showed us, and that we had passed."""
        self._receiver, self._sender, self._trust = receiver, sender, trust
        self._checks = Bucket(CHECKS_PER_SECOND, CHECKS_PER_SECOND)

    def show(self, link: int, an: int) -> None:
        """To a parent what it left out. One of an earlier version, without encryption, would not understand."""
        payload = self._trust.proof_of(an)
        parent = self._receiver.links.get(link)
        if payload is not None and len(payload) <= MAX_BYTES and parent is not None and parent.is_encrypted:
            self._receiver.send_message(link, MARK + _AN.pack(an) + payload)

    def hear_untrusted(self, data: bytes, now: float) -> None:
        """From a child: take it if it is genuine, wanted here, and news. Then all our parents left it out."""
        receiver, sender, position = self._receiver, self._sender, self._receiver.position
        if sender is None or position is None or len(data) <= _AN.size or not self._checks.allows(now):
            return
        (an,) = _AN.unpack_from(data)
        payload, query = data[_AN.size :], receiver.query
        is_passed = receiver.audit.lacks(an, position)
        if not (is_passed or sender.log.covered_at(an, query)) or not self._trust.vouches_for(an, payload):
            return
        if not self._trust.keep_wanted(an, payload, query):
            return
        if is_passed:  # our parents' words about it are still known: they are held against them
            self.taken += 1
            receiver.take_found([(an, payload)], now)
        elif sender.insert_late(an, payload, now):
            self.taken += 1
            receiver.handover.put_late(an, payload, in_order=False)
            for link in list(receiver.links):
                self.show(link, an)
