"""Grants and policies in files: read once at the start, and a root's policy again whenever its file has changed."""

from __future__ import annotations

import logging
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
    from peer.options import PeerOptions

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 10
WATCH_INTERVAL = 2.0


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES).decode("ascii", errors="replace")


def read_policy(path: Path, stream: str | None = None) -> Policy:
    """PeerError with a sentence about the file."""
    try:
        policy = Policy.from_text_untrusted(_text_of(path))
    except (OSError, MalformedCredentials) as error:
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
    except (OSError, MalformedCredentials) as error:
        raise PeerError(f"{options.grant}: {error}") from None
    if (grant.stream, grant.peer_id) != (options.stream, identity.peer_id):
        raise PeerError(f"{options.grant}: this grant is for another stream or another peer's key")
    return grant


def gate_for(options: PeerOptions, identity: Identity, grant: Grant | None, wall: Callable[[], float]) -> Gate:
    """The gate of a peer, with what its files say."""
    from dht.streams import owner_of_name

    owner = options.chosen_owner() or owner_of_name(options.stream)
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
    if options.policy is not None and not gate.adopt(policy := read_policy(options.policy, options.stream)):
        raise PeerError(f"{options.policy}: this policy is of {policy.owner_text}, who does not own {options.stream}")
    return gate


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
