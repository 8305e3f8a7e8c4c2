"""How far a signed stream goes, and how many packets it has, in the words of its roots: signed once a second.

A parent that withholds the end of a stream, or all of it, is unmasked by them, and nothing that a parent says counts
far beyond them (`dcp.reach`). They travel down as messages on encrypted links (0x51, then the beat), and are passed on
once each. Network order:

    signer 4, run 8 (random), time u64 (ms since 1970), after u64, head u64, packets u64, withheld u64, signature 64
    signed: "skymesh beat v1\\0", all fields before the signature, stream name

In (after, head] this run of the root has published exactly `packets` packets, of which `withheld` reach only those who
have a grant for them. A new run begins with each start of the
root, and when it puts a packet behind its head. This file is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from dcp.admission import Bucket
from peer.trust.keys import SIGNER_BYTES, SigningKeys

INTERVAL = 1.0
EARLY_PACKETS = 512
"""A head that has moved this far is signed sooner: what lies far beyond a signed head is not believed."""
EARLY_INTERVAL = 0.1
FRESH_SECONDS = 5.0
"""A beat that was heard longer ago says nothing about the head any more."""
MAX_CLOCK_DIFFERENCE = 60.0
"""Beats of another time may be recorded ones. A peer with a wrong clock goes without them."""
MAX_CHECKS_PER_SECOND = 32
MAX_SIGNERS = 64
_DOMAIN = b"skymesh beat v1\0"
_FIELDS = struct.Struct(f">{SIGNER_BYTES}s8sQQQQQ")
_SIGNATURE_BYTES = 64
BEAT_BYTES = _FIELDS.size + _SIGNATURE_BYTES


class Beat(NamedTuple):
    signer: bytes
    run: bytes
    time: int
    after: int
    head: int
    packets: int
    withheld: int = 0


def encode_beat(beat: Beat, stream: str, sign: Callable[[bytes], bytes]) -> bytes:
    fields = _FIELDS.pack(*beat)
    return fields + sign(_DOMAIN + fields + stream.encode("ascii"))


class RootBeats:
    """At a root: when to sign, and what."""

    def __init__(self, stream: str, signer: bytes, sign: Callable[[bytes], bytes], random: Callable[[], bytes]) -> None:
        """`random()` gives 8 fresh bytes."""
        self._stream, self._signer, self._sign, self._random = stream, signer, sign, random
        self._run = random()
        self._after: int | None = None
        self._head = self._count = self._withheld = 0
        self._said_head = 0
        self._said_at = float("-inf")

    def published(self, an: int, *, is_withheld: bool = False) -> None:
        if self._after is None:
            self._after = an - 1
        self._head = an
        self._count += 1
        self._withheld += is_withheld

    def begin_again(self) -> None:
        """What comes next can't be counted with what was before."""
        self._run = self._random()
        self._after, self._count, self._withheld = None, 0, 0

    @property
    def due_at(self) -> float | None:
        if self._after is None:
            return None
        is_early = self._head - self._said_head > EARLY_PACKETS
        return self._said_at + (EARLY_INTERVAL if is_early else INTERVAL)

    def next(self, now: float, wall: float) -> bytes | None:
        """The beat that is due, if one is."""
        due = self.due_at
        if due is None or now < due or self._after is None:
            return None
        self._said_at, self._said_head = now, self._head
        time = int(wall * 1_000)
        beat = Beat(self._signer, self._run, time, self._after, self._head, self._count, self._withheld)
        return encode_beat(beat, self._stream, self._sign)


class BeatBook:
    """At all others: the newest beat of each root."""

    def __init__(
        self, stream: str, keys: SigningKeys, wall: Callable[[], float], head_known: Callable[[int | None], None]
    ) -> None:
        """`head_known`: how far the stream goes by fresh beats; None when there is none any more."""
        self._stream = stream.encode("ascii")
        self._keys, self._wall, self._head_known = keys, wall, head_known
        self._last: dict[bytes, Beat] = {}
        self._heard_at: float | None = None
        self._checks = Bucket(MAX_CHECKS_PER_SECOND, MAX_CHECKS_PER_SECOND)
        self.refused = 0

    def hear_untrusted(self, data: bytes, now: float) -> Beat | None:
        """The beat, if it is genuine and new here."""
        if len(data) != BEAT_BYTES:
            self.refused += 1
            return None
        beat = Beat._make(_FIELDS.unpack_from(data))
        last = self._last.get(beat.signer)
        if last is not None and beat.time <= last.time:
            return None  # from another parent, or long ago
        is_of_now = abs(beat.time / 1_000 - self._wall()) <= MAX_CLOCK_DIFFERENCE
        keys = self._keys.named(beat.signer)
        if not is_of_now or not keys or beat.head < beat.after or not self._checks.allows(now):
            self.refused += 1
            return None
        message = _DOMAIN + data[: _FIELDS.size] + self._stream
        seconds = beat.time // 1_000
        if not any(key.covers(seconds) and key.has_signed(data[_FIELDS.size :], message) for key in keys):
            self.refused += 1
            return None
        if last is None and len(self._last) >= MAX_SIGNERS:
            self._last.pop(next(iter(self._last)))
        self._last[beat.signer] = beat
        self._heard_at = now
        self._head_known(max(known.head for known in self._last.values()))
        return beat

    def look(self, now: float) -> None:
        """Forget what was heard too long ago."""
        if self._heard_at is not None and now - self._heard_at > FRESH_SECONDS:
            self._heard_at = None
            self._head_known(None)
