"""A copy that the owner refuses does not count: another parent's good one wins, and without one the packet is a gap."""

from __future__ import annotations

import random
import zlib

import pytest

from dcp import events, wire
from dcp.acceptance import REFUSALS_AT_ONCE, REFUSALS_PER_SECOND
from dcp.compression import MAX_OPENED_BYTES, Compressor, EnvelopeCheck
from dcp.config import Config
from dcp.errors import EnvelopeUnknown, PayloadRefused
from dcp.handshake import Start
from dcp.testing import Conditions
from tests.dcp.world import STREAM, World

BAD = b"!"
SOUND = Compressor("zlib").pack(b"<flight/>" * 20)
BROKEN = SOUND[:-5]


class Checked(World):
    """A client that refuses what begins with `BAD`, below a good and a bad root."""

    def __init__(self, seed: int = 1, *, parents=("good", "bad"), late=("good",), config=None, **options) -> None:
        super().__init__(seed, **options)
        self.asked: list[int] = []
        for name in parents:
            self.root(name, config=config)
        for name in late:
            self.net.set_conditions(Conditions(delay=0.05), self.address(name), self.address("client"))
        hub = self.hub("client")
        receiver = hub.subscribe(STREAM, start=Start.POSITION, position=0, accepts=self.accepts)
        self.receivers["client"] = receiver
        self.net.add(self.address("client"), hub)
        for name in parents:
            self.join("client", name)
        self.run(0.5)

    def accepts(self, an: int, payload: bytes) -> bool:
        self.asked.append(an)
        return payload[:1] != BAD

    def link(self, name: str):
        statistics = self.receivers["client"].statistics(self.net.now)
        return next(link for link in statistics.links if link.address == self.address(name))

    def publish_all(self, packets: dict[str, list[bytes]]) -> None:
        """To each root its own copies, all at once: they go out as one bundle."""
        for name, payloads in packets.items():
            self.senders[name].publish_many(payloads)
            self.net.pump(self.address(name))


def test_the_good_copy_wins_although_the_bad_one_came_first():
    """Found: the position moved with the bad copy, the good one was dropped as old, and the packet became a gap."""
    world = Checked()
    for an in range(1, 21):
        world.publish("bad", BAD + b"%d" % an)
        world.publish("good", b"%d" % an)
        world.run(0.02)
    world.run(1.0)
    assert world.packets("client") == [(an, b"%d" % an) for an in range(1, 21)]
    assert world.gaps("client") == []
    assert 20 <= world.link("bad").refused < 40  # some of them twice: everybody is asked for what is missing
    assert world.link("good").refused == 0
    assert world.receivers["client"].statistics(world.net.now).refused == world.link("bad").refused
    bad = world.link("bad").link
    assert {(event.link, event.an) for event in world.told("client", events.CopyRefused)} == {
        (bad, an) for an in range(1, 21)
    }


def test_a_bundle_is_taken_without_its_bad_packets():
    world = Checked()
    good = [b"%d" % an for an in range(1, 9)]
    bad = [BAD if an in (3, 4, 8) else b"%d" % an for an in range(1, 9)]
    world.publish_all({"bad": bad, "good": good})
    world.run(1.0)
    assert world.packets("client") == list(enumerate(good, 1))
    assert world.gaps("client") == []
    assert world.link("bad").first_copies >= 2  # the good part of its bundle counted at once
    assert world.asked.count(1) == world.asked.count(2) == 1


@pytest.mark.parametrize("size", [5_000, 60_000])
def test_one_parents_bad_pieces_do_not_spoil_a_large_packet(size):
    """The pieces of both are put together at first; when that fails they are kept apart, and the good one wins."""
    world = Checked(config=Config(datagram_bytes=1_000))
    payload = random.Random(size).randbytes(size - 1)
    world.publish("bad", BAD + payload)
    world.publish("good", b"+" + payload)
    world.publish("bad", b"next")
    world.publish("good", b"next")
    world.run(4.0)
    assert world.packets("client") == [(1, b"+" + payload), (2, b"next")]
    assert world.gaps("client") == []
    assert len(world.receivers["client"]._assembler) == 0


def test_pieces_that_disagree_about_the_size_are_kept_apart():
    """Found by reading: each piece of the other size threw away what was there, for as long as both kept sending."""
    world = Checked(late=(), config=Config(datagram_bytes=600))
    world.publish("bad", BAD + bytes(30_000))
    world.publish("good", b"+" + bytes(20_000))
    world.run(4.0)
    assert world.packets("client") == [(1, b"+" + bytes(20_000))]


@pytest.mark.parametrize("parents", [("bad",), ("bad", "worse")])
@pytest.mark.parametrize("size", [1, 5_000])
def test_when_every_copy_is_bad_the_packet_is_a_gap_in_bounded_time(parents, size):
    world = Checked(parents=parents, late=())
    for name in parents:
        world.publish(name, b"first")
        world.publish(name, BAD + bytes(size))
        world.publish(name, b"third")
    world.run(1.0)
    assert world.got["client"][1:] == [events.Packet(1, b"first"), events.Gap(1, 2), events.Packet(3, b"third")]


