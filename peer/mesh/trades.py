"""What peers say to each other to exchange slots (`trading.py`), as values and as bytes.

    version u8, type u8, yes u8, amount f64, peer id (length u8, 0 to 32, bytes), then a PEERS body (`encoding.py`)

    LOCK    child to parent   I may leave: will you lend a slot to whoever takes mine?
    LOCKED  parent to child   yes or no
    TRADE   inquiry, x to q   amount: what a slot at q is worth; peer id: x; peers: the parent that x leaves
    OFFER   parent to child   amount: the most that a move to the peer in `peers` may cost
    AGREED  child to parent   yes or no; amount: what it costs
    READY   inquiry, q to x   peer id: q; a child makes room, join now
    TAKEN   child to parent   sent by x on its new link
    GO      parent to child   move now
    AWAY    parent to child   please find another parent
    FALL    inquiry           amount: the level below which to fall
    ANSWER  answer to TRADE, READY and FALL: yes or no; amount: the level

The types continue those of `attributes.py`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum

from peer.mesh import encoding
from peer.mesh.messages import VERSION, MalformedMessage, PeerAt, PeerId, Peers

_HEAD = struct.Struct(">BBBdB")
MAX_ID_BYTES = 32
NOBODY = PeerId(b"")


class TradeType(IntEnum):
    """Append only: the numbers are the protocol."""

    LOCK = 0x24
    LOCKED = 0x25
    TRADE = 0x26
    OFFER = 0x27
    AGREED = 0x28
    READY = 0x29
    TAKEN = 0x2A
    GO = 0x2B
    AWAY = 0x2C
    FALL = 0x2D
    ANSWER = 0x2E


_TYPES = frozenset(TradeType)


@dataclass(frozen=True, slots=True)
class TradeMessage:
    kind: TradeType
    yes: bool = False
    amount: float = 0.0
    peer_id: PeerId = NOBODY
    peers: tuple[PeerAt, ...] = ()


def is_trade_message(body: bytes) -> bool:
    return len(body) >= _HEAD.size and body[0] == VERSION and body[1] in _TYPES


def encode(message: TradeMessage) -> bytes:
    head = _HEAD.pack(VERSION, message.kind, message.yes, message.amount, len(message.peer_id))
    return head + message.peer_id + encoding.encode_answer(Peers(message.peers))


def decode_untrusted(body: bytes) -> TradeMessage:
    """Raises `MalformedMessage` and nothing else."""
    if not is_trade_message(body):
        raise MalformedMessage(f"{len(body)} bytes are not about an exchange of slots")
    _, kind, yes, amount, size = _HEAD.unpack_from(body)
    if not math.isfinite(amount) or size > MAX_ID_BYTES:
        raise MalformedMessage(f"an amount of {amount} or a peer id of {size} bytes makes no sense")
    end = _HEAD.size + size
    found = encoding.decode_answer_untrusted(body[end:])
    if not isinstance(found, Peers) or len(found.peers) > 1:
        raise MalformedMessage("an exchange of slots names one peer at most")
    return TradeMessage(TradeType(kind), bool(yes), amount, PeerId(body[_HEAD.size : end]), found.peers)
