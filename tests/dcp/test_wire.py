"""The bytes of every packet, and that no bytes whatever do more than count."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import control, handshake, protection, query_parts, wire
from dcp.config import Config
from dcp.errors import MalformedDatagram
from tests.dcp import packets
from tests.dcp.world import World

GOLDEN = {
    "data": "1380567c00000005000000030c0c0c0cab9e7207da853c666c696768742f3e",
    "stream data": "13021dcc00000065000000640c0c0c0c45f2574660ce6279746573",
    "bundle": "1301e08b0000000c000000090c0c0c0c08eefbd532c4010000000100043c612f3e0000000200043c622f3e",
    "keep-alive": "13104b1400000007000000050c0c0c0c1efcf44c789d0102030405060708090a000000030b0000000100000005000000"
    "01000000070000000100000006",
    "keep-alive without settled": "13107c4100000007000000050c0c0c0c56de5f517a9b0102030405060708090a"
    "000000030300000001000000050000000100000007",
    "index": "13016d6200000000000000000c0c0c0c233721a94fa40800000003000000000000000700000001000000090101a302",
    "index request": "1301c2ab00000000000000000a0a0a0ad9d95a9cd1ec0700000003000000000000000700000002000000000000000c00"
    "000002",
    "fetch": "130131db00000000000000000a0a0a0a3870330af0b509000000030000000000000008000000000000000d",
    "repair": "1301ce8000000130000000030c0c0c0c4c24b7c8f2290a01070202ff0000012b1234636f646564206279746573",
    "repair of bundles": "1301a2b00000000d000000090c0c0c0c85b2f572fb010a023f0202010201011234636f646564206279746573",
    "protect": "1301780100000000000000000a0a0a0a4d273c250dde0b01020304040104007d2800fa",
    "group": "1301f16400000000000000000c0c0c0c5e80a65a818c0c0e0e0e0e00000003000102030405060708090a0b0c0d0e0f10"
    "1112131415161718191a1b1c1d1e1f5dc1efff0102",
    "siblings": "130106ff00000000000000000c0c0c0c56b98fb6486e0e0e0e0e0e0104c000020711f8000102030405060708090a0b0c"
    "0d0e0f",
    "part": "1301ef8600000000000000000a0a0a0aec67a4e6a92b1000000004000000030000000277c3608aa5813afd2f2f666c",
    "have": "1301d09d00000000000000000c0c0c0c9b0122bcf32d11000000040001",
    "lateral": "1301a1f000000000000000000c0c0c0c63c11c5886340f010200000005000000060003584f52",
    "heard": "130189bf00000000000000000a0a0a0a3a3fc68d57150d0e0e0e0e0000000000000009",
    "hole": "1301ac6e00000000000000000c0c0c0c4ce6c2d9ca2b020000000300000000000000070000000000000009",
    "fragment": "1301afb80000000c000000090c0c0c0c76e5718033c403000000040000000868616c66",
    "prepared": "1301f0bd00000000000000000c0c0c0cec54e773ae290500000004000000000000000b",
    "message": "1301fa6400000000000000000c0c0c0c86fa5d408425066869",
    "close": "1304914100000000000000000c0c0c0c913ab8b3e4bf05",
    "acknowledgment": "1340004600000005000000050a0a0a0a45f1e6bfa52d0102030405060708090a"
    "000000030000000100000005000003e8",
    "nack": "13206f8900000005000000000a0a0a0af0d1d1f54b060102030405060708090a"
    "000000030000000100000005000003e8000000010000000901010000000100000005000000020000000000000004",
    "prepare": "1301defd00000000000000000a0a0a0a625eb4dc07b204000000042f2f666c69676874",
    "data unsealed": "1300000000000005000000030c0c0c0c0000000000003c666c696768742f3e",
    "request": "10086624000000000000000001000c0c0c0c000102030405060708090a0b0c0d0e0f"
    "202122232425262728292a2b2c2d2e2f00000003020000000100000005000003e801020304040008000"
    "5617364692f2f666c6967687468656c6c6f",
    "challenge": "10089e66000000000000000002000102030405060708090a0b0c0d0e0f202122232425262728292a2b2c2d2e2f",
    "accept": "10085a31000000000000000003000102030405060708090a0b0c0d0e0f0a0a0a0a"
    "101112131415161718191a1b1c1d1e1f0000000300000000000000050000000000000009010203040177656c636f6d65",
    "refuse": "10080357000000000000000004000102030405060708090a0b0c0d0e0f03747279203139322e302e322e31",
    "reset": "100890550000000000000000050a0a0a0a",
    "inquire": "10089f49000000000000000006000102030405060708090a0b0c0d0e0f202122232425262728292a2b2c2d2e2f6c6576656c3f",
    "answer": "1008626f000000000000000007000102030405060708090a0b0c0d0e0f37",
    "challenge with ciphers": (
        "1008908b000000000000000002000102030405060708090a0b0c0d0e0f202122232425262728292a2b2c2d2e2f03"
    ),
    "keyed request": (
        "1008e72300000000000000000803493e82fc74464a59268817623d2053c5eb8e2cc4a988b4fee179ec6b010d531d2543"
        "b92ff1095511476adc8369db6ddc933665a11978dda1404ee1066ca9559d40d707937993b1e0325cedcaf83d405befbf"
        "279dbb0d019abe2fefc8b36bdc79995193d7761ef74605484905905d0ac78d67dff4a3ab0b0cd03b4389ab754909080c"
        "0c0c0c000102030405060708090a0b0c0d0e0f202122232425262728292a2b2c2d2e2f00000003020000000100000005"
        "000003e8010203040400080007617364692f2f666c6967687468656c6c6f0000"
    ),
    "keyed accept": (
        "1008dc8e00000000000000000901605a725d2a4adfeeb1a29e17edd621c1b7593ee8cdbc44ac6c4ab6e2f805d23c1745"
        "53b456dddfc6908ecab1c101fe6ab21e2baa0617795b7d43a63482993fd54898b70b7b5c0907e3b366d264402a9ce135"
        "825c06b48796a87d39f6a1335cd0fa4b31e7baedd87b1a060947e755fe2f3378cc2f852f520cfa67b9bda7e4a00b0001"
        "02030405060708090a0b0c0d0e0f0a0a0a0a101112131415161718191a1b1c1d1e1f0000000300000000000000050000"
        "000000000009010203040177656c636f6d650000"
    ),
}
SAMPLES = packets.samples()
u32 = st.integers(0, 0xFFFFFFFF)


def decode_all(data: bytes) -> None:
    """Every decoder that these bytes could reach, in whichever order the flags say."""
    flags, _ = wire.decode_header_untrusted(data)
    if flags & wire.OPEN:
        handshake.decode_opening_untrusted(*wire.decode_open_untrusted(data))
        return
    body = data[wire.BODY_AT :]
    for decode in (
        control.decode_nack_untrusted,
        control.decode_acknowledgment_untrusted,
        control.decode_keep_alive_untrusted,
        control.decode_close_untrusted,
        control.decode_control_untrusted,
        lambda body: control.decode_bundle_untrusted(body, 1, 9),
        lambda body: protection.decode_repair_untrusted(body, 0, 9, 13),
        protection.decode_protect_untrusted,
        query_parts.decode_part_untrusted,
        query_parts.decode_have_untrusted,
    ):
        try:
            decode(body)
        except MalformedDatagram:
            continue


def survives(data: bytes) -> bool:
    """Decodes to a packet (True) or to the one decode error (False); anything else is a failure of the test."""
    try:
        decode_all(data)
    except MalformedDatagram:
        return False
    return True


# --- golden bytes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_golden_bytes(sample):
    assert sample.data.hex() == GOLDEN[sample.name]


def test_the_specification_shows_the_same_bytes():
    text = (Path(__file__).resolve().parents[2] / "docs" / "dcp.md").read_text()
    shown = "".join(text.split())
    assert [name for name, golden in GOLDEN.items() if golden not in shown] == []


def test_every_packet_type_has_golden_bytes():
    kinds = {
        bytes.fromhex(golden)[wire.HEADER.size] for golden in GOLDEN.values() if bytes.fromhex(golden)[1] & wire.OPEN
    }
    assert kinds == {int(kind) for kind in handshake.OpenType}
    controls = {data[wire.BODY_AT] for golden in GOLDEN.values() if (data := bytes.fromhex(golden))[1] & wire.CONTROL}
    assert controls == {int(kind) for kind in control.ControlType}


# --- header and seal --------------------------------------------------------------------------------------------------


@given(st.integers(0, 15), st.integers(0, 255), u32, u32, u32, st.binary(max_size=200), st.booleans())
def test_bound_round_trip(epoch, flags, an, prev, link, body, with_seal):
    seal = packets.TO_CHILD if with_seal else None
    data = wire.encode_bound(seal, epoch, flags & ~wire.OPEN, an, prev, link, body)
    assert wire.decode_header_untrusted(data) == (flags & ~wire.OPEN, epoch)
    assert wire.HEADER.unpack_from(data)[3:] == (an, prev)
    assert wire.LINK_ID.unpack_from(data, 12) == (link,)
    assert data[wire.BODY_AT :] == body
    assert wire.seal_is_valid(seal, data)


@given(st.integers(0, 255), st.binary(max_size=200))
def test_open_round_trip(kind, body):
    assert wire.decode_open_untrusted(wire.encode_open(kind, body)) == (kind, body)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.seal], ids=lambda s: s.name)
def test_every_single_bit_is_under_the_seal(sample):
    for at in range(len(sample.data)):
        for bit in range(8):
            changed = bytearray(sample.data)
            changed[at] ^= 1 << bit
            assert not wire.seal_is_valid(sample.seal, bytes(changed))


def test_a_seal_is_good_for_one_direction_of_one_session():
    data = packets.sealed("data")
    assert not wire.seal_is_valid(packets.TO_PARENT, data)
    assert not wire.seal_is_valid(None, data)
    other = wire.Seal(wire.derive_key(packets.CHILD_NONCE, bytes(16), towards_child=True))
    assert not wire.seal_is_valid(other, data)


@pytest.mark.parametrize("name", packets.OPENINGS)
def test_an_opening_with_a_wrong_checksum_is_refused(name):
    data = packets.opening(name)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x40
        with pytest.raises(MalformedDatagram):
            wire.decode_open_untrusted(bytes(changed))


# --- hostile bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_every_prefix_decodes_or_is_malformed(sample):
    for end in range(len(sample.data) + 1):
        survives(sample.data[:end])


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_mutations_decode_or_are_malformed(sample):
    rng = random.Random(sample.name)
    for _ in range(3_000):
        survives(mutate(sample.data, rng))


@pytest.mark.parametrize("name", packets.OPENINGS)
def test_mutations_with_a_right_checksum_decode_or_are_malformed(name):
    """The checksum of an opening is no secret: a forger gets it right, so the bodies must stand alone."""
    rng = random.Random(name)
    kind, body = wire.decode_open_untrusted(packets.opening(name))
    for _ in range(3_000):
        survives(wire.encode_open(rng.choice([kind, rng.randrange(256)]), mutate(body, rng)))


@given(st.binary(max_size=100))
def test_any_bytes_decode_or_are_malformed(data):
    survives(data)
    survives(b"\x10" + data)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, insert, repeat, overwrite with extremes: one to four times."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:]
            case 2:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                out += out[at:]
            case 4:
                width = rng.choice([1, 2, 4, 8])
                out[at : at + width] = rng.choice([b"\0", b"\xff"]) * width
            case _:
                del out[at : at + rng.randint(1, 4)]
    return bytes(out[:4096])


# --- a hub with live links --------------------------------------------------------------------------------------------


def live_world() -> World:
    """A root, a relay and a client, with data under way on every link."""
    world = World(5)
    world.root("root")
    world.relay("relay", ["root"])
    world.client("client", ["relay", "root"])
    for i in range(5):
        world.run(0.1)
        world.publish("root", b"packet %d" % i)
    return world.run(0.5)


def snapshot(world: World) -> object:
    """Everything that a forged datagram must not change."""
    state = []
    for hub in world.hubs.values():
        for receiver in hub.receivers.values():
            state.append((receiver.position, receiver.epoch, sorted(receiver.links)))
            state += [
                (k.up, k.highest, k.sent_until, k.hole, k.confirmed_epoch, k.prepared_epoch)
                for k in receiver.parents.values()
            ]
            state += [(k.heard_at, k.reset_at, k.rtt.smoothed) for k in receiver.links.values()]
        for sender in hub.senders.values():
            state.append((sender.log.head, sender.log.low, sorted(sender.children)))
            state += [
                (k.acked, k.floor, k.cursor.position, k.epoch, k.interest, k.pending) for k in sender.children.values()
            ]
            state += [(k.heard_at, k.window.room, k.reset_at, k.rtt.smoothed) for k in sender.links.values()]
    return state


def test_a_hub_with_live_links_counts_bad_bytes_and_goes_on():
    world = live_world()
    assert [an for an, _ in world.packets("client")] == [1, 2, 3, 4, 5]
    rng = random.Random(7)
    captured = [data for sample in SAMPLES for data in (sample.data,)]
    ids = [link for hub in world.hubs.values() for link in (*hub._uplinks, *hub._downlinks)]
    before = snapshot(world)
    for name, hub in world.hubs.items():
        for _ in range(4_000):
            data = bytearray(mutate(rng.choice(captured), rng))
            if len(data) >= 16 and rng.random() < 0.7:
                data[0] = 0x10 | (data[0] & 15)
                data[1] &= ~wire.OPEN & 0xFF
                data[12:16] = wire.LINK_ID.pack(rng.choice(ids))
            source = rng.choice([("root", 1), ("relay", 1), ("client", 1), ("mallory", 9)])
            hub.receive_datagram(bytes(data), source, now=world.net.now)
            while hub.next_event() is not None:
                pass
        assert sum(hub.statistics().dropped.values()) > 3_000, name
    assert snapshot(world) == before
    world.publish("root", b"after the storm")
    world.run(1.0)
    assert world.packets("client")[-1] == (6, b"after the storm")
    assert not world.gaps("client")


def test_truncations_of_what_is_really_under_way_change_nothing():
    """Every prefix of every sealed datagram that two peers exchange, given to both of them."""
    world = live_world()
    hub, root = world.hubs["client"], world.hubs["root"]
    uplink = next(link for link in world.receivers["client"].links.values() if link.address == ("root", 1))
    downlink = next(link for link in world.senders["root"].links.values() if link.address == ("client", 1))
    before = snapshot(world)
    for name in packets.BODIES:
        flags, an, prev, body = packets.BODIES[name]
        data = downlink.encode(flags, an, prev, body)
        for end in range(len(data)):
            hub.receive_datagram(data[:end], ("root", 1), now=world.net.now)
    for name in packets.CHILD_BODIES:
        flags, an, prev, body = packets.CHILD_BODIES[name]
        data = uplink.encode(flags, an, prev, body)
        for end in range(len(data)):
            root.receive_datagram(data[:end], ("client", 1), now=world.net.now)
    assert snapshot(world) == before


@pytest.mark.parametrize("towards", ["client", "root"])
def test_a_hostile_peer_with_a_right_seal_breaks_nothing_but_its_own_link(towards):
    """Sealed rubbish from the other end of a link: no exception, whatever it says, then and later."""
    for seed in range(40):
        is_protected = seed % 2 == 1
        world = World(seed, config=Config(fixed_protection=(2, 1, 4)) if is_protected else None)
        world.root("root")
        world.root("honest")
        world.client("client", ["root", "honest"])
        world.run(0.3)
        rng = random.Random(seed)
        bodies = packets.BODIES if towards == "client" else packets.CHILD_BODIES
        if towards == "client":
            links = list(world.senders["root"].links.values())
        else:
            links = [k for k in world.receivers["client"].links.values() if k.address == ("root", 1)]
        (link,) = links
        for _ in range(60):
            flags, an, prev, body = bodies[rng.choice(list(bodies))]
            an, prev = (rng.choice([0, 1, 0xFFFFFFFF, 1 << 31, rng.getrandbits(32)]) for _ in range(2))
            epoch, flags = rng.choice([0, 0, 0, 1, 15]), rng.choice([flags, flags | wire.ACK_REQUEST])
            data = wire.encode_bound(link.seal_out, epoch, flags, an, prev, link.remote_id, mutate(body, rng))
            source = ("root", 1) if towards == "client" else ("client", 1)
            world.hubs[towards].receive_datagram(data, source, now=world.net.now)
            world.net.pump((towards, 1))
            if rng.random() < 0.1:
                world.run(0.02)
        world.run(1.0)


def test_a_keep_alive_to_the_end_of_numbers_does_not_overflow_later():
    """Found by reading: a position near 2**64 was taken, and the next claim beyond it broke the NACK's encoding."""
    world = World(3)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.3)
    (link,) = world.senders["root"].links.values()
    top = (1 << 64) - 1
    body = control.encode_keep_alive(control.KeepAlive(link.times(world.net.now), 0, True, 0, top))
    for data in (
        link.encode(wire.KEEP_ALIVE, top, 0, body),
        link.encode(wire.ACK_REQUEST, 5, top, b"x"),
        link.encode(wire.ACK_REQUEST, 500, 400, b"x"),
    ):
        world.hubs["client"].receive_datagram(data, ("root", 1), now=world.net.now)
        world.run(0.5)
    assert world.hubs["client"].statistics().dropped["position"] == 1