def test_a_router_does_not_pass_bad_copies_on():
    world = World(1)
    for name in ("bad", "good"):
        world.root(name)
    hub = world.hub("router")
    receiver, sender = hub.relay(STREAM, accepts=lambda an, payload: payload[:1] != BAD)
    world.receivers["router"], world.senders["router"] = receiver, sender
    world.net.add(("router", 1), hub)
    for name in ("bad", "good"):
        world.join("router", name)
    world.net.set_conditions(Conditions(delay=0.05), ("good", 1), ("router", 1))
    world.run(0.3)
    world.client("client", ["router"])
    world.run(0.3)
    for an in range(1, 11):
        world.publish("bad", BAD)
        world.publish("good", b"%d" % an)
    world.run(2.0)
    assert world.packets("client") == [(an, b"%d" % an) for an in range(1, 11)]
    assert world.gaps("client") == []


def test_a_parent_that_sends_garbage_forever_costs_a_bounded_number_of_checks():
    world = Checked(parents=("bad",), late=())
    started = world.net.now
    for _ in range(400):
        world.publish("bad", BAD)
        world.run(0.005)
    world.run(0.1)
    seconds = world.net.now - started
    assert world.receivers["client"].position == 400
    assert len(world.asked) <= REFUSALS_AT_ONCE + REFUSALS_PER_SECOND * seconds + 1
    assert world.link("bad").refused >= 400
    # It has stopped: the first good copy that is looked at earns back what the next ones need.
    for _ in range(100):
        world.publish("bad", b"good again")
        world.run(0.005)
    world.run(0.5)
    assert len(world.packets("client")) > 80


def test_a_parent_with_now_and_then_a_bad_copy_is_never_cut_off():
    world = Checked(parents=("bad",), late=())
    for number in range(1_000):
        world.publish("bad", BAD if number % 3 == 0 else b"good")
        if number % 20 == 0:
            world.run(0.005)
    world.run(1.0)
    assert len(world.packets("client")) == 666


def test_copies_at_half_loss_and_one_bad_root():
    for seed in range(4):
        world = Checked(seed, parents=("good", "bad", "fine"), late=(), conditions=Conditions(loss=0.3, jitter=0.02))
        rng = random.Random(seed)
        sent = [b"%d" % an + bytes(rng.choice([10, 10, 3_000])) for an in range(1, 101)]
        for payload in sent:
            world.publish("good", payload)
            world.publish("fine", payload)
            world.publish("bad", BAD + payload[1:] if rng.random() < 0.3 else payload)
            world.run(0.01)
        world.run(8.0)
        assert world.packets("client") == list(enumerate(sent, 1)), f"seed {seed}"
        assert world.gaps("client") == []


def test_old_copies_are_not_looked_at():
    world = Checked(parents=("good", "fine"))
    for an in range(1, 21):
        world.publish("good", b"%d" % an)
        world.publish("fine", b"%d" % an)
        world.run(0.1)
    assert world.asked == list(range(1, 21))


def test_a_byte_stream_has_no_packets_to_accept():
    world = World(1)
    with pytest.raises(ValueError, match="byte stream"):
        world.hub("client").subscribe(STREAM, stream_mode=True, accepts=lambda an, payload: True)


# --- envelopes --------------------------------------------------------------------------------------------------------


def test_broken_envelopes_are_refused_and_those_that_can_not_be_judged_pass():
    check = EnvelopeCheck(Compressor().unpack_untrusted)
    assert check(1, SOUND)
    assert check(1, b"\0plain")
    assert not check(1, BROKEN)
    assert not check(1, b"")
    assert not check(1, b"\x01" + zlib.compress(bytes((1 << 20) + 1)))
    assert check(1, b"\x09of a later version")
    assert check(1, Compressor("zstd", dictionary=b"a dictionary that is not here" * 20).pack(b"abc" * 50))
    assert list(check.refused([(1, SOUND), (2, BROKEN), (3, b"\0plain"), (4, b"")])) == [2, 4]


def test_an_envelope_is_opened_once():
    opened = []

    def unpack(envelope):
        opened.append(envelope)
        return Compressor().unpack_untrusted(envelope)

    check = EnvelopeCheck(unpack, remember=True)
    assert not check.refused([(1, SOUND), (2, SOUND)])
    assert check.open(1, SOUND) == b"<flight/>" * 20
    assert len(opened) == 2
    other = bytes(bytearray(SOUND))
    assert check.open(2, other) == b"<flight/>" * 20  # another copy than the one that was accepted: looked at again
    assert len(opened) == 3
    assert check.open(3, SOUND) == b"<flight/>" * 20
    with pytest.raises(PayloadRefused):
        check.open(4, BROKEN)
    with pytest.raises(EnvelopeUnknown):
        check.open(5, b"\x09")


def test_what_was_opened_and_never_taken_is_bounded():
    check = EnvelopeCheck(Compressor().unpack_untrusted, remember=True)
    large = Compressor("zlib").pack(bytes(1 << 20))
    for an in range(50):
        assert check(an, large)
        assert check._bytes == sum(len(payload) for _, payload in check._opened.values()) <= MAX_OPENED_BYTES


def test_a_large_packet_of_garbage_is_not_put_together_for_nothing():
    """Pieces of an old packet are passed over: nothing is kept, and nothing is asked of the owner."""
    world = Checked(parents=("good",), late=())
    world.publish("good", b"first")
    world.run(0.2)
    (link,) = world.senders["good"].links.values()
    for _ in range(20):
        body = bytes((3,)) + (0).to_bytes(4, "big") + (8).to_bytes(4, "big") + b"half"
        world.hubs["client"].receive_datagram(link.encode(wire.CONTROL, 1, 0, body), ("good", 1), now=world.net.now)
    assert len(world.receivers["client"]._assembler) == 0
    assert world.asked == [1]
