"""What a child may ask about stretches that it has passed, and how much that can cost its parent (rules L6 to L8)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import control, events, wire
from dcp.audit import ALONE_SECONDS
from dcp.child import MAX_PREVIOUS_QUERIES, PREVIOUS_QUERY_SECONDS
from dcp.config import Config
from dcp.cursor import Cursor, DataClaim
from dcp.history import SLICE_PACKETS
from dcp.links import past
from dcp.log import Log
from dcp.queries import PredicatePolicy
from dcp.testing import Conditions
from tests.dcp.world import World

EVEN = PredicatePolicy(matches=lambda query, payload: int(payload) % 2 == 0)


def new_log(policy=None):
    log = Log(policy or PredicatePolicy(), max_packets=1_000, max_bytes=1 << 20, max_segments=64)
    log.start(0)
    return log


@given(st.sets(st.integers(1, 60), min_size=1), st.data())
def test_a_packet_put_into_the_log_later_is_as_if_it_had_always_been_there(ans, data):
    late = data.draw(st.sampled_from(sorted(ans)))
    opened_after = data.draw(st.integers(0, 60))
    whole, mended = new_log(EVEN), new_log(EVEN)
    interests = []
    for log in (whole, mended):
        interest = None
        for an in sorted(ans):
            if an > opened_after and interest is None:
                interest = log.open_interest(b"even")
            if log is mended and an == late:
                log.advance(an)
            else:
                log.append(an, b"%d" % an)
        log.advance(61)
        interests.append(interest or log.open_interest(b"even"))
    cursor = Cursor(mended, 0)
    if data.draw(st.booleans()):
        cursor.next_claim(mended, interests[1], limit=61, room=1_000, max_packets=2)
    assert mended.insert(late, b"%d" % late) is not None
    assert mended.insert(late, b"%d" % late) is None
    cursor.inserted(mended, late)
    for log, interest in zip((whole, mended), interests, strict=True):
        log.history.refill()
        found, until = log.index(interest, 0, 61, most=100, scan=100)
        assert (found, until) == ([an for an in sorted(ans) if an % 2 == 0], 61)
    assert whole.bytes == mended.bytes
    assert whole.replay(0, 100) == mended.replay(0, 100)
    # What the cursor says from here on denies nothing that is there.
    while (claim := cursor.next_claim(mended, interests[1], limit=61, room=1_000, max_packets=3)) is not None:
        if isinstance(claim, DataClaim):
            listed = [an for an, _ in claim.packets]
            assert listed == [an for an in sorted(ans) if an % 2 == 0 and claim.prev < an <= listed[-1]]


def test_a_cursor_that_looked_ahead_does_not_miss_what_is_put_before_it():
    """A claim that was full had examined packets behind it: one that was put among them was denied in silence."""
    log = new_log(EVEN)
    interest = log.open_interest(b"even")
    for an in (1, 2, 3, 4, 7, 8):
        log.append(an, b"%d" % an)
    cursor = Cursor(log, 0)
    full = cursor.next_claim(log, interest, limit=8, room=1_000, max_packets=2)
    assert [an for an, _ in full.packets] == [2, 4]
    log.insert(6, b"6")
    cursor.inserted(log, 6)
    rest = cursor.next_claim(log, interest, limit=8, room=1_000, max_packets=9)
    assert [an for an, _ in rest.packets] == [6, 8]


def two_parents(**options):
    world = World(3, conditions=Conditions(delay=0.005), **options)
    for name in ("one", "two"):
        world.root(name)
    world.client("client", ["one", "two"])
    world.run(0.5)
    return world


def send(world, parent, body):
    """The client says something to one of its parents that it would not say by itself."""
    receiver = world.receivers["client"]
    link = next(link for link in receiver.links.values() if link.address[0] == parent)
    receiver._uplinks.send(link, wire.CONTROL, 0, 0, body)
    world.net.pump(("client", 1))
    return link


def test_a_child_that_keeps_asking_gets_no_more_than_its_share():
    world = two_parents()
    for an in range(1, 2_001):
        world.senders["one"].publish(b"x", an=an)
    world.net.pump(("one", 1))
    world.run(0.5)
    before = world.hubs["one"].statistics().bytes_out
    ranges = [(start, start + 50) for start in range(0, 1_600, 50)]
    for _ in range(300):
        send(world, "one", control.encode_index_request(control.IndexRequest(0, ranges)))
        world.run(0.01)
    sent = world.hubs["one"].statistics().bytes_out - before
    assert sent < 3 * past.INDEX_BYTES_PER_SECOND + (64 << 10)
    assert world.senders["one"].statistics(world.net.now).indexes_refused > 100


def test_a_child_that_keeps_fetching_is_paid_from_its_repair_budget():
    world = two_parents()
    for an in range(1, 101):
        world.senders["one"].publish(bytes(1_000), an=an)
    world.net.pump(("one", 1))
    world.run(1.0)
    before = world.hubs["one"].statistics().bytes_out
    for number in range(500):
        ans = [1 + (number * 32 + i) % 100 for i in range(32)]
        send(world, "one", control.encode_fetch(control.Fetch(0, ans)))
        world.run(0.01)
    sent = world.hubs["one"].statistics().bytes_out - before
    assert sent < 3 * 100_000 + 6 * (64 << 10)
    assert world.receivers["client"].statistics(world.net.now).duplicates > 100


@pytest.mark.parametrize("size", [10, 40_000])
def test_a_packet_that_one_parent_left_out_is_fetched_from_the_other_whatever_its_size(size):
    """The near parent's lie squelches the far one: its index lists the packet, and it is asked for by its AN."""
    world = two_parents()
    world.net.set_conditions(Conditions(delay=0.005), ("one", 1), ("client", 1))
    for an in range(1, 41):
        if an == 20:
            world.senders["one"].log.advance(an)
        else:
            world.publish("one", b"%d" % an, an=an)
        payload = bytes(size) if an == 20 else b"%d" % an
        world.net.after(0.4, lambda an=an, payload=payload: world.publish("two", payload, an=an))
        world.run(0.02)
    world.run(3.0)
    omitted = [event for event in world.got["client"] if isinstance(event, events.Omitted)]
    assert omitted == [events.Omitted(20, bytes(size))]
    assert [an for an, _ in world.packets("client")] == [an for an in range(1, 41) if an != 20]
    statistics = world.receivers["client"].statistics(world.net.now)
    assert (statistics.omitted, statistics.fetched) == (1, 1)


