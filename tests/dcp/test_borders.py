"""One unexpected exception costs one datagram, timer or event, and the link it belongs to; never the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import trio

import dcp
from dcp import events, guard
from dcp.control import Reason
from dcp.driver import Driver
from dcp.udp import UdpSocket
from tests.dcp.world import World


class Bug(Exception):
    pass


def buggy(*args, **options):
    raise Bug("nobody expected this")


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(guard, "faults", Counter())
    monkeypatch.setattr(guard, "_logged", set())
    with guard.strictness(False):
        yield


def family():
    """A root, and two children, each of which will meet a bug."""
    world = World(1)
    world.root("root")
    for name in ("good", "bad"):
        world.client(name, ["root"])
    world.run(0.5)
    children = {link.address[0]: link for link in world.senders["root"].links.values()}
    return world, children


def publish_some(world):
    for _ in range(20):
        world.publish("root", b"x")
        world.run(0.05)


def check_only_bad_was_lost(world, kind):
    publish_some(world)
    assert [an for an, _ in world.packets("good")] == list(range(1, 21))
    assert guard.faults[kind] >= 1
    assert [event.address[0] for event in world.told("root", events.ChildLost)] == ["bad"]
    assert [event.reason for event in world.told("bad", events.LinkLost)] == [Reason.RESET]


def test_a_datagram_of_a_child_on_which_the_sender_fails_ends_that_link():
    world, children = family()
    children["bad"].hear_times = buggy
    check_only_bad_was_lost(world, "datagram")
    assert world.hubs["root"].statistics().dropped["fault"] >= 1


def test_a_timer_of_a_child_on_which_the_sender_fails_ends_that_link():
    world, children = family()
    children["bad"].handle_timeout = buggy
    check_only_bad_was_lost(world, "timer")


def test_a_child_to_which_nothing_can_be_sent_ends_alone():
    world, children = family()
    children["bad"].next_datagram = buggy
    check_only_bad_was_lost(world, "send")


def test_a_datagram_of_a_parent_on_which_the_receiver_fails_ends_that_link():
    world = World(1)
    for name in ("a", "b"):
        world.root(name)
    receiver = world.client("client", ["a", "b"])
    world.run(0.5)
    bad = next(link for link in receiver.links.values() if link.address == ("b", 1))
    bad.parent.report_head = buggy
    for an in range(1, 21):
        for name in ("a", "b"):
            world.publish(name, b"x", an=an)
        world.run(0.05)
    assert [an for an, _ in world.packets("client")] == list(range(1, 21))
    (lost,) = world.told("client", events.LinkLost)
    assert (lost.address, lost.reason) == (("b", 1), Reason.RESET)
    assert guard.faults == {"datagram": 1}


def test_a_receivers_timer_that_fails_does_not_fire_again_and_again():
    world = World(1)
    world.root("root")
    receiver = world.client("client", ["root"])
    world.run(0.5)
    receiver._replies.acknowledge_all = buggy
    fired = world.net.timeouts[("client", 1)]
    world.run(5.0)
    assert guard.faults["timer"] == 1
    assert world.net.timeouts[("client", 1)] - fired < 50
    assert [event.reason for event in world.told("client", events.LinkLost)] == [Reason.RESET]


def test_in_tests_the_same_bug_is_loud():
    world, children = family()
    children["bad"].handle_timeout = buggy
    with guard.strictness(True), pytest.raises(Bug):
        world.run(1.0)


# --- the loop on a real socket ----------------------------------------------------------------------------------------


class BuggyMachine:
    """Each of the five methods fails now and then."""

    def __init__(self):
        self.received = []
        self.events = []
        self.fails = set()

    def _maybe(self, name):
        if name in self.fails:
            raise Bug(name)

    def receive_datagram(self, data, address, *, now):
        self._maybe(data)
        self.received.append(data)
        self.events.append(data)
        return True

    def handle_timeout(self, *, now):
        raise Bug("timer")

    def datagrams_to_send(self, *, now):
        self._maybe("send")
        return []

    def next_timeout(self, *, now):
        self._maybe("next")
        return now + 0.001

    def next_event(self):
        return self.events.pop() if self.events else None


def test_the_loop_goes_on_whatever_fails_in_it():
    last = trio.Event()

    def on_event(event):
        if event == b"\x10event":
            raise Bug(event)
        last.set()

    async def main():
        machine = BuggyMachine()
        machine.fails = {b"\x10datagram", "next", "send"}
        udp = await UdpSocket.bind(("127.0.0.1", 0))
        other = await UdpSocket.bind(("127.0.0.1", 0))
        driver = Driver(machine, udp, on_event=on_event, on_turn=buggy, on_other=buggy)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driver.run)
            for data in (b"\x10datagram", b"\x10event", b"other", b"\x10last"):
                other.send_now([(data, udp.address)])
            with trio.fail_after(10):
                await last.wait()
            nursery.cancel_scope.cancel()
        udp.close()
        other.close()
        return machine.received

    received = trio.run(main)
    assert received == [b"\x10event", b"\x10last"]
    assert {kind for kind in guard.faults if guard.faults[kind]} == {"datagram", "event", "turn", "timer", "send"}
    assert guard.faults["datagram"] == 2


def test_a_loop_whose_timer_fails_does_not_spin():
    async def main():
        udp = await UdpSocket.bind(("127.0.0.1", 0))
        driver = Driver(BuggyMachine(), udp, on_event=lambda event: None)
        with trio.move_on_after(0.55):
            await driver.run()
        udp.close()

    trio.run(main)
    assert guard.faults["timer"] <= 7


# --- after the end ----------------------------------------------------------------------------------------------------


def test_what_is_sent_after_the_endpoint_was_closed_is_an_error():
    """Found: it was numbered, logged, and reached nobody."""

    async def main():
        async with dcp.open_endpoint() as endpoint:
            publisher = endpoint.serve("s")
            subscription = endpoint.subscribe("t")
            await publisher.send(b"x")
        for call in (publisher.send(b"y"), publisher.send_many([b"y"])):
            with pytest.raises(trio.ClosedResourceError, match="would reach nobody"):
                await call
        with pytest.raises(trio.ClosedResourceError):
            subscription.change_query(b"q")
        with pytest.raises(trio.ClosedResourceError):
            subscription.add_sender(("127.0.0.1", 9))
        assert publisher.machine.log.head == 1

    trio.run(main)


def test_what_is_published_on_a_stream_that_was_left_is_an_error():
    world, _ = family()
    sender = world.senders["root"]
    world.hubs["root"].remove_stream(sender.stream)
    for call in (lambda: sender.publish(b"x"), lambda: sender.publish_many([b"x"]), lambda: sender.publish_hole(9)):
        with pytest.raises(dcp.StreamClosed, match="was left"):
            call()
    assert sender.log.head == 0
