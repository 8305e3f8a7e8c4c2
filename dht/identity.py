"""Who a peer is: an Ed25519 key pair, and the ids that follow from its public half.

The peer id is a hash of the public key, so a record proves by itself whose it is; the DHT node id is a hash of the peer
id, so nobody picks a place in the key space without making keys for it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dht.errors import IdentityError
from dht.ids import ID_BYTES, NodeId, PeerId

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64
SEED_BYTES = 32
# The file is text so that it survives copy and paste, and its first word says what it is.
_FILE_PREFIX = "skymesh-key-v1:"


def peer_id_of(public_key: bytes) -> PeerId:
    return PeerId(hashlib.sha256(b"skymesh peer id\0" + public_key).digest()[:ID_BYTES])


def node_id_of(peer_id: PeerId) -> NodeId:
    return NodeId(hashlib.sha256(b"skymesh node id\0" + peer_id).digest()[:ID_BYTES])


def id_text(peer_id: bytes) -> str:
    """32 lower-case base32 characters: the form people see, and a stream owner's fingerprint."""
    return base64.b32encode(peer_id).decode("ascii").lower()


def parse_id_text(text: str) -> PeerId:
    """The inverse of `id_text`; ValueError for anything else."""
    try:
        raw = base64.b32decode(text.upper())
    except (binascii.Error, ValueError) as exc:
        raise ValueError(f"an id must be 32 base32 characters, got {text!r}") from exc
    if len(raw) != ID_BYTES or id_text(raw) != text:
        raise ValueError(f"an id must be 32 lowercase base32 characters, got {text!r}")
    return PeerId(raw)


def is_signed_by(public_key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A key pair. The private half leaves this object only into its file."""

    _private: Ed25519PrivateKey
    public_key: bytes

    @classmethod
    def generate(cls) -> Identity:
        return cls.from_seed(os.urandom(SEED_BYTES))

    @classmethod
    def from_seed(cls, seed: bytes) -> Identity:
        """A fixed key from 32 bytes: for files, and for simulations that must repeat."""
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed must be {SEED_BYTES} bytes, got {len(seed)}")
        private = Ed25519PrivateKey.from_private_bytes(seed)
        return cls(private, private.public_key().public_bytes_raw())

    @property
    def peer_id(self) -> PeerId:
        return peer_id_of(self.public_key)

    @property
    def node_id(self) -> NodeId:
        return node_id_of(self.peer_id)

    @property
    def fingerprint(self) -> str:
        return id_text(self.peer_id)

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"Identity({self.fingerprint})"

    def save(self, path: Path) -> None:
        """Write a new key file of mode 0600; an existing file is never overwritten (FileExistsError)."""
        text = _FILE_PREFIX + base64.b64encode(self._private.private_bytes_raw()).decode("ascii") + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and linked into place: a crash leaves no half key, and of two processes starting at once the
        # second sees FileExistsError and loads what the first wrote.
        aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.link(aside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)

    @classmethod
    def load(cls, path: Path) -> Identity:
        try:
            mode = path.stat().st_mode
            text = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not text"
            raise IdentityError(f"cannot read the key file {path}: {why}") from exc
        if stat.S_IMODE(mode) & 0o077:
            raise IdentityError(f"other users can read the key file {path}; run: chmod 600 {path}")
        try:
            if not text.startswith(_FILE_PREFIX):
                raise ValueError("unknown format")
            return cls.from_seed(base64.b64decode(text.removeprefix(_FILE_PREFIX), validate=True))
        except ValueError as exc:
            raise IdentityError(f"{path} is not a skymesh key file: {exc}") from exc

    @classmethod
    def load_or_create(cls, path: Path) -> Identity:
        """The key in `path`, made on first use."""
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                cls.generate().save(path)
        return cls.load(path)
