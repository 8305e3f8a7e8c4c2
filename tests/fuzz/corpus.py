"""What fuzzing starts from: one valid input of every kind, and all inputs that once reached new code."""

from __future__ import annotations

import random
from pathlib import Path

from dcp import query_parts, wire
from dcp.carriers.frames import frame
from dcp.compression import Compressor
from dcp.group_messages import TRAILER_BYTES, Group, Heard, encode_group, encode_heard
from dcp.handshake import encode_opening
from dht import Identity, PeerRecord, QuerySummary
from dht import Role as DhtRole
from dht import wire as dht_wire
from dht.record import sign_record
from peer.feeds.options import FRAMINGS
from peer.mesh import encoding
from peer.mesh import messages as m
from tests.dcp import packets
from xmlswitch import Query, QuerySet, encode_members

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
        case "frames":
            return [frame(packets.sealed(name) for name in packets.BODIES), b"\0\0", b"\0\1a\xff\xff"]
        case "groups":
            group = Group(7, 3, bytes(32), 24_000, "239.255.1.2")
            signed = packets.sealed("data") + bytes(TRAILER_BYTES)
            return [
                encode_group(group),
                encode_group(group._replace(host="ff12::1")),
                encode_heard(Heard(7, 9)),
                signed,
                *(packets.BODIES[name][3] for name in ("siblings", "lateral")),
            ]
        case "control":
            bodies = [body for *_, body in [*packets.BODIES.values(), *packets.CHILD_BODIES.values()]]
            bodies += [body for _, body in map(encode_opening, packets.OPENINGS.values())]
            return [bytes([kind]) + body for body in bodies for kind in range(15)]
        case "repair":
            repairs = [packets.BODIES[name][-1][1:] for name in ("repair", "repair of bundles")]
            chunks = [bytes([0, len(body) - 2]) + body for body in repairs]
            chunks += [bytes([1, 6]) + bytes([number]) * 8 for number in (1, 2, 5, 9)]
            return [packets.CHILD_BODIES["protect"][-1], b"".join(chunks), b"".join(reversed(chunks)), *chunks]
        case "messages":
            return [bytes([kind]) + body for kind, body in enumerate(_messages())]
        case "record":
            return [_record()[33:-64]]
        case "dht":
            return _dht()
        case "framing":
            text = b"<?xml version='1.0'?>\n<a><b>1</b></a>\n\0<a/>\0\0\0\4<c/>"
            return [bytes([kind, 3]) + text for kind in range(len(FRAMINGS))]
        case "origin":
            return [b"<a/><?skymesh-asdi 1794830400 153016120000CCZVTZ UAL1021 512 290 4928N/12003W %3F ?>"]
        case "query":
            return [Query.parse(text).encode() for text in QUERIES]
        case "query_text":
            return [*(text.encode() for text in QUERIES), b'a = "5" and b.c > 3', b"*", b'not x and y startswith "z"']
        case "members":
            queries = [Query.parse(text) for text in QUERIES]
            return [encode_members(queries), encode_members([Query.parse(f"/a = {n} and /b > -{n}") for n in range(9)])]
        case "query_parts":
            parts = QuerySet([]).difference_to(QuerySet(map(Query.parse, QUERIES)), most=200)
            part = query_parts.Part(3, query_parts.NO_BASE, 0, len(parts), bytes(8), parts[0])
            return [*parts, query_parts.encode_part(part), query_parts.encode_have(query_parts.Have(3, 1))]
        case "switch":
            return [bytes([number]) for number in range(32)]
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
