"""Who comes in and whom we go to: both ends of a link must be the peers that the mesh takes them for.

dcp proves which key the other end of an encrypted link holds. Here that key is compared with the peer id that a join
names, and with the one that was asked for. Links without encryption, to peers of earlier versions, prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from dcp import events as dcp_events
from dht.identity import id_text, peer_id_of
from peer.mesh.encoding import decode_join_untrusted
from peer.mesh.messages import MalformedMessage, PeerId


def is_peer(peer_id: PeerId) -> Callable[[bytes], bool]:
    """Whether an Ed25519 key is that peer's."""
    return lambda public_key: bytes(peer_id_of(public_key)) == peer_id


def why_not_untrusted(opening: dcp_events.OpeningReceived) -> str | None:
    """Why a join is refused before the mesh looks at it."""
    if not opening.public_key:
        return None
    try:
        named = decode_join_untrusted(opening.hello).peer_id
    except MalformedMessage:
        return None  # the mesh says so, with the version that it speaks
    proved = peer_id_of(opening.public_key)
    if named == bytes(proved):
        return None
    return f"the join names another peer than {id_text(proved)}, whose key opened the link"


def other_peer_in_words(public_key: bytes) -> str:
    return f"the peer there is {id_text(peer_id_of(public_key))}, not the one that was asked for"
