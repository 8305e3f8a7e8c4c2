"""Grants and policies in files: read once at the start, and a root's policy again whenever its file has changed.

The policy in force is kept in the folder of `--state`: whoever was revoked stays revoked after a restart, also where
nobody is there to tell the newest policy.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from peer.errors import PeerError
from peer.role import Role
from peer.trust.gate import Gate
from peer.trust.grants import JoinGrant, MalformedCredentials, Policy

if TYPE_CHECKING:
    from dht import Grant, Identity
    from dht.ids import PeerId
    from peer.options import PeerOptions

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 10
WATCH_INTERVAL = 2.0


def _text_of(path: Path) -> str:
    """PeerError with a sentence about the file."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("ascii", errors="replace")
    except OSError as error:
        raise PeerError(f"{path}: {error.strerror}") from None


def read_policy(path: Path, stream: str | None = None) -> Policy:
    """PeerError with a sentence about the file."""
    try:
        policy = Policy.from_text_untrusted(_text_of(path))
    except MalformedCredentials as error:
        raise PeerError(f"{path}: {error}") from None
    if stream is not None and policy.stream != stream:
        raise PeerError(f"{path}: this policy is for the stream {policy.stream}, not {stream}")
    return policy


def read_join_grant(options: PeerOptions, identity: Identity) -> JoinGrant | None:
    """What a subscriber or router was granted; PeerError with a sentence about the file."""
    if options.role is Role.ROOT or options.grant is None:
        return None
    if options.identity is None:
        raise PeerError("--grant needs --identity: a grant is for one peer's key")
    try:
        grant = JoinGrant.from_text_untrusted(_text_of(options.grant))
    except MalformedCredentials as error:
        raise PeerError(f"{options.grant}: {error}") from None
    if (grant.stream, grant.peer_id) != (options.stream, identity.peer_id):
        raise PeerError(f"{options.grant}: this grant is for another stream or another peer's key")
    return grant


def gate_for(options: PeerOptions, identity: Identity, grant: Grant | None, wall: Callable[[], float]) -> Gate:
    """The gate of a peer, with what its files say."""
    from dht.streams import owner_of_name

    owner = options.chosen_owner() or owner_of_name(options.stream) or _pinned_owner(options)
    if options.role is Role.ROOT:
        owner = grant.owner if grant is not None else identity.peer_id
    gate = Gate(
        options.stream,
        wall=wall,
        own=grant or read_join_grant(options, identity),
        owner=owner,
        is_root=options.role is Role.ROOT,
        withholds=bool(options.withhold),
    )
    kept = options.state / f"{options.stream}.policy" if options.state is not None else None
    if kept is not None and kept.exists():
        gate.adopt(read_policy(kept, options.stream))
    if options.policy is not None and not gate.adopt(policy := read_policy(options.policy, options.stream)):
        if owner is not None and policy.owner != owner:
            raise PeerError(
                f"{options.policy}: this policy is of {policy.owner_text}, who does not own {options.stream}"
            )
        if gate.policy is not None and gate.policy.version > policy.version:
            log.warning("%s: %s is older than the policy in force, which stays", options.stream, options.policy)
    if kept is not None:
        gate.adopted = lambda policy: _keep_policy(kept, policy)
        if gate.policy is not None:
            _keep_policy(kept, gate.policy)
    return gate


def _pinned_owner(options: PeerOptions) -> PeerId | None:
    """Whom this peer has taken for the stream's owner before."""
    from dht.errors import PinsError
    from dht.pins import Pins

    if options.state is None:
        return None
    try:
        return Pins(options.state / "pins.json").owner(options.stream)
    except PinsError:
        return None  # the directory says so, and ends the peer


def _keep_policy(path: Path, policy: Policy) -> None:
    """As a whole or not at all; a disk that is full costs only the next start."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(policy.to_text() + "\n")
        aside.replace(path)
    except OSError as error:
        log.warning("%s: the policy can't be kept: %s", path, error.strerror)
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def _stamp(path: Path) -> object:
    """What tells one content of a file from another."""
    try:
        status = path.stat()
    except OSError as error:
        return str(error)
    return status.st_mtime_ns, status.st_size


async def watch_policy(path: Path, stream: str, changed: Callable[[Policy], None]) -> None:
    """Call `changed` whenever the file has another policy; a bad file is reported, and the policy in force stays."""
    seen: object = None
    while True:
        now = _stamp(path)
        if now != seen:
            seen = now
            try:
                changed(read_policy(path, stream))
            except PeerError as error:
                log.warning("%s: %s; the policy stays as it is", stream, error)
        await trio.sleep(WATCH_INTERVAL)
