"""What a root does to its packets before they leave, as its options say: compress, mark what is withheld, sign."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dcp.compression import Compressor
from peer.envelope import Envelope
from peer.errors import PeerError
from peer.options import PeerOptions
from peer.role import Role
from peer.trust.batches import SALT_BYTES, BatchSigner
from peer.trust.withholding import RANDOM_BYTES, Withholding
from xmlswitch import Query

if TYPE_CHECKING:
    from dht import Grant, Identity


def envelope_for(options: PeerOptions, signer: BatchSigner | None) -> Envelope:
    """How packets are packed at a root, and opened at any peer."""
    compression = "zstd" if options.dictionary and options.compress == "none" else options.compress
    return Envelope(
        Compressor(compression, dictionary=options.dictionary),
        remembers=options.role is not Role.ROOT and options.deliver,
        withholding=withholding_for(options, signer),
    )


def signer_for(options: PeerOptions, identity: Identity, grant: Grant | None) -> BatchSigner | None:
    """Signs a root's packets, if the stream has an owner key and nobody asked for unsigned packets."""
    from dht.streams import owner_of_name

    has_owner = grant is not None or owner_of_name(options.stream) == identity.peer_id
    if options.role is not Role.ROOT or options.unsigned or not has_owner:
        return None
    return BatchSigner(options.stream, identity.public_key, sign=identity.sign, salt=lambda: os.urandom(SALT_BYTES))


def withholding_for(options: PeerOptions, signer: BatchSigner | None) -> Withholding | None:
    """Which packets a root withholds; QueryError for a bad query, PeerError where nobody would keep to it."""
    if not options.withhold:
        return None
    if signer is None:
        raise PeerError(
            "--withhold needs signed packets, or whoever relays them could remove the mark: start this root with "
            "--owner or --grant, and without --unsigned"
        )
    queries = [Query.parse(query, options.namespaces) for query in options.withhold]
    return Withholding(queries, lambda: os.urandom(RANDOM_BYTES))