def test_a_parent_of_an_earlier_version_is_not_asked_and_costs_nothing(monkeypatch):
    """Its keep-alives say nothing about what is settled; it would drop an index request as malformed."""
    monkeypatch.setattr("dcp.links.keep_alives.settled_of", lambda log: None)
    monkeypatch.setattr("dcp.links.downlink.settled_of", lambda log: None)
    world = two_parents()
    for an in range(1, 101):
        world.publish("one", b"%d" % an, an=an)
        world.net.after(0.3, lambda an=an: world.publish("two", b"%d" % an, an=an))
        world.run(0.02)
    world.run(2.0)
    assert [an for an, _ in world.packets("client")] == list(range(1, 101))
    statistics = world.receivers["client"].statistics(world.net.now)
    assert statistics.index_requests == 0
    assert world.senders["one"].malformed == world.senders["two"].malformed == 0
    assert world.told("client", events.Disputed) == []


def test_a_parent_that_is_silent_about_what_is_settled_does_not_silence_its_child(monkeypatch):
    """A router below a liar of that kind looked like an earlier version itself, so nobody asked it for an index: its
    own child stood still for good behind two other liars (seed 5000 of the hostile meshes)."""
    monkeypatch.setattr("dcp.links.keep_alives.settled_of", lambda log: None if log.is_final else log.settled)
    world = World()
    for name in ("silent", "root"):
        world.root(name)
    router = world.relay("router", ["silent", "root"])
    client = world.client("client", ["router"])
    for an in range(1, 11):
        for name in ("silent", "root"):
            world.publish(name, b"%d" % an, an=an)
    world.run(2.0)
    assert all(parent.settled is None for parent in router.parents.values())
    assert [parent.settled for parent in client.parents.values()] == [0]


def test_starved_is_said_once_while_heads_advance_and_nobody_claims_anything():
    world = two_parents()
    for an in range(1, 6):
        for name in ("one", "two"):
            world.publish(name, b"x", an=an)
    world.run(0.5)

    def report(head):
        for name in ("one", "two"):
            sender = world.senders[name]
            for link in sender.links.values():
                link.keep_alive.at = world.net.now + 60
                body = control.KeepAlive(link.times(world.net.now), 0, False, 0, head)
                link.post(link.encode(wire.KEEP_ALIVE, head, 0, control.encode_keep_alive(body)))
                sender._busy[link.id] = link
            world.net.pump((name, 1))

    for head in range(6, 60):
        report(head)
        world.run(0.1)
    told = world.told("client", events.Starved)
    assert len(told) == 1
    assert told[0].head > 5
    assert world.receivers["client"].statistics(world.net.now).starved == 1


