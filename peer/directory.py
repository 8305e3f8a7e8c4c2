"""Between the mesh's words and the directory's: what a record says of a candidate, and a root's proof of its right."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING

from dcp import EVERYTHING
from peer.errors import PeerError
from peer.mesh.candidates import CandidateRecord
from peer.mesh.messages import UNPLACED, PeerId
from peer.options import PeerOptions
from peer.queries import NOTHING, token_of
from peer.role import Role
from xmlswitch import MalformedQuery, Query, QueryError

if TYPE_CHECKING:
    from dht import CandidateQuery, DirectoryOptions, Grant, Identity, PeerRecord
    from dht.ids import PeerId as OwnerId
    from peer.mesh.events import CandidatesWanted

MAX_FOUND = 64
"""Candidates taken from one look-up: more than the mesh asks for, since some will be full or gone."""
OWN_GRANT_LIFETIME = 30 * 86_400.0
"""A root that holds the owner's key vouches for itself for this long, again at every start."""


def query_of(wanted: CandidatesWanted) -> CandidateQuery:
    """The mesh's question in the directory's terms."""
    from dht import CandidateQuery

    below = None if wanted.below_level >= UNPLACED else wanted.below_level
    return CandidateQuery(below_level=below, limit=MAX_FOUND, repair=wanted.for_repair)


def candidate_of(record: PeerRecord, *, is_placed: bool = False) -> CandidateRecord:
    """The directory's word in the mesh's terms."""
    from dht import Role as DhtRole

    return CandidateRecord(
        peer_id=PeerId(bytes(record.peer_id)),
        address=record.addresses[0],
        level=record.level,
        hops=record.hops,
        load=record.children / record.capacity if record.capacity else 1.0,
        free=record.free_slots,
        free_for_repair=record.free_repair_slots,
        resilience=record.held_parents if record.role is not DhtRole.ROOT else 255,
        is_root=record.role is DhtRole.ROOT,
        capacity=record.capacity,
        is_placed=is_placed,
        query=_carried(record.query.text if record.query.text is not None else "false()")
        if record.query
        else EVERYTHING,
        version=record.version,
    )


@lru_cache(maxsize=1_024)
def _carried(canonical: str) -> bytes:
    """What a record says that a peer carries: a stranger's text, taken as a query off the wire is, and never evaluated.
    A query too long for a record, or that we can't read, counts as nothing: the peer is asked all the same, only later.
    """
    try:
        return token_of(Query.parse_untrusted(canonical))
    except (QueryError, MalformedQuery):
        return token_of(NOTHING)


def directory_options(options: PeerOptions, owner: OwnerId | None) -> DirectoryOptions:
    """How a peer's directory finds the network, what it remembers, and whom it believes about the stream."""
    from dht import DirectoryOptions

    state = options.state
    return DirectoryOptions(
        bootstrap=tuple(options.bootstrap),
        contacts_file=state / "contacts.json" if state is not None else None,
        pins_file=state / "pins.json" if state is not None else None,
        owners={options.stream: owner} if owner is not None else {},
        beacon=options.beacon,
    )


def grant_of(options: PeerOptions, identity: Identity) -> Grant | None:
    """A root's proof that the stream's owner vouches for it; PeerError when the file does not say so."""
    from dht import Grant, IdentityError, RecordRejected
    from dht import Identity as Owner

    if options.role is not Role.ROOT or (options.grant is None and options.owner is None):
        return None
    if options.owner is not None:
        try:
            owner = Owner.load(options.owner)
        except IdentityError as error:
            raise PeerError(str(error)) from None
        expires_at = int(time.time() + OWN_GRANT_LIFETIME)
        return Grant.issue(owner, stream=options.stream, peer_id=identity.peer_id, expires_at=expires_at)
    assert options.grant is not None
    try:
        grant = Grant.from_text(options.grant.read_text())
    except (OSError, ValueError, RecordRejected) as error:
        raise PeerError(f"{options.grant}: {error}") from None
    if (grant.stream, grant.peer_id) != (options.stream, identity.peer_id):
        raise PeerError(f"{options.grant}: this grant is for another stream or another peer's key")
    return grant
