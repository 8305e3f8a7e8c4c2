"""Signatures of recorded packets, kept beside their content, so that a recording can be verified years later.

A proof is what a signed envelope has beside the content. Network order:

    0x00, the envelope up to its inner envelope    where that is plain: a zero byte and the content
    0x01, the envelope as it was                   where the content is compressed

`record` keeps them in a packet log of their own, in the folder `proofs` of the recording, with the keys of the roots
and the owner's grants for them in the file `proofs/roots` (a line of base64 for each entry of `rootkeys`). Whoever
verifies needs to know the owner's fingerprint, and nothing else. This file is pure.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable
from enum import Enum

from dcp.compression import PLAIN_MARK
from dcp.errors import PayloadRefused
from dht.identity import PUBLIC_KEY_BYTES
from dht.ids import PeerId
from peer.trust.batches import SIGNED_MARK, BatchVerifier, Verdict, inner_untrusted
from peer.trust.keys import SIGNER_BYTES, SigningKeys, signer_of
from peer.trust.rootkeys import RootKeys

FOLDER = "proofs"
KEYS_FILE = "roots"
_PREFIX = b"\0"
_WHOLE = b"\1"
_SIGNER_AT = 2
"""Of a proof: behind its own mark and that of the envelope."""


class Finding(Enum):
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    """There is no proof for it."""
    UNKNOWN = "unknown key"
    """Signed with a key, or after a time, that the owner's grants in the recording do not cover."""
    FALSE = "false"
    """The content, its number or the proof was changed."""


def proof_of(envelope: bytes) -> bytes | None:
    """What to keep of a packet that was verified; None for one that is not signed."""
    if envelope[:1] != SIGNED_MARK:
        return None
    inner = inner_untrusted(envelope)
    if inner[:1] != PLAIN_MARK:
        return _WHOLE + envelope
    return _PREFIX + envelope[: len(envelope) - len(inner)]


MAX_KEY_LINES = 64


def merged_keys(text: str, keys: RootKeys) -> str:
    """The file with the keys, and those that it does not have yet: earlier runs may have known other roots."""
    lines = dict.fromkeys(text.split())
    lines.update(dict.fromkeys(base64.b64encode(entry).decode("ascii") for entry in keys.entries))
    return "".join(f"{line}\n" for line in list(lines)[-MAX_KEY_LINES:])


def entries_for(proof: bytes, text: str) -> str:
    """Of a file with the keys, the lines of those roots that may have made a proof; it names only half a key.

    ValueError if the file is damaged.
    """
    signer = proof[_SIGNER_AT : _SIGNER_AT + SIGNER_BYTES]
    lines = text.split()[:MAX_KEY_LINES]
    return "\n".join(line for line in lines if signer_of(_entry(line)[:PUBLIC_KEY_BYTES]) == signer)


def _entry(line: str) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the file with the keys of the roots is damaged") from None


class RecordingVerifier:
    """Packets of one recording against the stream's owner."""

    def __init__(self, stream: str, owner: PeerId, keys_text: str, unpack: Callable[[bytes], bytes]) -> None:
        """`unpack` opens a compressed inner envelope. ValueError if `keys_text` is damaged."""
        self.counts: Counter[Finding] = Counter()
        keys = SigningKeys()
        ring = RootKeys(stream, lambda key, expires_at: keys.add(key, expires_at=expires_at))
        for line in keys_text.split()[:MAX_KEY_LINES]:
            ring.learn_untrusted(_entry(line), owner)
        self.roots = len(keys)
        """Keys that the owner has granted."""
        self._verifier = BatchVerifier(stream, keys)
        self._unpack = unpack

    def judge_untrusted(self, an: int, content: bytes, proof: bytes | None) -> Finding:
        found = self._judge(an, content, proof)
        self.counts[found] += 1
        return found

    def _judge(self, an: int, content: bytes, proof: bytes | None) -> Finding:
        if proof is None:
            return Finding.UNSIGNED
        if proof[:1] == _PREFIX:
            envelope = proof[1:] + PLAIN_MARK + content
        elif proof[:1] == _WHOLE:
            envelope = proof[1:]
            try:
                if self._unpack(inner_untrusted(envelope)) != content:
                    return Finding.FALSE
            except PayloadRefused:
                return Finding.FALSE
        else:
            return Finding.FALSE
        verdict = self._verifier.verify(an, envelope)
        if verdict is Verdict.GOOD:
            return Finding.SIGNED
        return Finding.UNKNOWN if verdict is Verdict.UNKNOWN else Finding.FALSE
