"""Multicast on real sockets: on loopback, where every host has it, and in a network of its own."""

from __future__ import annotations

import socket

import pytest
import trio

import dcp
from dcp.carriers import multicast
from dcp.config import Config
from dcp.links.address import to_group

pytestmark = pytest.mark.net

CONFIG = Config(multicast=True, multicast_loopback=True)


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request):
    """Where multicast works on loopback."""
    group = to_group("239.255.9.9" if request.param == "127.0.0.1" else "ff12::5999:9", 24_999, request.param)
    try:
        listening = multicast._listening_socket(group)
    except OSError as error:
        pytest.skip(f"no multicast on {request.param}: {error}")
    with listening:
        sending = multicast._sending_socket(request.param)
        if sending is None:
            pytest.skip(f"no multicast on {request.param}")
        with sending:
            try:
                sending.sendto(b"?", group[:2])
            except OSError as error:
                pytest.skip(f"no multicast on {request.param}: {error}")
        listening.settimeout(5)
        assert listening.recv(10) == b"?"
    return request.param


async def test_four_children_on_loopback_get_one_datagram(host):
    count = 400
    found: dict[int, list[bytes]] = {}
    async with dcp.open_endpoint((host, 0), config=CONFIG) as root, trio.open_nursery() as nursery:
        publisher = root.serve("asdi")
        groups = publisher.machine.groups

        async def read(number: int) -> None:
            async with dcp.open_endpoint((host, 0), config=CONFIG) as client:
                mine = found[number] = []
                async for item in client.subscribe("asdi", [root.address]):
                    assert not isinstance(item, dcp.Gap)
                    if isinstance(item, dcp.Packet):
                        mine.append(item.payload)
                    if mine and mine[-1] == b"end":
                        return

        for number in range(4):
            nursery.start_soon(read, number)
        sent = [b"first"]
        with trio.fail_after(60):
            await publisher.wait_children(4)
            await publisher.send(b"first")  # before that nobody has a place in the stream
            while groups.listening < 4:
                await root.wait_turn()
            before = sum(link.packets for link in publisher.statistics().links)
            (group,) = groups._groups.values()
            numbers = group.number
            for number in range(count):
                sent.append(b"%d" % number)
                await publisher.send(sent[-1])
                await trio.sleep(0.004)
            while sum(link.packets for link in publisher.statistics().links) < before + 4 * count:
                await root.wait_turn()  # members follow a few times per second
            assert group.number - numbers >= count // 2, "they went to the group"
            await publisher.send(b"end")
    for mine in found.values():
        assert mine == [*sent, b"end"]


async def test_without_an_interface_packets_come_over_the_links(monkeypatch):
    def refused(group):
        raise OSError("no multicast")

    monkeypatch.setattr(multicast, "_listening_socket", refused)
    monkeypatch.setattr(multicast, "_sending_socket", lambda near: None)
    async with dcp.open_endpoint(config=CONFIG) as root, trio.open_nursery() as nursery:
        publisher = root.serve("asdi")

        async def read() -> None:
            async with dcp.open_endpoint(config=CONFIG) as client:
                async for item in client.subscribe("asdi", [root.address]):
                    if isinstance(item, dcp.Packet) and item.payload == b"end":
                        assert client.statistics().dropped["no multicast"] == 1
                        return

        for _ in range(3):
            nursery.start_soon(read)
        with trio.fail_after(30):
            await publisher.wait_children(3)
            await publisher.send(b"first")
            while not root.statistics().dropped.get("multicast"):
                await root.wait_turn()
            await publisher.send(b"end")


async def test_what_strangers_send_to_a_group_is_dropped_and_counted(host):
    async with dcp.open_endpoint((host, 0), config=CONFIG) as root, dcp.open_endpoint((host, 0), config=CONFIG) as me:
        publisher = root.serve("asdi")
        subscription = me.subscribe("asdi", [root.address])
        with trio.fail_after(30):
            await publisher.wait_children(1)
            (link,) = subscription.machine.links.values()
            host_of_group = "239.255.8.8" if host == "127.0.0.1" else "ff12::5888:8"
            from dcp.group_messages import Group

            me.hub.memberships.offered(
                subscription.machine, link, Group(5, 0, bytes(32), 24_998, host_of_group), trio.current_time()
            )
            me.driver.turn()
            with multicast._sending_socket(host) as sock:
                while sum(me.statistics().dropped.values()) < 3:
                    for data in (b"", b"\x10", b"garbage", bytes([0x10]) + bytes(200)):
                        sock.sendto(data, (host_of_group, 24_998))
                    await trio.sleep(0.01)
            await publisher.send(b"still")
            async for item in subscription:
                if isinstance(item, dcp.Packet):
                    assert item.payload == b"still"
                    break


def test_datagrams_to_a_group_do_not_leave_the_lan():
    sending = multicast._sending_socket("127.0.0.1")
    assert sending is not None
    with sending:
        assert sending.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 1
