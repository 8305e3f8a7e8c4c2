"""The keys that sign a stream: those of its roots, each until its grant expires. They come from checked records."""

from __future__ import annotations

from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SIGNER_BYTES = 4
MAX_KEYS = 64
"""Roots of one stream whose keys are kept; beyond it the one that was named longest ago is forgotten."""
FOREVER = 1 << 32


def signer_of(public_key: bytes) -> bytes:
    return sha256(b"skymesh signer\0" + public_key).digest()[:SIGNER_BYTES]


class SigningKey:
    """A root's public key, and until when the owner lets it sign."""

    __slots__ = ("_key", "expires_at")

    def __init__(self, public_key: bytes, expires_at: int) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(public_key)
        self.expires_at = expires_at

    def covers(self, time: int) -> bool:
        """Compared with the signed time, never with the clock: history outlives the grant."""
        return time <= self.expires_at

    def has_signed(self, signature: bytes, message: bytes) -> bool:
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class SigningKeys:
    """Invariant: at most `MAX_KEYS`."""

    def __init__(self) -> None:
        self._keys: dict[bytes, SigningKey] = {}
        self._named: dict[bytes, list[SigningKey]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, public_key: bytes, *, expires_at: int | None) -> None:
        """A root that the owner vouches for; None: it is the owner. A later grant replaces an earlier one."""
        expires = FOREVER if expires_at is None else expires_at
        known = self._keys.pop(public_key, None)
        if known is not None:
            known.expires_at = max(known.expires_at, expires)
        else:
            known = SigningKey(public_key, expires)
            if len(self._keys) >= MAX_KEYS:
                oldest = next(iter(self._keys))
                self._named[signer_of(oldest)].remove(self._keys.pop(oldest))
            self._named.setdefault(signer_of(public_key), []).append(known)
        self._keys[public_key] = known

    def named(self, signer: bytes) -> list[SigningKey]:
        """Those that a signer's four bytes may mean."""
        return self._named.get(signer, [])
