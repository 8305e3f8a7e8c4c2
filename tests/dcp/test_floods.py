"""What one stranger or one child can make a peer do, and hold, however fast it asks."""

from __future__ import annotations

import pytest

from dcp import control, events, guard, handshake, wire
from dcp.admission import MAX_HOSTS, HostBuckets, network_of
from dcp.config import Config
from dcp.control import Reason
from dcp.hub import MAX_OUTBOX, MAX_OUTBOX_BYTES
from dcp.links.repairs import MAX_REPAIR_CREDIT, REPAIR_BYTES_PER_SECOND, RepairBudget
from dcp.links.tickets import MAX_TICKET_BYTES, MAX_TICKETS
from dcp.outbox import Outbox
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from tests.dcp.test_security import STRANGER, answers, encoded, request
from tests.dcp.world import World


class Parsing(PredicatePolicy):
    """Counts what a stranger's queries cost."""

    def __init__(self, fails=()):
        super().__init__(matches=lambda query, payload: True)
        self.parsed = 0
        self.opened = 0
        self.fails = fails

    def check(self, query):
        self.parsed += 1
        if "check" in self.fails:
            raise RecursionError("a bug")
        return "no" if query.startswith(b"!") else None

    def open_slot(self, slot, query):
        self.opened += 1
        if "open" in self.fails:
            raise RecursionError("a bug")
        super().open_slot(slot, query)


# --- NACKs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nacks", [100, 4_000])
def test_nacks_with_false_echoes_queue_no_more_than_one_copy(nacks):
    """Found: 31 KB of NACKs with false clock echoes queued 376 MiB for one child."""
    world = World(2, conditions=Conditions(delay=0.01))
    world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    world.publish("root", bytes(1 << 20))
    (link,) = world.senders["root"].links.values()
    (up,) = world.receivers["client"].links.values()
    world.net.crash(("client", 1))
    now = world.net.now
    link.child.acked = link.child.floor = 0
    most = 0
    for _ in range(nacks):
        clock = int(now / control.TICK) & 0xFFFFFFFF
        ack = control.Acknowledgment(control.Times(clock, clock, 0xFFFE), 0, 0, 1_000)
        nack = control.encode_nack(control.Nack(ack, 1, [(0, 1)], [(0, 1 << 20)]))
        world.hubs["root"].receive_datagram(up.encode(wire.NACK, 0, 0, nack), ("client", 1), now=now)
        now += 1e-4
        most = max(most, sum(map(len, link.fragments._datagrams)))
        assert link.fragments.bytes == sum(map(len, link.fragments._datagrams))
    assert most < 1.2 * (1 << 20)
    assert world.senders["root"].statistics(now).repairs_refused > nacks / 2


def test_what_goes_out_again_to_a_child_that_lies_is_bounded_a_second():
    """It takes everything at once, and asks again: twice what it got live, and 64 KiB a second, is all it gets."""
    world = World(2, conditions=Conditions(delay=0.001))
    root = world.root("root")
    world.client("client", ["root"])
    world.run(0.5)
    root.publish_many([bytes(1_000)] * 100)
    world.net.pump(("root", 1))
    world.run(0.1)
    (link,) = root.links.values()
    (up,) = world.receivers["client"].links.values()
    world.net.crash(("client", 1))
    live = link.counts()[1]
    now = world.net.now
    link.child.acked = link.child.floor = 0
    sent = 0
    for _ in range(3_000):
        clock = int(now / control.TICK) & 0xFFFFFFFF
        ack = control.Acknowledgment(control.Times(clock, clock, 0xFFFE), 0, 0, 1_000)
        nack = control.encode_nack(control.Nack(ack, 100, [(0, 100)], []))
        world.hubs["root"].receive_datagram(up.encode(wire.NACK, 0, 0, nack), ("client", 1), now=now)
        for data, _ in world.hubs["root"].datagrams_to_send(now=now):
            sent += len(data)
        now += 0.001
    assert sent < 1.2 * (2 * live + 4 * REPAIR_BYTES_PER_SECOND) + 100_000


def test_the_budget_pays_for_half_of_everything_lost():
    budget = RepairBudget()
    now = 0.0
    for _ in range(1_000):
        budget.earn(1_000)
        assert budget.allows(now)
        budget.spend(1_900)
    budget.earn(1 << 40)
    budget.spend(MAX_REPAIR_CREDIT)
    assert not budget.allows(now)
    assert budget.allows(now + 1.0)
    budget.spend(REPAIR_BYTES_PER_SECOND)
    assert not budget.allows(now + 1.0)


