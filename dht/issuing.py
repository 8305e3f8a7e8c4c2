"""Making keys and signing grants for roots, for the commands: `python -m dht keygen|grant` and `skymesh keys`."""

from __future__ import annotations

from pathlib import Path

from dht.errors import IdentityError
from dht.identity import Identity, parse_id_text
from dht.streams import Grant

MAX_DAYS = 3_650


def new_key(path: Path) -> Identity:
    """A key pair in a new file of mode 0600; IdentityError if there is one already, or it can't be written."""
    identity = Identity.generate()
    try:
        identity.save(path)
    except FileExistsError:
        raise IdentityError(f"{path} already exists; a key is never overwritten") from None
    except OSError as error:
        raise IdentityError(f"{path}: {error.strerror}") from None
    return identity


def key_in_words(identity: Identity) -> str:
    return f"peer id (and fingerprint of the streams it owns): {identity.fingerprint}"


def expiry(days: float, now: float) -> int:
    """So many days from now; ValueError for a number that makes no sense."""
    if not 0 < days <= MAX_DAYS:
        raise ValueError(f"--days must be above 0 and at most {MAX_DAYS}, got {days:g}")
    return int(now + days * 86_400)


def root_grant(owner: Identity, *, stream: str, peer: str, days: float, now: float) -> str:
    """One line of text that makes a peer, by its id in text, a root of a stream. ValueError for bad input."""
    until = expiry(days, now)
    return Grant.issue(owner, stream=stream, peer_id=parse_id_text(peer), expires_at=until).to_text()
