"""One of every packet type. Their golden bytes are in test_wire.py and in docs/dcp.md."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dcp import control, group_messages, handshake, lateral, protection, query_parts, wire
from dcp.links.keying import Keying
from dht.identity import Identity

CHILD_NONCE = bytes(range(16))
PARENT_NONCE = bytes(range(16, 32))
COOKIE = bytes(range(32, 48))
CHILD_LINK = 0x0C0C0C0C
PARENT_LINK = 0x0A0A0A0A
TO_CHILD = wire.Seal(wire.derive_key(CHILD_NONCE, PARENT_NONCE, towards_child=True))
TO_PARENT = wire.Seal(wire.derive_key(CHILD_NONCE, PARENT_NONCE, towards_child=False))

TIMES = control.Times(clock=0x01020304, echo=0x05060708, hold=0x090A)
ACK = control.Acknowledgment(TIMES, epoch=3, position=0x1_0000_0005, room=1000)

GROUP = group_messages.Group(0x0E0E0E0E, 3, bytes(range(32)), 24_001, "239.255.1.2")
SIBLINGS = lateral.Siblings(0x0E0E0E0E, (lateral.Sibling("192.0.2.7", 4_600, bytes(range(16))),))

BODIES = {
    "data": (wire.ACK_REQUEST, 0x1_0000_0005, 0x1_0000_0003, b"<flight/>"),
    "stream data": (wire.STREAM, 101, 100, b"bytes"),
    "bundle": (wire.CONTROL, 12, 9, control.encode_bundle(9, [(10, b"<a/>"), (12, b"<b/>")])),
    "keep-alive": (
        wire.KEEP_ALIVE,
        0x1_0000_0007,
        0x1_0000_0005,
        control.encode_keep_alive(
            control.KeepAlive(TIMES, 3, True, 0x1_0000_0005, 0x1_0000_0007, settled=0x1_0000_0006)
        ),
    ),
    "keep-alive without settled": (
        wire.KEEP_ALIVE,
        0x1_0000_0007,
        0x1_0000_0005,
        control.encode_keep_alive(control.KeepAlive(TIMES, 3, True, 0x1_0000_0005, 0x1_0000_0007)),
    ),
    "hole": (wire.CONTROL, 0, 0, control.encode_hole(control.Hole(3, 7, 9))),
    "fragment": (wire.CONTROL, 12, 9, control.encode_fragment(4, 8, b"half")),
    "prepared": (wire.CONTROL, 0, 0, control.encode_prepared(control.Prepared(4, 11))),
    "message": (wire.CONTROL, 0, 0, control.encode_message(b"hi")),
    "index": (wire.CONTROL, 0, 0, control.encode_index(control.Index(3, 7, 0x1_0000_0009, [8, 9, 300]))),
    "repair": (
        wire.CONTROL,
        0x1_0000_0130,
        0x1_0000_0003,
        protection.encode_repair(
            0x1_0000_0003, protection.Repair(7, [(0x1_0000_0005,), (0x1_0000_0130,)], b"\x12\x34coded bytes")
        ),
    ),
    "repair of bundles": (
        wire.CONTROL,
        13,
        9,
        protection.encode_repair(9, protection.Repair(63, [(10, 12), (13,)], b"\x12\x34coded bytes")),
    ),
    "have": (wire.CONTROL, 0, 0, query_parts.encode_have(query_parts.Have(4, 1))),
    "group": (wire.CONTROL, 0, 0, group_messages.encode_group(GROUP)),
    "siblings": (wire.CONTROL, 0, 0, lateral.encode_siblings(SIBLINGS)),
    "lateral": (wire.CONTROL, 0, 0, lateral.encode_lateral(lateral.Lateral(True, (5, 6), 3, b"XOR"))),
    "close": (wire.CLOSE, 0, 0, control.encode_close(control.Reason.BEHIND, b"")),
}
CHILD_BODIES = {
    "acknowledgment": (wire.ACK, 5, 5, control.encode_acknowledgment(ACK)),
    "nack": (
        wire.NACK,
        5,
        0,
        control.encode_nack(control.Nack(ACK, 0x1_0000_0009, [(0x1_0000_0005, 0x1_0000_0007)], [(0, 4)])),
    ),
    "prepare": (wire.CONTROL, 0, 0, control.encode_prepare(control.Prepare(4, b"//flight"))),
    "index request": (wire.CONTROL, 0, 0, control.encode_index_request(control.IndexRequest(3, [(7, 9), (12, 14)]))),
    "protect": (
        wire.CONTROL,
        0,
        0,
        protection.encode_protect(protection.Protect(0x01020304, 4, 1, 4, 0.0125, 40, deadline=0.25)),
    ),
    "fetch": (wire.CONTROL, 0, 0, control.encode_fetch(control.Fetch(3, [8, 13]))),
    "part": (
        wire.CONTROL,
        0,
        0,
        query_parts.encode_part(query_parts.Part(4, 3, 0, 2, query_parts.digest_of(b"//flight"), b"//fl")),
    ),
    "heard": (wire.CONTROL, 0, 0, group_messages.encode_heard(group_messages.Heard(0x0E0E0E0E, 9))),
}
OPENINGS: dict[str, handshake.Opening] = {
    "request": handshake.OpenRequest(
        mode=0,
        link=CHILD_LINK,
        nonce=CHILD_NONCE,
        cookie=COOKIE,
        epoch=3,
        start=handshake.Start.POSITION,
        position=0x1_0000_0005,
        room=1000,
        clock=0x01020304,
        stream=b"asdi",
        query=b"//flight",
        hello=b"hello",
    ),
    "challenge": handshake.Challenge(CHILD_NONCE, COOKIE),
    "accept": handshake.Accept(CHILD_NONCE, PARENT_LINK, PARENT_NONCE, 3, 5, 9, 0x01020304, 1, b"welcome"),
    "refuse": handshake.Refuse(CHILD_NONCE, control.Reason.FULL, b"try 192.0.2.1"),
    "reset": handshake.Reset(PARENT_LINK),
    "inquire": handshake.Inquire(CHILD_NONCE, COOKIE, b"level?"),
    "answer": handshake.Answer(CHILD_NONCE, b"7"),
}

# Both ends' keys: the Ed25519 seeds are 40..5f and 60..7f, the X25519 keys 80..9f and a0..bf.
CHILD_KEYING = Keying(Identity.from_seed(bytes(range(0x40, 0x60))), "prefer", random.Random(1))
PARENT_KEYING = Keying(Identity.from_seed(bytes(range(0x60, 0x80))), "prefer", random.Random(1))
CHILD_KEY = X25519PrivateKey.from_private_bytes(bytes(range(0x80, 0xA0)))
PARENT_KEY = X25519PrivateKey.from_private_bytes(bytes(range(0xA0, 0xC0)))


def _keyed() -> tuple[handshake.OpenRequest, handshake.Accept]:
    request, accept = OPENINGS["request"], OPENINGS["accept"]
    assert isinstance(request, handshake.OpenRequest)
    assert isinstance(accept, handshake.Accept)
    request = CHILD_KEYING.keyed(request._replace(mode=handshake.MODE_ENCRYPTS), CHILD_KEY)
    accept = accept._replace(share=PARENT_KEYING.share_for(request, PARENT_KEY))
    return request, PARENT_KEYING.signed(request, accept)


KEYED_REQUEST, KEYED_ACCEPT = _keyed()
OPENINGS["challenge with ciphers"] = handshake.Challenge(CHILD_NONCE, COOKIE, 3)
OPENINGS["keyed request"] = KEYED_REQUEST
OPENINGS["keyed accept"] = KEYED_ACCEPT


@dataclass(frozen=True)
class Sample:
    name: str
    data: bytes
    seal: wire.Seal | None


def sealed(name: str) -> bytes:
    if name in BODIES:
        flags, an, prev, body = BODIES[name]
        return wire.encode_bound(TO_CHILD, 3, flags, an, prev, CHILD_LINK, body)
    flags, an, prev, body = CHILD_BODIES[name]
    return wire.encode_bound(TO_PARENT, 3, flags, an, prev, PARENT_LINK, body)


def opening(name: str) -> bytes:
    return wire.encode_open(*handshake.encode_opening(OPENINGS[name]))


def samples() -> list[Sample]:
    bound = [Sample(name, sealed(name), TO_CHILD) for name in BODIES]
    bound += [Sample(name, sealed(name), TO_PARENT) for name in CHILD_BODIES]
    plain = wire.encode_bound(None, 3, 0, 5, 3, CHILD_LINK, b"<flight/>")
    return [*bound, Sample("data unsealed", plain, None), *(Sample(n, opening(n), None) for n in OPENINGS)]