@pytest.mark.parametrize("size", [100, 200_000])
def test_at_half_loss_each_way_the_budget_is_enough(size):
    world = World(5, conditions=Conditions(delay=0.01, loss=0.5))
    world.root("root")
    world.client("client", ["root"])
    world.run(3.0)
    for _ in range(40):
        world.publish("root", bytes(size))
        world.run(0.2 if size < 1_000 else 1.0)
    world.run(20.0)
    assert len(world.packets("client")) == 40


# --- openings ---------------------------------------------------------------------------------------------------------


def cookie_for(world, address):
    world.hubs["root"].receive_datagram(encoded(request()), address, now=world.net.now)
    challenge = answers(world.hubs["root"])[-1]
    return handshake.decode_opening_untrusted(*wire.decode_open_untrusted(challenge)).cookie


def root_with(policy, **config):
    world = World(1, config=Config(**config))
    world.root("root", policy=policy)
    return world


def test_a_join_that_its_owner_refuses_is_never_parsed():
    """Found: 100 refused joins a second with 3.5 KB queries cost 8.6 ms each: parsed first, refused after."""
    policy = Parsing()
    world = root_with(policy, max_queries_per_host=1_000, max_queries_per_second=1_000)
    world.accepting = False
    hub = world.hubs["root"]
    cookie = cookie_for(world, STRANGER)
    for number in range(50):
        opening = request(cookie=cookie, nonce=number.to_bytes(16), query=b"x" * 3_500)
        hub.receive_datagram(encoded(opening), STRANGER, now=world.net.now)
        event = hub.next_event()
        assert isinstance(event, events.OpeningReceived)
        hub.refuse(event.stream, event.ticket, Reason.FULL)
    assert policy.parsed == 0
    assert len(hub.senders[event.stream]._answering.tickets) == 0


def test_a_query_that_is_none_is_refused_when_it_is_accepted():
    policy = Parsing()
    world = root_with(policy)
    world.client("client", ["root"], query=b"!")
    world.run(0.5)
    assert [(e.reason, e.body) for e in world.told("client", events.LinkRefused)] == [(Reason.MODE_MISMATCH, b"no")]
    assert world.senders["root"].children == {}
    assert world.hubs["root"].links_held == 0


@pytest.mark.parametrize("where", ["check", "open"])
def test_a_query_on_which_the_policy_fails_is_refused_and_counted(where):
    world = root_with(Parsing(fails=(where,)))
    before = guard.faults["query"]
    with guard.strictness(False):
        world.client("client", ["root"], query=b"x")
        world.client("other", ["root"])
        world.run(0.5)
    assert guard.faults["query"] > before
    assert [child.query for child in world.senders["root"].children.values()] == [b""]
    world.publish("root", b"x")
    world.run(0.2)
    assert world.packets("other") == [(1, b"x")]


def test_openings_of_one_host_leave_room_for_others():
    world = root_with(Parsing(), max_openings_per_second=50, max_openings_per_host=10)
    world.accepting = False
    hub = world.hubs["root"]
    hosts = ["10.0.0.1"] * 100 + ["10.0.0.2"]
    taken = []
    for number, host in enumerate(hosts):
        address = (host, 5_000 + number)
        cookie = cookie_for(world, address)
        hub.receive_datagram(encoded(request(cookie=cookie, nonce=number.to_bytes(16))), address, now=world.net.now)
        if hub.next_event() is not None:
            taken.append(host)
    assert taken == ["10.0.0.1"] * 10 + ["10.0.0.2"]
    assert hub.statistics().dropped["opening rate"] == 90


def test_a_network_of_ipv6_is_one_host():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("fe80::1%eth0") == network_of("fe80::1%1")
    assert network_of("not: an address") == b"not: an address"


