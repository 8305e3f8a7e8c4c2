"""Byte streams: the same machines, ANs count bytes, and senders may cut at different places."""

from __future__ import annotations

import random

import pytest

from dcp import events, wire
from dcp.config import Config
from dcp.handshake import Start
from dcp.testing import Conditions
from tests.dcp.world import Wire, World


def received(world: World, name: str) -> bytes:
    return b"".join(payload for _, payload in world.packets(name))


def feed(world: World, roots: list[str], data: bytes, seed: int, *, seconds: float, largest: int = 900) -> None:
    """Give every root the same bytes over so many seconds, each in chunks of its own."""
    rng = random.Random(seed)
    for name in roots:
        at, late = 0, rng.random() * 0.02
        while at < len(data):
            end = min(len(data), at + rng.randint(1, largest))
            world.net.at(
                world.net.now + seconds * at / len(data) + late,
                lambda name=name, chunk=data[at:end], start=at: world.publish(name, chunk, an=start + len(chunk)),
            )
            at = end


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("roots", [1, 2, 3])
def test_bytes_are_exact_whatever_the_chunks_and_losses(roots, loss):
    for seed in range(3):
        world = World(seed, conditions=Conditions(loss=loss, jitter=0.01, duplicate=0.05), stream_mode=True)
        names = [f"root{i}" for i in range(roots)]
        for name in names:
            world.root(name)
        world.client("client", names, start=Start.POSITION, position=0)
        world.run(1.0)
        data = random.Random(seed).randbytes(60_000)
        feed(world, names, data, seed, seconds=2.0)
        world.run(6.0)
        assert received(world, "client") == data, f"seed {seed}"
        assert not world.gaps("client")
        assert world.receivers["client"].position == len(data)


def test_a_nack_that_ends_inside_a_chunk_brings_its_bytes_not_an_empty_claim():
    """Found by reading: a repair up to the middle of a chunk was answered "nothing there", and bytes were skipped."""
    world = World(1, stream_mode=True)
    world.root("coarse")
    world.root("fine")
    world.client("client", ["coarse", "fine"])
    world.run(0.5)
    data = bytes(range(200))
    for name in ("coarse", "fine"):
        world.net.set_conditions(Conditions(loss=1.0), (name, 1), ("client", 1))
    world.publish("coarse", data)
    for at in range(0, 150, 50):
        world.publish("fine", data[at : at + 50])
    world.run(0.001)
    for name in ("coarse", "fine"):
        world.net.set_conditions(Conditions(), (name, 1), ("client", 1))
    world.publish("fine", data[150:])
    world.run(3.0)
    assert received(world, "client") == data


def test_a_chunk_larger_than_a_datagram_is_cut():
    """Found by reading: it was sent whole, in a datagram that no network carries."""
    world = World(2, config=Config(datagram_bytes=600), conditions=Conditions(loss=0.1), stream_mode=True)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    tap = Wire(world)
    data = random.Random(2).randbytes(200_000)
    world.publish("root", data)
    world.run(5.0)
    assert received(world, "client") == data
    sizes = [len(sent) for _, _, _, sent in tap.seen]
    assert max(sizes) <= 600
    # Only what was lost went out again: not the whole chunk for every byte that is missing.
    assert sum(sizes) < 1.5 * len(data)


def test_a_relay_passes_a_byte_stream_on():
    world = World(3, conditions=Conditions(loss=0.1), stream_mode=True)
    world.root("root")
    world.relay("relay", ["root"])
    world.run(0.5)
    world.client("client", ["relay"])
    world.run(0.5)
    data = random.Random(3).randbytes(30_000)
    feed(world, ["root"], data, 3, seconds=1.0)
    world.run(4.0)
    assert received(world, "client") == data


def test_a_late_client_starts_inside_the_stream():
    world = World(4, stream_mode=True)
    world.root("root")
    world.publish("root", b"0123456789")
    world.client("client", ["root"], start=Start.POSITION, position=4)
    world.run(1.0)
    assert received(world, "client") == b"456789"
    assert world.got["client"][0] == events.Started(4)


def test_stream_and_datagram_mode_do_not_mix():
    world = World(5)
    world.root("datagrams")
    world.stream_mode = True
    world.client("client", ["datagrams"])
    world.run(1.0)
    (refused,) = world.told("client", events.LinkRefused)
    assert refused.reason == 2
    # And a sender that changes its mind on an open link is not believed.
    world = World(6)
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    (link,) = world.senders["root"].links.values()
    world.hubs["client"].receive_datagram(link.encode(wire.STREAM, 1, 0, b"x"), ("root", 1), now=world.net.now)
    assert world.hubs["client"].statistics().dropped["mode"] == 1
    assert world.receivers["client"].position == 0


def test_chunks_must_meet():
    """Found by reading: a jump in `an` would have put bytes where they do not belong."""
    world = World(7, stream_mode=True)
    sender = world.root("root")
    sender.publish(b"abc")
    with pytest.raises(ValueError, match="contiguous=False"):
        sender.publish(b"def", an=100)
    assert sender.publish(b"def", an=100, contiguous=False) == 100
    with pytest.raises(ValueError, match="no empty packets"):
        sender.publish(b"")
    world.client("client", ["root"], start=Start.POSITION, position=0)
    world.run(1.0)
    assert world.got["client"][1:] == [
        events.Packet(3, b"abc"),
        events.Gap(3, 97),
        events.Packet(100, b"def"),
    ]
