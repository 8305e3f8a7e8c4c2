"""Combined streams: two combiners that see other interleavings publish the same, and either can die."""

from __future__ import annotations

import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dcp import Config, Gap, Hub, Omitted, Packet, Started
from peer.combine import FromSource, Source, SourceRelay, open_combined, open_combiner, sub_stream
from peer.envelope import Envelope
from peer.items import QuerySwitched
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role
from peer.testing.peersim import PeerSimulation
from tests.peer.whole.simulated import complete, gaps, packet


def new_root(seed=1):
    return Hub(Config(), rng=random.Random(seed)).serve("s")


def contents(log, after):
    found, _ = log.replay(after, 1_000_000)
    return found


def test_a_sub_stream_keeps_the_owners_fingerprint_at_its_end():
    assert sub_stream("air", "asdi") == "air--asdi"
    assert sub_stream("air.abc", "asdi.def") == "air--asdi.abc"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.data())
def test_two_combiners_that_start_and_lose_differently_never_disagree(steps, data):
    """Whatever each has, it has under the source's number; whatever it lacks is a hole."""
    ans = [sum(steps[: n + 1]) for n in range(len(steps))]
    logs = []
    for _ in range(2):
        sender = new_root()
        relay = SourceRelay(sender)
        start = data.draw(st.sampled_from([0, *ans]))
        relay.take(Started(start))
        position = start
        for an in ans:
            if an <= start:
                continue
            if data.draw(st.booleans()):
                relay.take(Packet(an, b"%d" % an))
            else:
                relay.take(Gap(position, an))
            position = an
        assert sender.log.head == position
        logs.append({item[0]: item[1] for item in contents(sender.log, start) if not isinstance(item, Gap)})
    for an in logs[0].keys() & logs[1].keys():
        assert logs[0][an] == logs[1][an]
    assert set(logs[0]) | set(logs[1]) <= set(ans)


def test_what_would_break_the_order_is_refused_or_ignored():
    sender = new_root()
    relay = SourceRelay(sender)
    with pytest.raises(ValueError, match="before the start"):
        relay.take(Packet(5, b"x"))
    relay.take(Started(4))
    relay.take(Packet(5, b"x"))
    relay.take(Packet(5, b"x"))
    relay.take(Started(3))  # an input that came back after a disconnection
    assert (sender.log.head, relay.packets) == (5, 1)
    with pytest.raises(ValueError, match="does not change"):
        relay.take(QuerySwitched(5, None))


def test_a_packet_that_a_source_left_out_takes_its_place_in_the_combined_stream():
    sender = Hub(Config(), rng=random.Random(1)).serve("air.asdi")
    relay = SourceRelay(Packing(sender))
    for item in (Started(3), Packet(4, b"four"), Packet(6, b"six"), Omitted(5, b"five")):
        relay.take(item)
    assert relay.late == 1
    assert sender.log.columns()[1][-3:] == [4, 5, 6]


class Packing:
    """What a root does between `send` and its sender."""

    def __init__(self, sender):
        self.publish_hole = sender.publish_hole
        self._sender = sender

    def publish(self, payload, **options):
        return self._sender.publish(Envelope().pack(payload), **options)

    def publish_late(self, payload, *, an):
        self._sender.insert_late(an, Envelope().pack(payload), 0.0)


class CombinedSimulation:
    """Sources A and B, each a mesh of its own; combiners X and Y; the two sub-streams, each a mesh of its own."""

    def __init__(self, seed):
        self.sims = {}
        self.handed = []
        dice = random.Random(seed)
        for label in "AB":
            source, sub = PeerSimulation(dice.getrandbits(32)), PeerSimulation(dice.getrandbits(32))
            sub.truth = source.truth
            source.add_root("R0")
            source.add_root("R1")
            source.run_until(0.5)
            for combiner in "XY":
                source.add_leaf(combiner)
                sub.add_root(combiner)
            sub.run_until(0.5)
            sub.add_router("I", deliver=False)
            sub.add_leaf("C")
            self.sims[label] = (source, sub)
            self._bridge(label)
        self.run(3.0)

    def _bridge(self, label):
        source, sub = self.sims[label]
        for combiner in "XY":
            relay = SourceRelay(Packing(sub.peers[combiner].core.sender))
            check = source.peers[combiner].check

            def take(item, check_take=check.take, relay=relay, address=sub.peers[combiner].address):
                check_take(item)
                relay.take(item)
                sub.network.pump(address)

            check.take = take
        client = sub.peers["C"].check

        def hand(item, check_take=client.take):
            check_take(item)
            self.handed.append(FromSource(label, item))

        client.take = hand

    def run(self, end):
        now = max(sim.network.now for pair in self.sims.values() for sim in pair)
        while now < end:
            now = min(now + 0.02, end)
            for source, sub in self.sims.values():
                source.run_until(now)
                sub.run_until(now)

    def kill(self, combiner):
        for source, sub in self.sims.values():
            source.kill(combiner)
            sub.kill(combiner)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_combiner_dies_and_the_client_has_each_source_in_its_order(seed):
    combined = CombinedSimulation(seed)
    for label, rate in (("A", 60), ("B", 17)):  # the sources know nothing of each other
        source, _ = combined.sims[label]
        source.feed(rate=rate, until=7.0, make=packet)
    combined.run(4.5)
    combined.kill("X")
    combined.run(10.0)
    for label, (source, sub) in combined.sims.items():
        assert complete(sub) == {}, f"seed {seed}: {label}"
        assert gaps(sub) == {}, f"seed {seed}: {label}"
        numbers = [
            item.an for source_label, item in combined.handed if source_label == label and isinstance(item, Packet)
        ]
        assert numbers == list(range(1, source.truth.last + 1)), f"seed {seed}: {label}"


@pytest.mark.net
@pytest.mark.xdist_group("processes")
async def test_a_combiner_and_its_client_in_the_real_shell(tmp_path):
    from dht import Identity

    key = tmp_path / "owner.key"
    Identity.generate().save(key)

    def options(**more):
        return PeerOptions(**{"stream": "unused", "parents": 1, "beacon": False, "owner": key, **more})

    with trio.fail_after(100):
        async with (
            open_peer(options(stream="a", role=Role.ROOT)) as a,
            open_peer(options(stream="b", role=Role.ROOT, bootstrap=[a.address])) as b,
        ):
            for root in (a, b):
                root.core.sender.publish_hole(0)
            near = options(bootstrap=[a.address])
            sources = [Source(stream="a"), Source(stream="b", query="/p/c=1")]
            async with open_combiner("both", sources, near) as first:
                for peer in first.inputs.values():
                    await peer.wait_parents(1)
                async with open_combined("both", None, near) as stream:
                    for _ in range(2):
                        assert isinstance((await stream.receive()).item, Started)
                    for number in range(1, 11):
                        await a.send(packet(number))
                        await b.send(packet(number))
                    handed = [await stream.receive() for _ in range(12)]
    assert [item.an for label, item in handed if label == "a"] == list(range(1, 11))
    assert [item.an for label, item in handed if label == "b"] == [1, 6]
