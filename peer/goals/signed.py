"""A goal as it travels: text, version and stream, signed with the key of the stream's owner.

    version u64, public key 32 bytes, signature 64 bytes, text

The version is the time of signing in milliseconds, so a later goal replaces an earlier one without anybody keeping
count. The stream's name is signed with it, and does not travel: a goal of one stream is void in another.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256

from dht.identity import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Identity, is_signed_by, peer_id_of
from peer.goals.errors import GoalError
from peer.goals.parser import MAX_GOAL_BYTES, parse_goal, parse_goal_untrusted
from peer.goals.syntax import Goal
from peer.goals.vocabulary import Vocabulary

_HEAD = struct.Struct(f">Q{PUBLIC_KEY_BYTES}s{SIGNATURE_BYTES}s")
HASH_BYTES = 8


class MalformedGoal(ValueError):
    """Bytes that are not a goal signed by the owner of the stream."""


@dataclass(frozen=True, slots=True)
class OwnedGoal:
    """A goal whose signature was checked. `goal` is None if this peer does not understand the text."""

    version: int
    owner: bytes
    text: str
    goal: Goal | None
    problem: str
    data: bytes

    @property
    def digest(self) -> bytes:
        return sha256(self.data).digest()[:HASH_BYTES]


def sign_goal(text: str, stream: str, owner: Identity, version: int) -> bytes:
    """GoalError for a text that is not a goal."""
    parse_goal(text)
    signature = owner.sign(_signed(stream, version, text.encode("ascii")))
    return _HEAD.pack(version, owner.public_key, signature) + text.encode("ascii")


def read_goal_untrusted(
    data: bytes, stream: str, owner: bytes, *, newer_than: int = -1, vocabulary: Vocabulary | None = None
) -> OwnedGoal:
    """MalformedGoal for anything but a newer goal of this stream, signed by this owner.

    A goal that is signed and not understood (a later version's word, or one of an application that is not here) is
    passed on all the same: the peers behind may understand it.
    """
    if not _HEAD.size < len(data) <= _HEAD.size + MAX_GOAL_BYTES:
        raise MalformedGoal(f"a signed goal has {_HEAD.size + 1} to {_HEAD.size + MAX_GOAL_BYTES} bytes")
    version, public_key, signature = _HEAD.unpack_from(data)
    text = data[_HEAD.size :]
    if version <= newer_than:  # before the signature is checked: old ones cost nothing
        raise MalformedGoal(f"version {version} is not newer than {newer_than}")
    if bytes(peer_id_of(public_key)) != owner:
        raise MalformedGoal("it is signed by another key than the owner's")
    if not text.isascii() or not text.decode("ascii").isprintable() or not is_signed_by(
        public_key, signature, _signed(stream, version, text)
    ):  # fmt: skip
        raise MalformedGoal("its signature is wrong")
    try:
        goal, problem = parse_goal_untrusted(text, vocabulary), ""
    except GoalError as error:
        goal, problem = None, str(error)
    return OwnedGoal(version, owner, text.decode("ascii"), goal, problem, data)


def _signed(stream: str, version: int, text: bytes) -> bytes:
    name = stream.encode()
    return b"skymesh goal\0" + struct.pack(">HQ", len(name), version) + name + text
