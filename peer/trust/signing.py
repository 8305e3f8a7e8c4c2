"""Packets that wait to be signed at a root: whatever waits is signed together, at most 500 times a second.

Below that rate nothing waits: a packet is signed in the turn in which it was published.
"""

from __future__ import annotations

from collections.abc import Callable

from dcp.control import MAX_PACKET_BYTES
from dcp.sender import Sender
from dcp.serial import MAX_POSITION
from peer.trust.batches import MAX_BATCH, MAX_OVERHEAD, MAX_SPAN, BatchSigner
from peer.trust.withholding import WITHHELD_MARK

SIGNATURES_PER_SECOND = 500


class SigningQueue:
    """Invariant: `head` is the last AN given out, signed or not. `wall()` is the Unix time that is signed."""

    def __init__(
        self,
        sender: Sender,
        signer: BatchSigner,
        wall: Callable[[], float],
        *,
        say: Callable[[bytes], None] = lambda beat: None,
    ) -> None:
        """`say` is given the signed beats (`beats`)."""
        self._beats = signer.beats()
        self._say = say
        self._sender = sender
        self._signer = signer
        self._wall = wall
        self._waiting: list[tuple[int, bytes, bool]] = []
        self._next_at = float("-inf")
        self._end: int | None = None
        """Where the last batch ended: the next one continues there."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def head(self) -> int:
        return self._waiting[-1][0] if self._waiting else self._sender.log.head

    @property
    def due_at(self) -> float | None:
        beat_at = self._beats.due_at
        if not self._waiting:
            return beat_at
        return self._next_at if beat_at is None else min(self._next_at, beat_at)

    def add(self, payload: bytes, *, an: int | None, contiguous: bool) -> int:
        """As `Sender.publish`, which gets the packet when it is signed."""
        if len(payload) + MAX_OVERHEAD > MAX_PACKET_BYTES:
            limit = MAX_PACKET_BYTES - MAX_OVERHEAD
            raise ValueError(f"a signed packet holds at most {limit} bytes, got {len(payload)}")
        head = self.head
        if an is None:
            an = head + 1
        if not head < an <= MAX_POSITION:
            raise ValueError(f"ANs must increase up to 2**63 - 1: got {an} after {head}")
        self._waiting.append((an, payload, contiguous))
        return an

    def flush(self, now: float, *, at_once: bool = False) -> None:
        """Sign what waits, if it is time, and how far the stream goes."""
        self._sign_waiting(now, at_once=at_once)
        beat = self._beats.next(now, self._wall())
        if beat is not None:
            self._say(beat)

    def _sign_waiting(self, now: float, *, at_once: bool) -> None:
        if not self._waiting or (now < self._next_at and not at_once):
            return
        self._next_at = now + 1 / SIGNATURES_PER_SECOND
        waiting, self._waiting = self._waiting, []
        batch: list[tuple[int, bytes]] = []
        start, is_contiguous = 0, True
        for an, payload, contiguous in waiting:
            if batch and (not contiguous or len(batch) == MAX_BATCH or an - start > MAX_SPAN):
                self._publish(batch, start, contiguous=is_contiguous)
                batch = []
            if not batch:
                continues = contiguous and self._end is not None and an - self._end <= MAX_SPAN
                start = self._end if continues and self._end is not None else an - 1
                is_contiguous = contiguous
            batch.append((an, payload))
        self._publish(batch, start, contiguous=is_contiguous)

    def _publish(self, batch: list[tuple[int, bytes]], start: int, *, contiguous: bool) -> None:
        if not contiguous:
            self._beats.begin_again()
        for (an, inner), envelope in zip(batch, self._seal(batch, start), strict=True):
            self._sender.publish(envelope, an=an, contiguous=contiguous)
            self._beats.published(an, is_withheld=inner[:1] == WITHHELD_MARK)
            contiguous = True
        self._end = batch[-1][0]

    def publish_hole(self, until: int, now: float) -> None:
        """Nothing up to here can be had: no batch says otherwise."""
        self.flush(now, at_once=True)
        self._sender.publish_hole(until)
        self._beats.begin_again()
        self._end = None

    def sealed_alone(self, an: int, payload: bytes) -> bytes:
        """A packet that comes late, in a batch of its own."""
        self._beats.begin_again()
        return self._seal([(an, payload)], an - 1)[0]

    def _seal(self, batch: list[tuple[int, bytes]], start: int) -> list[bytes]:
        return self._signer.seal(batch, start=start, time=int(self._wall()))
