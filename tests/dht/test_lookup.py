"""The lookup machine alone: order, lateness, liars, and that it always ends."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dht.config import NodeConfig
from dht.lookup import Lookup
from dht.wire import Contact

CONFIG = NodeConfig()
TARGET = bytes(20)
OWN = b"\xff" * 20


def contact(number: int, host: int | None = None) -> Contact:
    host = number if host is None else host
    return Contact(number.to_bytes(20, "big"), (f"20.0.{host >> 8 & 255}.{host & 255}", 4700))


def lookup(start, config=CONFIG) -> Lookup:
    return Lookup(TARGET, own_id=OWN, config=config, start=start)


def all_queries(machine):
    asked = []
    while (one := machine.next_query()) is not None:
        asked.append(one)
    return asked


def test_the_nearest_are_asked_first_and_alpha_at_once():
    machine = lookup([contact(n) for n in (9, 3, 7, 1, 5, 8)])
    assert all_queries(machine) == [contact(n) for n in (1, 3, 5, 7)]


def test_a_late_one_gives_its_place_to_another_and_may_still_answer():
    machine = lookup([contact(n) for n in range(1, 7)])
    all_queries(machine)
    machine.late(contact(1))
    assert all_queries(machine) == [contact(5), contact(6)]  # its own place, and one more for every one that is late
    assert machine.answered(contact(1), by=contact(1).id, contacts=[])
    assert machine.nearest_answered == [contact(1)]


def test_it_ends_while_dead_contacts_are_only_late():
    machine = lookup([contact(1), contact(2)])
    all_queries(machine)
    machine.answered(contact(2), by=contact(2).id, contacts=[])
    assert not machine.is_done
    machine.late(contact(1))
    assert machine.is_done


def test_the_k_nearest_that_answer_are_enough():
    machine = lookup([contact(n) for n in range(1, 41)])
    while not machine.is_done:
        for one in all_queries(machine):
            machine.answered(one, by=one.id, contacts=[])
    assert machine.nearest_answered == [contact(n) for n in range(1, 17)]
    assert machine.queries == CONFIG.k


def test_an_answer_of_somebody_else_counts_for_him_alone():
    machine = lookup([contact(1)])
    all_queries(machine)
    real = contact(500, host=1)
    assert not machine.answered(contact(1), by=real.id, contacts=[contact(2)])
    assert all_queries(machine) == [real]
    assert machine.nearest_answered == []


def test_one_source_has_few_places_while_there_are_others():
    machine = lookup([])
    machine.add([contact(n, host=1) for n in range(1, 50)])
    machine.add([contact(1000 + n) for n in range(20)])
    asked = set()
    while not machine.is_done:
        for one in all_queries(machine):
            asked.add(one)
            machine.answered(one, by=one.id, contacts=[])
    crowd = [one for one in asked if one.address[0] == "20.0.0.1"]
    assert sorted(crowd) == [contact(n, host=1) for n in (1, 2, 3)]  # the nearest of it
    assert len(asked - set(crowd)) >= CONFIG.k - 3


def test_one_source_alone_is_asked_as_any_network():
    machine = lookup([contact(n, host=1) for n in range(1, 40)])
    while not machine.is_done:
        for one in all_queries(machine):
            machine.answered(one, by=one.id, contacts=[])
    assert machine.nearest_answered == [contact(n, host=1) for n in range(1, 17)]


def test_liars_that_invent_ever_nearer_nodes_do_not_keep_it_going():
    machine = lookup([contact(10**9 + n, host=n) for n in range(1, 5)])
    rng = random.Random(1)
    for _ in range(10_000):
        asked = all_queries(machine)
        if machine.is_done:
            break
        for one in asked:
            nearer = [contact(rng.randrange(1, 10**9), host=rng.randrange(5, 60_000)) for _ in range(8)]
            machine.answered(one, by=one.id, contacts=nearer)
    assert machine.is_done
    assert machine.queries <= CONFIG.max_lookup_queries


@given(st.integers(0, 2**32), st.integers(1, 80))
def test_it_ends_whatever_happens_and_nobody_is_asked_twice(seed, nodes):
    rng = random.Random(seed)
    world = [contact(rng.randrange(1, 2**150), host=rng.randrange(60_000)) for _ in range(nodes)]
    machine = lookup(rng.sample(world, min(5, nodes)))
    asked, waiting = [], []
    for _ in range(5000):
        new = all_queries(machine)
        asked += new
        waiting += new
        if machine.is_done:
            break
        one = waiting.pop(rng.randrange(len(waiting)))
        match rng.randrange(4):
            case 0:
                machine.failed(one)
            case 1:
                machine.late(one)
                waiting.append(one)  # its answer, or the end of its retry, is still to come
            case _:
                machine.answered(one, by=one.id, contacts=rng.sample(world, min(8, nodes)))
    assert machine.is_done
    assert len(set(asked)) == len(asked) == machine.queries <= CONFIG.max_lookup_queries
    assert len(machine.nearest_answered) <= CONFIG.k
    assert contact(int.from_bytes(OWN, "big") % 2**20) not in asked


def test_when_most_are_late_it_waits_for_them():
    """A process that was held up sees everybody late at once; their answers lie unread in its socket."""
    machine = lookup([contact(n) for n in range(1, 4)])
    asked = all_queries(machine)
    for one in asked:
        machine.late(one)
    assert machine.next_query() is None
    assert not machine.is_done
    machine.answered(asked[0], by=asked[0].id, contacts=[])
    assert not machine.is_done
    machine.failed(asked[1])
    assert machine.is_done