def test_a_byte_stream_has_no_books():
    world = World(3, stream_mode=True, conditions=Conditions(delay=0.005, loss=0.05))
    for name in ("one", "two"):
        world.root(name)
    receiver = world.client("client", ["one", "two"])
    world.run(0.5)
    rng = random.Random(1)
    data = rng.randbytes(200_000)
    for at in range(0, len(data), 5_000):
        for name in ("one", "two"):
            world.publish(name, data[at : at + 5_000])
        world.run(0.02)
    world.run(2.0)
    assert b"".join(payload for _, payload in world.packets("client")) == data
    assert receiver.audit.book is None
    assert receiver.statistics(world.net.now).index_requests == 0


def test_one_parent_costs_no_book_for_long_and_a_second_one_opens_it():
    world = World(3, config=Config())
    for name in ("one", "two"):
        world.root(name)
    receiver = world.client("client", ["one"])
    world.run(1.0)
    assert receiver.audit.book is not None  # another parent may come, and is asked about what this one said
    world.run(ALONE_SECONDS + 1.0)
    assert receiver.audit.book is None
    link = world.join("client", "two")
    world.run(1.0)
    assert receiver.audit.book is not None
    receiver.remove_sender(link)
    world.run(ALONE_SECONDS + 1.0)
    assert receiver.audit.book is None


def all_parents_lost_after_ten_packets():
    world = two_parents()
    for an in range(1, 11):
        for name in ("one", "two"):
            world.publish(name, b"%d" % an, an=an)
    world.run(0.5)
    receiver = world.receivers["client"]
    for link in list(receiver.links):
        receiver.remove_sender(link)
    return world


def test_a_liar_that_comes_back_first_is_checked_when_the_honest_parent_is_back():
    """Found by freezing a client: all links were lost, and nobody asked about what the first one back left out."""
    world = all_parents_lost_after_ten_packets()
    for an in range(11, 21):
        world.publish("two", b"%d" % an, an=an)
        if an == 15:
            world.senders["one"].log.advance(an)
        else:
            world.publish("one", b"%d" % an, an=an)
    world.join("client", "one")
    world.run(1.0)
    assert [an for an, _ in world.packets("client")] == [an for an in range(1, 21) if an != 15]
    world.join("client", "two")
    world.run(1.0)
    assert [event for event in world.got["client"] if isinstance(event, events.Omitted)] == [events.Omitted(15, b"15")]


def test_a_liar_that_comes_back_first_can_not_declare_everything_a_hole():
    world = all_parents_lost_after_ten_packets()
    world.senders["one"].publish_hole(1 << 60)
    world.join("client", "one")
    world.run(2.0)
    world.join("client", "two")
    for an in range(11, 21):
        world.publish("two", b"%d" % an, an=an)
    world.run(2.0)
    assert world.gaps("client") == []
    assert [an for an, _ in world.packets("client")] == list(range(1, 21))


def test_an_index_over_more_history_than_one_turn_may_look_at_is_answered_in_the_end():
    """Found here: nothing but a cursor that waits for history began a new turn, so an index stayed unanswered."""
    world = two_parents_with_queries()
    for an in range(1, 4 * SLICE_PACKETS + 1):
        world.publish("three", b"%d" % an, an=an)
        if an == 3 * SLICE_PACKETS:
            world.senders["one"].log.advance(an)  # it leaves this one out
        else:
            world.publish("one", b"%d" % an, an=an)
    world.run(0.5)
    world.join("client", "three")
    world.run(2.0)
    omitted = [event.an for event in world.got["client"] if isinstance(event, events.Omitted)]
    assert omitted == [3 * SLICE_PACKETS]


def two_parents_with_queries():
    world = World(3, conditions=Conditions(delay=0.005))
    for name in ("one", "two", "three"):
        world.root(name, policy=PredicatePolicy(matches=lambda query, payload: int(payload) % int(query) == 0))
    world.client("client", ["one", "two"], query=b"2")
    world.run(0.5)
    return world


def test_a_second_change_of_the_query_before_the_first_was_heard_keeps_the_link():
    """The parent forgot the query that it had prepared, and reset the link when the child spoke in that epoch."""
    world = two_parents_with_queries()
    receiver = world.receivers["client"]
    deaf = Conditions(delay=0.005)
    slow = Conditions(delay=0.105)
    receiver.change_query(b"3", now=world.net.now)
    world.net.pump(("client", 1))
    world.run(0.012)  # prepared by both; the client's word that it has switched is under way for long
    world.net.set_conditions(slow, ("client", 1), ("one", 1))
    while receiver.change.query != b"3":
        world.run(0.01)
    world.net.set_conditions(deaf, ("client", 1), ("one", 1))
    receiver.change_query(b"5", now=world.net.now)
    world.net.pump(("client", 1))
    world.run(1.0)
    for an in range(1, 61):
        for name in ("one", "two"):
            world.publish(name, b"%d" % an, an=an)
    world.run(1.0)
    assert world.told("client", events.LinkLost) == []
    assert [an for an, _ in world.packets("client")] == list(range(5, 61, 5))
    for link in world.senders["one"].links.values():
        assert (link.child.query, link.child.unheard, link.child.pending) == (b"5", [], None)


