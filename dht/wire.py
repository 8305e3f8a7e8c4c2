"""The datagrams: rpcudp's framing, our bodies, and a decoder that believes nothing.

    0x00 | message id 20 | msgpack [name, [argument, ...]]      a request
    0x01 | message id 20 | msgpack [node id, ...]               its answer

    ping        [node id]                            -> [node id, your address]
    find_node   [node id, key, padding]              -> [node id, your address, token, [contact, ...]]
    find_value  [node id, key, start, padding]       -> the same and [total, full, [record, ...]]
    store       [node id, key, token, handed, [record, ...]] -> [node id, codes, newest version]

An empty node id marks a caller that only reads: nobody enters it in a table. A contact is a node id (20) and an address
(6 or 18). Padding lets an answer be large without making us an amplifier: see `NodeConfig.max_reply_ratio`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from dht.addresses import IPV4_CONTACT_BYTES, IPV6_CONTACT_BYTES, decode_address_untrusted, encode_address
from dht.errors import DhtError
from dht.ids import ID_BYTES, NodeId
from dht.keys import KEY_BYTES, Key
from dht.record import MAX_RECORD_BYTES, Address

REQUEST, ANSWER = 0x00, 0x01
MESSAGE_ID_BYTES = 20
HEADER_BYTES = 1 + MESSAGE_ID_BYTES
TOKEN_BYTES = 8
MAX_RECORDS_PER_MESSAGE = 16
MAX_CONTACTS_PER_MESSAGE = 32


class MalformedMessage(DhtError):
    """Bytes that are not one of ours; `args[0]` names the counter."""


class Contact(NamedTuple):
    id: NodeId
    address: Address


@dataclass(frozen=True, slots=True)
class Ping:
    node_id: NodeId | None


@dataclass(frozen=True, slots=True)
class FindNode:
    node_id: NodeId | None
    key: Key


@dataclass(frozen=True, slots=True)
class FindValue:
    node_id: NodeId | None
    key: Key
    start: bytes


@dataclass(frozen=True, slots=True)
class Store:
    node_id: NodeId | None
    key: Key
    token: bytes
    handed: bool
    wires: tuple[bytes, ...]


Request = Ping | FindNode | FindValue | Store


@dataclass(frozen=True, slots=True)
class Found:
    """An answer to any of the four; the fields that the request did not ask for are empty."""

    node_id: NodeId
    observed: Address | None = None
    token: bytes = b""
    contacts: tuple[Contact, ...] = ()
    total: int = 0
    is_full: bool = False
    wires: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    node_id: NodeId
    codes: bytes  # for each record 0, or its Refusal
    newest_version: int


Answer = Found | Stored


def encode_request(message_id: bytes, request: Request, *, padded_to: int = 0) -> bytes:
    """Find requests are padded with zeros up to `padded_to` bytes."""
    sender = request.node_id or b""
    match request:
        case Ping():
            name, arguments = "ping", [sender]
        case FindNode(key=key):
            name, arguments = "find_node", [sender, key]
        case FindValue(key=key, start=start):
            name, arguments = "find_value", [sender, key, start]
        case Store(key=key, token=token, handed=handed, wires=wires):
            return _frame(REQUEST, message_id, ["store", [sender, key, token, handed, list(wires)]])
    if not padded_to or isinstance(request, Ping):
        return _frame(REQUEST, message_id, [name, arguments])
    bare = len(_frame(REQUEST, message_id, [name, [*arguments, b""]]))
    return _frame(REQUEST, message_id, [name, [*arguments, bytes(max(0, padded_to - bare - 1))]])


def encode_answer(message_id: bytes, answer: Answer, *, kind: type[Request]) -> bytes:
    if isinstance(answer, Stored):
        return _frame(ANSWER, message_id, [answer.node_id, answer.codes, answer.newest_version])
    body: list[Any] = [answer.node_id, encode_address(answer.observed) if answer.observed else b""]
    if kind is not Ping:
        body += [answer.token, [encode_contact(contact) for contact in answer.contacts]]
    if kind is FindValue:
        body += [answer.total, answer.is_full, list(answer.wires)]
    return _frame(ANSWER, message_id, body)


def encode_contact(contact: Contact) -> bytes:
    return contact.id + encode_address(contact.address)


def decode_request_untrusted(datagram: bytes) -> tuple[bytes, Request]:
    """Raises MalformedMessage only."""
    body = _unpack(datagram)
    match body:
        case [str(name), [bytes(sender), *rest]] if len(sender) in (0, ID_BYTES):
            node_id = NodeId(sender) if sender else None
        case _:
            raise MalformedMessage("bad_request")
    message_id = datagram[1:HEADER_BYTES]
    match name, rest:
        case "ping", []:
            return message_id, Ping(node_id)
        case "find_node", [bytes(key), *padding] if len(key) == KEY_BYTES and _is_padding(padding):
            return message_id, FindNode(node_id, Key(key))
        case "find_value", [bytes(key), bytes(start), *padding] if (
            len(key) == KEY_BYTES and len(start) == ID_BYTES and _is_padding(padding)
        ):
            return message_id, FindValue(node_id, Key(key), start)
        case "store", [bytes(key), bytes(token), bool(handed), [*wires]] if (
            len(key) == KEY_BYTES and len(token) == TOKEN_BYTES and _are_records(wires)
        ):
            return message_id, Store(node_id, Key(key), token, handed, tuple(wires))
    raise MalformedMessage("bad_request")


def decode_answer_untrusted(datagram: bytes, *, kind: type[Request]) -> Answer:
    """Raises MalformedMessage only. `kind` is what was asked: an answer does not say it again."""
    body = _unpack(datagram)
    try:
        match body:
            case [bytes(sender), bytes(codes), int(newest)] if (
                kind is Store and len(sender) == ID_BYTES and 0 <= newest < 1 << 64
            ):
                return Stored(NodeId(sender), codes, newest)
            case [bytes(sender), bytes(observed), *rest] if len(sender) == ID_BYTES and kind is not Store:
                address = decode_address_untrusted(observed) if observed else None
                return _found(NodeId(sender), address, rest, kind)
    except ValueError as exc:
        raise MalformedMessage("bad_answer") from exc
    raise MalformedMessage("bad_answer")


def _found(sender: NodeId, observed: Address | None, rest: list[Any], kind: type[Request]) -> Found:
    match rest:
        case [] if kind is Ping:
            return Found(sender, observed)
        case [bytes(token), [*contacts]] if kind is FindNode and len(token) == TOKEN_BYTES:
            return Found(sender, observed, token, _contacts(contacts))
        case [bytes(token), [*contacts], int(total), bool(full), [*wires]] if (
            kind is FindValue and len(token) == TOKEN_BYTES and total >= 0 and _are_records(wires)
        ):
            return Found(sender, observed, token, _contacts(contacts), total, full, tuple(wires))
    raise ValueError("reply to a different request")


def _contacts(items: list[Any]) -> tuple[Contact, ...]:
    """Contacts that make no sense are left out; the others may still be good."""
    contacts = []
    for item in items[:MAX_CONTACTS_PER_MESSAGE]:
        if not isinstance(item, bytes) or len(item) not in _CONTACT_SIZES:
            raise ValueError("not a contact")
        try:
            contacts.append(Contact(NodeId(item[:ID_BYTES]), decode_address_untrusted(item[ID_BYTES:])))
        except ValueError:
            continue
    return tuple(contacts)


_CONTACT_SIZES = (ID_BYTES + IPV4_CONTACT_BYTES, ID_BYTES + IPV6_CONTACT_BYTES)


def _is_padding(rest: list[Any]) -> bool:
    return not rest or (len(rest) == 1 and isinstance(rest[0], bytes))


def _are_records(wires: list[Any]) -> bool:
    return len(wires) <= MAX_RECORDS_PER_MESSAGE and all(
        isinstance(wire, bytes) and len(wire) <= MAX_RECORD_BYTES for wire in wires
    )


def _frame(kind: int, message_id: bytes, body: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(body)
    return bytes([kind]) + message_id + packed


def _unpack(datagram: bytes) -> Any:
    if len(datagram) <= HEADER_BYTES:
        raise MalformedMessage("short")
    try:
        return msgpack.unpackb(
            datagram[HEADER_BYTES:],
            max_str_len=16,
            max_bin_len=1400,
            max_array_len=MAX_CONTACTS_PER_MESSAGE,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.exceptions.UnpackException) as exc:
        raise MalformedMessage("undecodable") from exc
