"""What sending costs the processor: a multicast group against 25 links, and a protected link without loss against none.

Real machines in virtual time; what a parent sends goes into a real socket as well, since that is most of the cost.
Sending is measured in processor time, the least of several seconds: the machine's noise only adds. A link without loss
is measured in function calls, which are the same in every run: its time varies by more than the 2 % asked for.
"""

from __future__ import annotations

import cProfile
import random
import socket
import time

from bench._paths import PAYLOAD_BYTES, STREAM, Cell
from bench._paths import run as run_path
from dcp import events
from dcp.config import Config
from dcp.hub import Hub
from dcp.links.link import SocketAddress
from dcp.profile import PLAIN, profile_of
from dcp.testing import Conditions, Network

CHILDREN = 25
ROOT: SocketAddress = ("192.168.7.1", 1)
HZ = 20
FORM_SECONDS = 4
TURNS = 5
CLEAN = Cell(0.0002, 100, 0.0)


def multicast_ratio() -> float:
    """Processor time of sending a packet to 25 children by a group, over that by their links."""
    return _send_seconds(Config(multicast=True)) / _send_seconds(Config())


def protected_ratio() -> float:
    """Function calls of a clean LAN link that adapts, sender and receiver together, over those of a plain one."""
    calls = []
    for profile in (profile_of("reliable"), PLAIN):
        profiler = cProfile.Profile()
        profiler.runcall(run_path, CLEAN, 1, profile=profile, seconds=10)
        calls.append(sum(entry.callcount for entry in profiler.getstats()))
    return calls[0] / calls[1]


def _send_seconds(config: Config) -> float:
    """Per packet, the least of a few means over a second."""
    net = Network(1, conditions=Conditions(delay=0.001), on_event=lambda *about: _accept(hubs, *about))
    hubs = {ROOT: Hub(config, rng=random.Random(1))}
    sender = hubs[ROOT].serve(STREAM)
    sender.publish_hole(0)
    net.add(ROOT, hubs[ROOT])
    for number in range(CHILDREN):
        address = (f"192.168.7.{number + 2}", 1)
        hubs[address] = Hub(config, rng=random.Random(number))
        hubs[address].subscribe(STREAM)
        net.add(address, hubs[address])
        hubs[address].add_sender(STREAM, ROOT, now=0.0)
        net.pump(address)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out,
    ):
        sink.bind(("127.0.0.1", 0))
        return _measure(net, hubs[ROOT], out, sink.getsockname())


def _measure(net: Network, hub: Hub, out: socket.socket, sink: SocketAddress) -> float:
    means: list[float] = []
    for second in range(FORM_SECONDS + TURNS):
        spent = 0.0
        for number in range(HZ):
            began = time.process_time()
            hub.senders[STREAM].publish(b"%0*d" % (PAYLOAD_BYTES, number))
            batch = list(hub.datagrams_to_send(now=net.now))
            for data, _ in batch:
                out.sendto(data, sink)
            spent += time.process_time() - began
            for data, to in batch:
                net.send(ROOT, to, data)
            net.pump(ROOT)
            net.run_until(net.now + 1 / HZ, max_steps=10**9)
        if second >= FORM_SECONDS:
            means.append(spent / HZ)
    groups = hub.senders[STREAM].groups
    if hub.config.multicast and (groups is None or groups.listening < CHILDREN):
        raise RuntimeError("the group was not formed")
    return min(means)


def _accept(hubs: dict[SocketAddress, Hub], address: SocketAddress, event: events.Event, now: float) -> None:
    if isinstance(event, events.OpeningReceived):
        hubs[address].accept(event.stream, event.ticket, now=now)
