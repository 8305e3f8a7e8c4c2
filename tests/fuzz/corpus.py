"""What fuzzing starts from: one valid input of every kind, and all inputs that once reached new code."""

from __future__ import annotations

import random
from pathlib import Path

from dcp import wire
from dcp.compression import Compressor
from dcp.handshake import encode_opening
from dht import Identity, PeerRecord, QuerySummary
from dht import Role as DhtRole
from dht import wire as dht_wire
from dht.record import sign_record
from peer.feeds.options import FRAMINGS
from peer.mesh import encoding
from peer.mesh import messages as m
from tests.dcp import packets
from xmlswitch import Query

FOLDER = Path(__file__).parent / "inputs"
QUERIES = [
    "/flight/flightleg/altitude > 300",
    "//id[starts-with(., 'AAL')] or /flight[flightleg/lon < -71.5 and not(@cancelled)]",
    "count(//flightleg[position() = last()]/altitude) + 1 >= 2 * 1",
    "/a//b[2]/following-sibling::*[@x = 'y']/ancestor::c | //text()[contains(normalize-space(.), ' ')]",
    "substring-before(translate(string(/a), 'abc', 'ABC'), concat('-', //b)) != ''",
]
_PEER = m.PeerAt(m.PeerId(b"peer"), ("192.0.2.7", 4_600), 512)
_FEED = m.RootProof(7, 8, 9)


def inputs_of(target: str) -> list[bytes]:
    """Seeds, then what was kept; sorted, so that a run can be repeated."""
    kept = FOLDER / f"{target}.hex"
    lines = kept.read_text().split() if kept.exists() else []
    return sorted({*seeds(target), *(bytes.fromhex(line) for line in lines)}, key=lambda data: (len(data), data))


def keep(target: str, found: list[bytes]) -> None:
    FOLDER.mkdir(exist_ok=True)
    new = sorted({*found} - {*seeds(target)} - {b""}, key=lambda data: (len(data), data))
    (FOLDER / f"{target}.hex").write_text("".join(f"{data.hex()}\n" for data in new))


def seeds(target: str) -> list[bytes]:
    match target:
        case "wire":
            openings = [encode_opening(message) for message in packets.OPENINGS.values()]
            return [
                *(packets.sealed(name) for name in packets.BODIES),
                *(wire.encode_open(*opening) for opening in openings),
                *(bytes([kind]) + body for kind, body in openings),
            ]
        case "control":
            bodies = [body for *_, body in [*packets.BODIES.values(), *packets.CHILD_BODIES.values()]]
            bodies += [body for _, body in map(encode_opening, packets.OPENINGS.values())]
            return [bytes([kind]) + body for body in bodies for kind in range(15)]
        case "messages":
            return [bytes([kind]) + body for kind, body in enumerate(_messages())]
        case "record":
            return [_record()[33:-64]]
        case "dht":
            return _dht()
        case "framing":
            text = b"<?xml version='1.0'?>\n<a><b>1</b></a>\n\0<a/>\0\0\0\4<c/>"
            return [bytes([kind, 3]) + text for kind in range(len(FRAMINGS))]
        case "query":
            return [Query.parse(text).encode() for text in QUERIES]
        case "query_text":
            return [*(text.encode() for text in QUERIES), b'a = "5" and b.c > 3', b"*", b'not x and y startswith "z"']
        case "envelope":
            return [b"\0<a/>", Compressor("zlib").pack(b"<a/>" * 100), Compressor("zstd").pack(b"<a/>" * 100)]
    raise KeyError(target)


def _messages() -> list[bytes]:
    return [
        encoding.encode_join(m.Join(m.PeerId(b"me"), 1, 2, 3, 2, 1, 1, is_repair=True, has_children=False)),
        encoding.encode_accept(m.Accept(0, 0, 255, _FEED)),
        encoding.encode_refuse(m.Refuse((_PEER,))),
        encoding.encode_link_message(m.Report(5, 2, 2, False, 2, 0, 1, 1)),
        encoding.encode_request(m.ChildrenRequest(b"query")),
        encoding.encode_answer(m.Peers((_PEER, _PEER))),
    ]


def _record() -> bytes:
    identity = Identity.generate()
    record = PeerRecord(
        stream="asdi",
        peer_id=identity.peer_id,
        addresses=(("192.0.2.7", 4_600), ("2001:db8::7", 4_600)),
        role=DhtRole.ROUTER,
        level=512,
        capacity=6,
        query=QuerySummary.of(QUERIES[0]),
        version=3,
        expires_at=2_000_000_000,
    )
    return sign_record(record, identity).wire


def _dht() -> list[bytes]:
    rng = random.Random(1)
    identifier, key = rng.randbytes(20), rng.randbytes(20)
    node, target = dht_wire.NodeId(rng.randbytes(20)), dht_wire.Key(key)
    return [
        dht_wire.encode_request(identifier, request)
        for request in (
            dht_wire.Ping(node),
            dht_wire.FindNode(node, target),
            dht_wire.FindValue(node, target, b""),
            dht_wire.Store(node, target, b"token", False, (b"wire",)),
        )
    ]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four changes, as a fuzzer makes them."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << rng.randrange(8)
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                del changed[at : at + rng.randint(1, 8)]
            case _:
                changed[at:at] = changed[at : at + 16]
    return bytes(changed)
