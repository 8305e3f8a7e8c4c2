"""The contact table: nearest means nearest, the dead leave slowly, nobody crowds it."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dht.config import NodeConfig
from dht.routing import ContactTable
from dht.wire import Contact

CONFIG = NodeConfig()
OWN = random.Random(0).randbytes(20)


def contact(rng: random.Random, host: str | None = None) -> Contact:
    number = rng.randrange(1 << 24)
    return Contact(rng.randbytes(20), (host or f"20.{number >> 16}.{number >> 8 & 255}.{number & 255}", 4700))


def table_of(count: int, seed: int = 1) -> ContactTable:
    rng = random.Random(seed)
    table = ContactTable(OWN, CONFIG)
    for _ in range(count):
        table.heard(contact(rng), now=0.0)
    return table


@given(st.integers(0, 2**32), st.binary(min_size=20, max_size=20))
@settings(max_examples=25)
def test_nearest_is_nearest_of_all_contacts(seed, key):
    table = table_of(300, seed)
    target = int.from_bytes(key, "big")
    expected = sorted(table.contacts, key=lambda one: int.from_bytes(one.id, "big") ^ target)[:16]
    assert table.nearest(key, 16) == expected
    table.check_invariants()


def test_a_contact_leaves_after_repeated_misses_not_after_one():
    table = ContactTable(OWN, CONFIG)
    one = contact(random.Random(1))
    assert table.heard(one, now=0.0)
    assert not table.missed(one)
    assert not table.missed(one)
    table.heard(one, now=1.0)  # an answer forgives
    assert [table.missed(one) for _ in range(3)] == [False, False, True]
    assert table.contacts == []


def test_a_contact_that_missed_is_not_recommended():
    table = table_of(5)
    doubtful = table.contacts[0]
    table.missed(doubtful)
    assert doubtful in table.nearest(doubtful.id, 5)
    assert doubtful not in table.nearest(doubtful.id, 5, only_sound=True)


def test_an_id_in_use_is_not_taken_over_from_another_address():
    table = ContactTable(OWN, CONFIG)
    rng = random.Random(1)
    one = contact(rng)
    thief = Contact(one.id, ("20.9.9.9", 1))
    table.heard(one, now=0.0)
    assert not table.heard(thief, now=1.0)
    assert table.contacts == [one]
    table.missed(one)
    assert table.heard(thief, now=2.0)  # it moved: the old address is silent and the new one answers
    assert table.contacts == [thief]


def test_one_address_takes_only_room_that_nobody_else_wants():
    table = ContactTable(OWN, CONFIG)
    rng = random.Random(1)
    for _ in range(2000):
        table.heard(contact(rng, host="20.1.2.3"), now=0.0)
    assert len(table) == CONFIG.k  # one bucket, never split for a crowd
    assert not table.has_room_for(contact(rng, host="20.1.2.3"))
    for _ in range(200):
        table.heard(contact(rng), now=0.0)
    assert sum(one.address[0] == "20.1.2.3" for one in table.contacts) <= CONFIG.k
    assert sum(one.address[0] != "20.1.2.3" for one in table.contacts) > 60
    for bucket in table.buckets:
        crowd = sum(node.ip == "20.1.2.3" for node in bucket.nodes.values())
        assert crowd <= CONFIG.max_per_source_in_bucket or len(bucket) < CONFIG.k
    table.check_invariants()


def test_on_loopback_every_port_is_its_own_source():
    table = ContactTable(OWN, CONFIG)
    rng = random.Random(1)
    for port in range(1, 60):
        table.heard(Contact(rng.randbytes(20), ("127.0.0.1", port)), now=0.0)
    assert len(table) > 40


def test_ids_close_to_ours_cannot_grow_the_table_without_bound():
    table = ContactTable(OWN, CONFIG)
    rng = random.Random(1)
    for bit in range(160):
        for _ in range(40):
            noise = (1 << bit) | rng.getrandbits(bit) if bit else 1
            near = (int.from_bytes(OWN, "big") ^ noise).to_bytes(20, "big")
            table.heard(Contact(near, contact(rng).address), now=0.0)
    assert len(table.buckets) <= 160
    assert len(table) <= 160 * CONFIG.k
    table.check_invariants()


def test_an_id_on_a_bucket_border_is_found_again():
    table = table_of(300)
    for bucket in list(table.buckets):
        for edge in bucket.range:
            if edge < 1 << 160:
                node_id = edge.to_bytes(20, "big")
                table.heard(Contact(node_id, contact(random.Random(edge)).address), now=0.0)
    table.check_invariants()


def test_unused_buckets_are_named_for_a_refresh():
    table = table_of(100)
    assert len(table.unused_targets(since=0.0, rng=random.Random(1))) == len(table.buckets)
    table.mark_used(OWN, now=10.0)
    targets = table.unused_targets(since=5.0, rng=random.Random(1))
    assert len(targets) == len(table.buckets) - 1


class TableMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.rng = random.Random(7)
        self.table = ContactTable(OWN, NodeConfig(k=3))
        self.known = [contact(self.rng, host=f"20.0.0.{n % 7}") for n in range(60)]

    @rule(index=st.integers(0, 59), now=st.floats(0, 100))
    def hear(self, index, now):
        self.table.heard(self.known[index], now=now)

    @rule(index=st.integers(0, 59))
    def miss(self, index):
        self.table.missed(self.known[index])

    @rule(index=st.integers(0, 59), other=st.integers(0, 59))
    def move(self, index, other):
        self.table.heard(Contact(self.known[index].id, self.known[other].address), now=0.0)

    @invariant()
    def holds(self):
        self.table.check_invariants()


TestTableMachine = TableMachine.TestCase