def test_the_table_of_hosts_is_bounded_and_forgets_the_quietest():
    buckets = HostBuckets(1e9, 2)
    assert buckets.allows(0.0, "first")
    for number in range(3 * MAX_HOSTS):
        assert buckets.allows(0.0, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        buckets.allows(0.0, "busy")
    assert len(buckets) == MAX_HOSTS
    assert not buckets.allows(0.0, "busy")


def test_openings_that_wait_for_an_answer_are_bounded_in_number_and_bytes():
    for query, most in ((b"x", MAX_TICKETS), (b"x" * 50_000, MAX_TICKET_BYTES // 50_000)):
        unlimited = dict.fromkeys(("max_openings_per_second", "max_openings_per_host"), 10_000)
        world = root_with(Parsing(), **unlimited, max_queries_per_second=10_000, max_queries_per_host=10_000)
        world.accepting = False
        hub = world.hubs["root"]
        cookie = cookie_for(world, STRANGER)
        for number in range(400):
            opening = request(cookie=cookie, nonce=number.to_bytes(16), query=query)
            hub.receive_datagram(encoded(opening), STRANGER, now=world.net.now)
        sender = world.senders["root"]
        assert len(sender._answering.tickets) == most
        assert sender.statistics(world.net.now).openings_dropped == 400 - most


# --- query changes ----------------------------------------------------------------------------------------------------


def test_query_churn_of_one_child_is_passed_over():
    """A thousand changes a second cost a parse and a slot each; an honest child has 16 epochs in 30 s."""
    policy = Parsing()
    world = root_with(policy)
    world.client("client", ["root"], query=b"x")
    world.run(0.5)
    (link,) = world.senders["root"].links.values()
    (up,) = world.receivers["client"].links.values()
    parsed, opened = policy.parsed, policy.opened
    now = world.net.now
    for number in range(1, 5_001):
        now += 0.001
        prepare = control.encode_prepare(control.Prepare(number, b"q%d" % number))
        world.hubs["root"].receive_datagram(up.encode(wire.CONTROL, 0, 0, prepare), ("client", 1), now=now)
    assert policy.parsed - parsed <= 16 + 2 * 16 * 5 / 30 + 1
    assert policy.opened - opened <= 16 + 2 * 16 * 5 / 30 + 1
    assert world.senders["root"].statistics(now).query_changes_refused > 4_900
    assert link.id in world.senders["root"].children


def test_an_honest_childs_changes_are_all_answered():
    world = root_with(Parsing())
    receiver = world.client("client", ["root"], query=b"x")
    world.run(0.5)
    for number in range(40):
        receiver.change_query(b"q%d" % number, now=world.net.now)
        world.net.pump(("client", 1))
        world.run(2.0)
    world.run(30.0)
    assert world.senders["root"].statistics(world.net.now).query_changes_refused == 0
    assert receiver.query == b"q39"


# --- what waits for the socket ----------------------------------------------------------------------------------------


def test_an_outbox_is_bounded_in_number_and_in_bytes():
    outbox = Outbox(10, 1_000)
    assert sum(outbox.add(b"x", STRANGER) for _ in range(20)) == 10
    assert len(outbox.take(4)) == 4
    assert outbox.bytes == 6
    assert outbox.add(bytes(994), STRANGER)
    assert not outbox.add(b"x", STRANGER)
    assert outbox.dropped == 11
    assert len(outbox.take(99)) == 7
    assert (outbox.bytes, len(outbox), outbox.take(1)) == (0, 0, [])


def test_answers_that_wait_for_the_socket_are_bounded():
    world = root_with(Parsing())
    hub = world.hubs["root"]
    for number in range(10_000):
        hub.receive_datagram(encoded(request(nonce=number.to_bytes(16))), STRANGER, now=world.net.now)
    assert len(hub._outbox) <= MAX_OUTBOX
    assert hub._outbox.bytes <= MAX_OUTBOX_BYTES
    assert hub.statistics().dropped["outbox full"] == 10_000 - MAX_OUTBOX


def test_who_joins_and_leaves_and_joins_again_is_parsed_so_often_a_second():
    policy = Parsing()
    world = root_with(policy)
    hub, sender = world.hubs["root"], world.senders["root"]
    cookie = cookie_for(world, STRANGER)
    for number in range(100):  # within a second
        opening = request(cookie=cookie, nonce=number.to_bytes(16), query=b"x" * 3_500)
        now = world.net.now + number * 0.01
        hub.receive_datagram(encoded(opening), STRANGER, now=now)
        while (event := hub.next_event()) is not None:
            if isinstance(event, events.OpeningReceived):
                sender.close(hub.accept(event.stream, event.ticket, now=now), Reason.NORMAL)
    assert 4 <= policy.parsed <= 10, "long ones count for several"
    assert sender.statistics(now).openings_dropped == 100 - policy.parsed