def test_a_parent_that_comes_after_a_change_of_the_query_is_asked_about_the_one_before():
    """The honest parent dies right after the change; what the liar left out under the old query comes from its heir."""
    world = two_parents_with_queries()
    receiver = world.receivers["client"]
    for an in range(1, 41):
        world.publish("three", b"%d" % an, an=an)
        if an == 20:
            world.senders["one"].log.advance(an)  # it leaves this one out
        else:
            world.publish("one", b"%d" % an, an=an)
    world.run(0.2)
    assert 20 not in dict(world.packets("client"))
    receiver.change_query(b"3", now=world.net.now)
    world.net.pump(("client", 1))
    world.run(0.1)
    for an in (41, 42):
        for name in ("one", "three"):
            world.publish(name, b"%d" % an, an=an)
    world.run(0.1)
    assert receiver.change.query == b"3"
    world.net.crash(("two", 1))
    world.join("client", "three")
    world.run(4.0)
    omitted = [event for event in world.got["client"] if isinstance(event, events.Omitted)]
    assert omitted == [events.Omitted(20, b"20")]


def test_changes_of_the_query_without_a_packet_do_not_close_the_book_of_the_one_before():
    """Found by seed 45 of the campaign with liars: a client changed its query five times while a liar's emptiness had
    carried it ahead of the stream, and forgot what it had passed under the first."""
    world = two_parents_with_queries()
    receiver = world.receivers["client"]
    for an in range(1, 41):
        world.publish("two", b"%d" % an, an=an)
        world.publish("one", b"%d" % an, an=an) if an != 20 else world.senders["one"].log.advance(an)
    world.net.set_conditions(Conditions(loss=1.0), ("two", 1), ("client", 1))
    world.run(0.2)
    for query in (b"3", b"5", b"7", b"3", b"11", b"7"):
        receiver.change_query(query, now=world.net.now)
        world.net.pump(("client", 1))
        world.net.set_conditions(Conditions(delay=0.005), ("two", 1), ("client", 1))
        while receiver.change.query != query:
            world.run(0.01)
        assert len(receiver.audit.previous) <= 1
    world.run(3.0)
    known = dict(world.packets("client"))
    known |= {event.an: event.payload for event in world.got["client"] if isinstance(event, events.Omitted)}
    assert sorted(known) == list(range(2, 41, 2))


def test_a_parent_forgets_first_the_queries_under_which_its_child_went_no_further():
    world = two_parents_with_queries()
    world.publish("one", b"2", an=1)
    world.run(0.2)
    sender = world.senders["one"]
    (link,) = sender.links.values()
    child = link.child
    for epoch, position in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 7), (6, 9)):
        child.prepare(epoch, b"3")
        child.pending.interest = sender.log.open_interest(b"3")
        assert child.commit_epoch(epoch)
        child.reposition(position)
    assert [previous.epoch for previous in child.previous] == [0, 3, 4, 5]
    for epoch, position in ((7, 11), (8, 13)):
        child.prepare(epoch, b"3")
        child.pending.interest = sender.log.open_interest(b"3")
        assert child.commit_epoch(epoch)
        child.reposition(position)
    assert [previous.epoch for previous in child.previous] == [4, 5, 6, 7]  # none was idle: the oldest
    assert len(sender.log._slots) == 1 + MAX_PREVIOUS_QUERIES


def test_queries_that_are_over_are_recalled_within_bounds():
    world = two_parents_with_queries()
    receiver = world.receivers["client"]
    for an, query in enumerate((b"3", b"5", b"7", b"3", b"5", b"7", b"11"), 1):
        receiver.change_query(query, now=world.net.now)
        world.net.pump(("client", 1))
        world.run(0.1)
        for name in ("one", "two"):
            world.publish(name, b"%d" % an, an=an)
        world.run(0.1)
    sender = world.senders["one"]
    (link,) = sender.links.values()
    for epoch in range(receiver.epoch):
        send(world, "one", control.encode_prepare(control.Prepare(epoch, b"13")))
        send(world, "one", control.encode_prepare(control.Prepare(epoch, b"not a number")))
        world.run(0.02)
    assert len(link.child.previous) <= MAX_PREVIOUS_QUERIES
    assert link.child.query == b"11"
    assert len(sender.log._slots) <= 1 + MAX_PREVIOUS_QUERIES
    world.run(PREVIOUS_QUERY_SECONDS + 1.0)
    assert link.child.previous == []
    assert len(sender.log._slots) == 1
