"""Whether a copy of a packet is authentic, asked before the first copy wins: at clients and at routers alike.

Nobody honest passes a forgery on, so whoever hands one over is to blame. A copy that can't be judged, since the key
that signed it is not known here yet, is treated as if it were lost: it is asked for again, and nobody is blamed.

Once a stream is known as signed, because a root's record says so or because a signed packet was verified, unsigned
packets are forgeries. Until then they are taken, as in a stream without signatures; and while one of the owner's roots
has a record that says it does not sign, since roots are upgraded one after another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from dcp.claims import Packets
from dcp.compression import PLAIN, PLAIN_MARK, EnvelopeCheck
from peer.envelope import Envelope
from peer.trust.batches import SIGNED, SIGNED_MARK, BatchVerifier, Verdict
from peer.trust.keys import SigningKeys
from peer.trust.withholding import WITHHELD

MAX_PROOFS = 4_096
"""Verified packets that are kept for a while: what another parent left out of them convicts it."""
MAX_PROOF_BYTES = 4 << 20
MAX_FORGED = 1_024


class Trust:
    """What a peer knows of one stream's authenticity: `dcp.authority.Authority` and `dcp.acceptance.BatchCheck`."""

    def __init__(self, stream: str) -> None:
        self.keys = SigningKeys()
        self.is_signed = False
        """The stream is known as signed: unsigned packets are forgeries."""
        self.has_unsigned_roots = False
        """A root of the owner does not sign yet: until it does, unsigned packets may be its own."""
        self.forged = 0
        """Copies that nobody with a key of the stream has signed."""
        self.unknown = 0
        """Copies that could not be judged: their key, or its present grant, is not known here."""
        self.takes_withheld = False
        """This peer has the grant for withheld packets. Nobody honest passes them on to others: such a copy counts as
        forged, or it would convict the parents that rightly left the packet out."""
        self.key_wanted: Callable[[], None] = lambda: None
        """Called when a copy could not be judged: the owner looks for keys."""
        self.undecided: set[int] = set()
        """Of the packets that were asked about last, those that could not be judged (`dcp.acceptance`)."""
        self._verifier = BatchVerifier(stream, self.keys)
        self._inner = EnvelopeCheck(lambda payload: payload)
        self._matches: Callable[[bytes, bytes], bool] = lambda query, payload: False
        self._proofs: dict[int, bytes] = {}
        self._older: dict[int, bytes] = {}
        self._proof_bytes = 0
        self._condemned: deque[int] = deque(maxlen=MAX_FORGED)
        self._beat_head: int | None = None
        self._seen_head = 0

    def use(self, envelope: Envelope, matches: Callable[[bytes, bytes], bool]) -> None:
        """How what was signed is opened, and whether a query matches a packet."""
        self._inner = EnvelopeCheck(envelope.content_untrusted)
        self._matches = matches

    @property
    def signatures(self) -> int:
        """Signatures that were checked here."""
        return self._verifier.signatures

    def add_key(self, public_key: bytes, *, expires_at: int | None) -> None:
        """A root of the stream's owner says that it signs."""
        self.keys.add(public_key, expires_at=expires_at)
        self.is_signed = True

    # --- dcp.acceptance -----------------------------------------------------------------------------------------------

    def __call__(self, an: int, payload: bytes) -> bool:
        return not self.refused([(an, payload)])

    def refused(self, packets: Packets) -> Collection[int]:
        undecided = self.undecided
        undecided.clear()
        refused = []
        for an, payload in packets:
            if payload and payload[0] == SIGNED:
                verdict = self._verifier.verify(an, payload)
                if verdict is Verdict.GOOD:
                    self.is_signed = True
                    kind = payload[self._verifier.inner_at]
                    is_for_us = kind != WITHHELD or self.takes_withheld
                    if kind == PLAIN or (is_for_us and self._inner(an, payload)):
                        self._keep(an, payload)
                        continue
                elif verdict is Verdict.UNKNOWN:
                    self.unknown += 1
                    undecided.add(an)
                    refused.append(an)
                    continue
            elif not self.is_signed or self.has_unsigned_roots:
                if payload[:1] != PLAIN_MARK and not self._inner(an, payload):
                    refused.append(an)
                continue
            self.forged += 1
            self._condemned.append(an)
            refused.append(an)
        if undecided:
            self.key_wanted()
        return refused

    def vouches_for(self, an: int, payload: bytes) -> bool:
        """Whether a root has signed this for us, whoever shows it. Nobody is blamed if not."""
        if payload[:1] != SIGNED_MARK or self._verifier.verify(an, payload) is not Verdict.GOOD:
            return False
        is_for_us = payload[self._verifier.inner_at] != WITHHELD or self.takes_withheld
        return is_for_us and self._inner(an, payload)

    def keep_wanted(self, an: int, payload: bytes, query: bytes) -> bool:
        """Whether a query matches what a root has signed; then it can be proved that the packet exists."""
        is_wanted = self._matches(query, payload)
        if is_wanted:
            self._keep(an, payload)
        return is_wanted

    def _keep(self, an: int, payload: bytes) -> None:
        proofs = self._proofs
        if an in proofs:
            return
        proofs[an] = payload
        if an > self._seen_head:
            self._seen_head = an
        self._proof_bytes += len(payload)
        if len(proofs) >= MAX_PROOFS // 2 or self._proof_bytes >= MAX_PROOF_BYTES // 2:
            # All at once: to take the oldest out of a dict, one for each that comes, costs more than to check a packet.
            self._older, self._proofs, self._proof_bytes = proofs, {}, 0

    # --- dcp.authority ------------------------------------------------------------------------------------------------

    def set_head(self, head: int | None) -> None:
        """By the roots' fresh beats (`beats`); None: there are none."""
        self._beat_head = head

    def head(self) -> int | None:
        # Packets that were verified prove as much, and are newer than a beat that comes once a second.
        return None if self._beat_head is None else max(self._beat_head, self._seen_head)

    def proves(self, an: int, query: bytes) -> bool:
        payload = self.proof_of(an)
        return payload is not None and self._matches(query, payload)

    def proof_of(self, an: int) -> bytes | None:
        """The packet as it was signed, while it is kept."""
        return self._proofs.get(an) or self._older.get(an)

    def condemns(self, an: int) -> bool:
        return an in self._condemned
