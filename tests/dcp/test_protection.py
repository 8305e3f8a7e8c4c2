"""Protected links in virtual time: repairs mend what is lost, nobody gets one unasked, nothing hostile gets through."""

from __future__ import annotations

import random

import pytest

from dcp import events, protection, wire
from dcp.config import Config
from dcp.control import ControlType
from dcp.profile import PLAIN, Profile, profile_of
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from tests.dcp.world import STREAM, Wire, World

LOSSY = Conditions(delay=0.05, jitter=0.002, loss=0.15)
CLEAN = Conditions(delay=0.05)


def is_control(data: bytes, kind: ControlType) -> bool:
    return not data[1] & wire.OPEN and bool(data[1] & wire.CONTROL) and data[wire.BODY_AT] == kind


def sent(seen: Wire, kind: ControlType) -> int:
    return sum(is_control(data, kind) for _, _, _, data in seen.seen)


def flow(world: World, roots: list[str], packets: int, *, gap: float = 0.01, burst: int = 1) -> None:
    """Publish on all roots at once, then let everything settle on a clean network."""
    for number in range(packets):

        def publish(number: int = number) -> None:
            for name in roots:
                world.publish(name, b"packet %d " % number + bytes(number % 90))

        world.net.at(world.net.now + (number // burst) * gap, publish)
    world.run(packets / burst * gap)
    world.net.set_conditions(CLEAN)
    world.run(3.0)


def made(seed: int, fixed: tuple[int, int, int] | None, *, parents: int = 1, profile: Profile = PLAIN) -> World:
    world = World(seed, config=Config(fixed_protection=fixed), conditions=CLEAN)
    roots = [f"root{i}" for i in range(parents)]
    for name in roots:
        world.root(name)
    world.client("client", roots, profile=profile)
    return world.run(0.5)


def nothing_is_missing(world: World, packets: int) -> None:
    found = world.packets("client")
    assert [an for an, _ in found] == list(range(1, packets + 1))
    assert all(payload.startswith(b"packet %d " % (an - 1)) for an, payload in found)
    assert not world.gaps("client")


# --- mending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("burst", [1, 5], ids=["alone", "in bundles"])
@pytest.mark.parametrize("fixed", [(1, 1, 1), (2, 1, 4), (4, 1, 4), (8, 2, 4), (16, 1, 4)])
def test_repairs_mend_and_every_packet_is_right(fixed: tuple[int, int, int], burst: int) -> None:
    world = made(11, fixed)
    world.net.set_conditions(LOSSY)
    flow(world, ["root0"], 600, burst=burst)
    nothing_is_missing(world, 600)
    found = world.receivers["client"].statistics(world.net.now).protection
    assert found is not None
    assert found.rebuilt > 10
    assert found.unfit == 0


def test_repairs_make_nacks_rare_and_the_stream_faster() -> None:
    nacks = []
    for fixed in (None, (2, 1, 4)):
        world = made(12, fixed)
        world.net.set_conditions(LOSSY)
        flow(world, ["root0"], 1_000)
        nothing_is_missing(world, 1_000)
        nacks.append(world.receivers["client"].statistics(world.net.now).nacks)
    assert nacks[1] < nacks[0] / 4


def test_two_parents_mend_together() -> None:
    rebuilt = []
    for joint in (True, False):
        world = World(13, config=Config(fixed_protection=(8, 1, 4), joint_decoding=joint), conditions=CLEAN)
        for name in ("root0", "root1"):
            world.root(name)
        world.client("client", ["root0", "root1"])
        world.run(0.5)
        world.net.set_conditions(Conditions(delay=0.1, loss=0.2))
        flow(world, ["root0", "root1"], 800)
        nothing_is_missing(world, 800)
        found = world.receivers["client"].statistics(world.net.now).protection
        assert found is not None
        rebuilt.append(found.rebuilt)
    assert rebuilt[0] > 2 * rebuilt[1]


def test_roots_that_do_not_send_the_same_bytes_are_decoded_apart() -> None:
    world = made(14, (2, 1, 4), parents=2)
    world.net.set_conditions(LOSSY)
    for number in range(600):

        def publish(number: int = number) -> None:
            for name in ("root0", "root1"):
                world.publish(name, b"packet %d by %s" % (number, name.encode()))

        world.net.at(world.net.now + number * 0.01, publish)
    world.run(6.0)
    world.net.set_conditions(CLEAN)
    world.run(3.0)
    found = world.packets("client")
    assert [an for an, _ in found] == list(range(1, 601))
    assert {payload for _, payload in found} <= {
        b"packet %d by root%d" % (number, root) for number in range(600) for root in (0, 1)
    }
    counted = world.receivers["client"].statistics(world.net.now).protection
    assert counted is not None
    assert counted.unfit > 0
    assert counted.rebuilt > 10


def test_a_repair_shows_a_loss_and_lists_what_is_there() -> None:
    """Rule T5: with every packet lost and only repairs through, the child knows what is missing and asks for it."""
    world = made(15, (2, 1, 4))
    world.run(1.0)
    seen = Wire(world)
    (link,) = world.senders["root0"].links.values()
    lost: list[int] = []
    post = link.encode

    def encode(flags: int, an: int, prev: int, body: bytes) -> bytes:
        if not flags & wire.NOT_DATA and an not in lost:
            lost.append(an)
            return b"lost" + bytes(30)
        return post(flags, an, prev, body)

    link.encode = encode  # type: ignore[method-assign]
    for number in range(4):
        world.publish("root0", b"packet %d " % number)
    world.run(0.2)
    assert sent(seen, ControlType.REPAIR) == 2
    nacks = [when for when, _ in seen.flagged(wire.NACK, "client")]
    assert nacks
    world.run(0.5)
    nothing_is_missing(world, 4)


# --- the keep-alives that copies replace ------------------------------------------------------------------------------


def test_copies_take_the_place_of_early_keep_alives() -> None:
    counts = []
    for fixed in (None, (1, 1, 1)):
        world = made(16, fixed)
        world.net.set_conditions(Conditions(delay=0.0001))
        world.run(1.0)
        seen = Wire(world)
        for number in range(50):
            world.publish("root0", b"packet %d " % number)
            world.run(0.1)
        counts.append(len(seen.flagged(wire.KEEP_ALIVE, "root0")))
    assert counts[0] > 100
    assert counts[1] < counts[0] / 3


# --- agreement --------------------------------------------------------------------------------------------------------


def test_nobody_gets_a_message_that_was_not_agreed_on() -> None:
    """A plain child, an earlier parent (its accept says nothing), and a parent that protects nobody."""
    for config, client, profile in (
        (Config(), Config(), PLAIN),
        (Config(max_protection=0.0), Config(fixed_protection=(2, 1, 4)), PLAIN),
        (Config(max_protection=0.0), Config(), profile_of("latency")),
    ):
        world = World(17, config=config, conditions=CLEAN)
        seen = Wire(world)
        world.root("root0")
        world.client("client", ["root0"], config=client, profile=profile)
        world.run(0.5)
        world.net.set_conditions(LOSSY)
        flow(world, ["root0"], 300)
        nothing_is_missing(world, 300)
        assert sent(seen, ControlType.REPAIR) == sent(seen, ControlType.PROTECT) == 0


def test_a_stream_without_loss_gets_no_repairs() -> None:
    world = made(18, None, profile=profile_of("latency"))
    seen = Wire(world)
    world.net.set_conditions(Conditions(delay=0.0001))
    flow(world, ["root0"], 500)
    assert sent(seen, ControlType.REPAIR) == sent(seen, ControlType.PROTECT) == 0


# --- changes at run time ----------------------------------------------------------------------------------------------


def test_protection_may_change_at_any_time() -> None:
    for seed in range(4):
        rng = random.Random(seed)
        world = made(seed, (2, 1, 4), parents=2)
        receiver = world.receivers["client"]
        world.net.set_conditions(Conditions(delay=0.03, jitter=0.02, loss=0.2, duplicate=0.1))

        def change(rng: random.Random = rng, receiver=receiver) -> None:  # type: ignore[no-untyped-def]
            steering = receiver.mending.steering
            steering.choice = steering.choice._replace(
                every=rng.choice([0, 1, 2, 4, 8]), repairs=rng.choice([1, 2]), span=rng.choice([1, 4])
            )

        for step in range(60):
            world.net.at(world.net.now + 0.1 * step, change)
        flow(world, ["root0", "root1"], 600)
        nothing_is_missing(world, 600)


def test_a_change_of_the_query_under_repairs_skips_nothing() -> None:
    odd = PredicatePolicy(
        lambda query, payload: query != b"odd" or payload[-1] & 1 == 1,
        covers=lambda outer, inner: outer == b"" or outer == inner,
    )
    world = World(19, config=Config(fixed_protection=(2, 1, 4)), conditions=CLEAN)
    world.root("root", policy=odd)
    receiver = world.client("client", ["root"], query=b"odd")
    world.run(0.5)
    world.net.set_conditions(LOSSY)
    for number in range(1, 401):
        if number % 100 == 0:
            receiver.change_query(b"" if number % 200 else b"odd", now=world.net.now)
        world.publish("root", bytes((number & 0xFF,)), an=number)
        world.run(0.01)
    world.net.set_conditions(CLEAN)
    world.run(3.0)
    query, position = b"odd", 0
    for event in world.got["client"]:
        if isinstance(event, events.QuerySwitched):
            position, query = event.position, event.query
        elif isinstance(event, events.Packet):
            assert all(number & 1 == 0 and query == b"odd" for number in range(position + 1, event.an))
            position = event.an
    assert position >= 399
    assert not world.gaps("client")


def test_a_child_that_wants_the_newest_and_lags_gets_a_hole_up_to_the_head() -> None:
    config = Config(catch_up_lag=16)
    world = World(20, config=config, conditions=CLEAN)
    world.root("root0")
    world.client("client", ["root0"], profile=profile_of("newest"))
    world.run(1.5)
    (link,) = world.senders["root0"].links.values()
    assert link.wants_newest
    world.net.cut(("root0", 1), ("client", 1))
    link.window.size = 0  # nothing goes out any longer
    for number in range(100):
        world.publish("root0", b"packet %d " % number)
    world.net.heal()
    link.window.size = 1 << 20
    world.publish("root0", b"packet 100 ")
    world.run(1.0)
    assert [an for an, _ in world.packets("client")] == []
    assert world.gaps("client") == [events.Gap(0, 101)]
    world.publish("root0", b"packet 101 ")
    world.run(0.5)
    assert [an for an, _ in world.packets("client")] == [102]


# --- hostile ----------------------------------------------------------------------------------------------------------


def test_a_child_can_ask_for_anything_and_gets_what_is_capped() -> None:
    world = made(21, (2, 1, 4))
    (uplink,) = world.receivers["client"].links.values()
    wish = protection.Protect(0xFFFF, 255, 255, 255, 6.5, 255, deadline=65.0)
    body = protection.encode_protect(wish)
    world.receivers["client"].mending._look_at = None  # no wish of its own any longer
    for data in (uplink.encode(wire.CONTROL, 0, 0, body), uplink.encode(wire.CONTROL, 0, 0, body[:-1])):
        world.hubs["root0"].receive_datagram(data, ("client", 1), now=world.net.now)
    assert world.hubs["root0"].statistics().dropped["short"] == 1
    (link,) = world.senders["root0"].links.values()
    assert link.protection is not None
    assert link.protection.every == 16
    seen = Wire(world)
    flow(world, ["root0"], 400)
    repairs = [data for _, _, _, data in seen.seen if is_control(data, ControlType.REPAIR)]
    lives = [data for _, a, _, data in seen.seen if a == "root0" and not data[1] & wire.NOT_DATA]
    assert 0 < sum(map(len, repairs)) < 1.5 * sum(map(len, lives))


def test_repairs_that_nobody_asked_for_are_counted_and_change_nothing() -> None:
    world = made(22, (2, 1, 4))
    world.client("plain", ["root0"], config=Config())
    world.run(1.0)
    for name in ("plain", "client"):
        receiver = world.receivers[name]
        link = next(k for k in world.senders["root0"].links.values() if k.address == (name, 1))
        if name == "client":
            receiver.mending._decodes_until = -1.0
        before = receiver.position
        body = protection.encode_repair(0, protection.Repair(1, [(5,)], protection.symbol_of([b"forged"])))
        world.hubs[name].receive_datagram(link.encode(wire.CONTROL, 5, 0, body), ("root0", 1), now=world.net.now)
        assert receiver.position == before
        assert not world.packets(name)
    assert world.receivers["client"].mending.unasked == 1
    assert world.receivers["plain"].malformed == 1


def test_a_flood_of_repairs_is_ignored_after_the_credit() -> None:
    world = made(23, (2, 1, 4))
    world.run(1.0)
    (link,) = world.senders["root0"].links.values()
    rng = random.Random(1)
    for _ in range(500):
        ans = sorted(rng.sample(range(1, 900), 60))
        body = protection.encode_repair(
            0, protection.Repair(rng.randrange(64), [(an,) for an in ans], rng.randbytes(900))
        )
        data = link.encode(wire.CONTROL, ans[-1], 0, body)
        world.hubs["client"].receive_datagram(data, ("root0", 1), now=world.net.now)
    mending = world.receivers["client"].mending
    assert mending.unasked >= 500 - 64
    assert not world.packets("client")


def test_a_parent_whose_repairs_are_garbage_costs_nothing_but_its_repairs() -> None:
    world = made(24, (2, 1, 4), parents=2)
    liar = world.senders["root1"]
    world.run(1.0)
    (link,) = liar.links.values()
    rng = random.Random(2)
    assert link.protection is not None
    honest = link.protection._next_repair

    def garbage() -> bytes | None:
        made = honest()
        if made is None:
            return None
        _, _, _, an, prev = wire.HEADER.unpack_from(made)
        found = protection.decode_repair_untrusted(made, wire.BODY_AT, prev, an)
        body = protection.encode_repair(prev, found._replace(coded=rng.randbytes(len(found.coded))))
        return link.encode(wire.CONTROL, an, prev, body)

    link.protection._next_repair = garbage  # type: ignore[method-assign]
    world.net.set_conditions(Conditions(delay=0.05, loss=0.2))
    flow(world, ["root0", "root1"], 800)
    nothing_is_missing(world, 800)


def test_what_the_owner_refuses_of_a_rebuilt_packet_is_held_against_nobody() -> None:
    """`accepts` sees rebuilt packets too: here it refuses each packet's first rebuilt copy."""
    world = World(25, config=Config(fixed_protection=(2, 1, 4)), conditions=CLEAN)
    world.root("root0")
    hub = world.hub("client")
    refused: list[int] = []
    rebuilding = [False]

    def accepts(an: int, payload: bytes) -> bool:
        if rebuilding[0] and an not in refused:
            refused.append(an)
            return False
        return True

    receiver = world.receivers["client"] = hub.subscribe(STREAM, accepts=accepts)
    world.net.add(("client", 1), hub)
    world.join("client", "root0")
    world.run(1.0)
    take = receiver.mending._take

    def spy(decoder: object, claims: list[object], now: float) -> None:
        rebuilding[0] = True
        take(decoder, claims, now)  # type: ignore[arg-type]
        rebuilding[0] = False

    receiver.mending._take = spy  # type: ignore[method-assign, assignment]
    world.net.set_conditions(LOSSY)
    flow(world, ["root0"], 400)
    nothing_is_missing(world, 400)
    assert refused
    assert not world.told("client", events.CopyRefused)


def test_a_byte_stream_knows_neither() -> None:
    world = World(26, config=Config(fixed_protection=(2, 1, 4)), stream_mode=True)
    seen = Wire(world)
    world.root("root0")
    world.client("client", ["root0"])
    world.run(1.0)
    world.publish("root0", b"bytes")
    world.run(1.0)
    assert sent(seen, ControlType.PROTECT) == 0
    (uplink,) = world.receivers["client"].links.values()
    data = uplink.encode(wire.CONTROL, 0, 0, protection.encode_protect(protection.Protect(1, 2)))
    world.hubs["root0"].receive_datagram(data, ("client", 1), now=world.net.now)
    assert world.senders["root0"].malformed == 1
