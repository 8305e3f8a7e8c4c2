"""One publisher, its readers and a path between them, in virtual time: what `adaptive` and `relate` measure.

The real machines of dcp (`Hub`) on `dcp.testing.Network`. Loss is on both ways. The first seconds do not count, so that
timers and the controller have learned what they will; the same for every row.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from dcp import events
from dcp.claims import Claim
from dcp.config import Config
from dcp.hub import Hub
from dcp.links.link import SocketAddress
from dcp.profile import PLAIN, Profile
from dcp.receiver import Receiver
from dcp.testing import Conditions, Network

STREAM = "bench"
PAYLOAD_BYTES = 12
UDP_IP = 28
WARM_UP = 10.0
SETTLE = 5.0


@dataclass(frozen=True)
class Cell:
    """A path and a stream. Times in seconds, loss as a share, `burst` the mean run of losses (0: independent)."""

    rtt: float
    hz: float
    loss: float
    burst: float = 0.0

    def conditions(self) -> Conditions:
        delay = self.rtt / 2
        if not self.burst:
            return Conditions(delay=delay, jitter=0.05 * delay, loss=self.loss)
        leave = 1 / self.burst
        enter = self.loss * leave / (1 - self.loss)
        return Conditions(delay=delay, jitter=0.05 * delay, burst_enter=enter, burst_leave=leave)


@dataclass
class Outcome:
    expected: int = 0
    delays: list[float] = field(default_factory=list)
    """From sending to handing over, of each packet and reader."""
    waits: list[float] = field(default_factory=list)
    """From coming in to handing over."""
    bytes: int = 0
    """Of all peers, both ways, with UDP and IP."""
    plain_bytes: int = 0
    """One UDP datagram for each packet and reader."""
    changes: list[tuple[float, str]] = field(default_factory=list)
    """When the protection changed, counted from the first packet, and to what."""
    nacks: int = 0
    gaps: int = 0

    @property
    def mean(self) -> float:
        return sum(self.delays) / len(self.delays) if self.delays else 0.0

    @property
    def p99(self) -> float:
        return sorted(self.delays)[int(0.99 * (len(self.delays) - 1))] if self.delays else 0.0

    @property
    def delivered(self) -> float:
        return len(self.delays) / self.expected if self.expected else 0.0

    @property
    def relate(self) -> float:
        """Mean latency over the share received; in seconds."""
        return self.mean / self.delivered if self.delivered else float("inf")

    @property
    def relate2(self) -> float:
        """Mean latency times (percent lost + 1); in seconds."""
        return self.mean * (100 * (1 - self.delivered) + 1)

    @property
    def bytes_ratio(self) -> float:
        return self.bytes / self.plain_bytes


def run(
    cell: Cell,
    seed: int,
    *,
    profile: Profile = PLAIN,
    config: Config | None = None,
    parents: int = 1,
    readers: int = 1,
    seconds: float = 20.0,
    later: Sequence[tuple[float, Cell]] = (),
    warm_up: float = WARM_UP,
) -> Outcome:
    """`later`: at these times after the first packet the path becomes another one."""
    return _Run(cell, seed, profile, config or Config(), parents, readers).go(seconds, later, warm_up)


class _Run:
    def __init__(self, cell: Cell, seed: int, profile: Profile, config: Config, parents: int, readers: int) -> None:
        self.cell = cell
        self.net = Network(
            seed, conditions=Conditions(delay=cell.rtt / 2), on_event=self._on_event, on_turn=self._on_turn
        )
        self.roots: list[SocketAddress] = [(f"10.0.0.{number + 1}", 1) for number in range(parents)]
        self.clients: list[SocketAddress] = [(f"10.0.1.{number + 1}", 1) for number in range(readers)]
        self.hubs: dict[SocketAddress, Hub] = {}
        for address in (*self.roots, *self.clients):
            self.hubs[address] = Hub(config, rng=random.Random(f"{seed}{address}"))
        self.receivers: dict[SocketAddress, Receiver] = {
            address: self.hubs[address].subscribe(STREAM, profile=profile) for address in self.clients
        }
        for address in self.roots:
            self.hubs[address].serve(STREAM).publish_hole(0)
            self.net.add(address, self.hubs[address])
        self.sent: dict[int, float] = {}
        self.taken: dict[SocketAddress, dict[int, float]] = {address: {} for address in self.clients}
        self.seen: dict[SocketAddress, dict[int, float]] = {address: {} for address in self.clients}
        self.outcome = Outcome()
        self._choice = "plain"
        self._began = 0.0
        for address in self.clients:
            self._spy(address)
            self.net.add(address, self.hubs[address])
            for root in self.roots:
                self.hubs[address].add_sender(STREAM, root, now=0.0)
            self.net.pump(address)

    def _spy(self, address: SocketAddress) -> None:
        """Note when each packet came in."""
        intake, seen = self.receivers[address]._intake, self.seen[address]
        hear = intake.hear

        def spy(claim: Claim, now: float) -> None:
            for an, _ in claim.packets:
                seen.setdefault(an, now)
            hear(claim, now)

        intake.hear = spy  # type: ignore[method-assign]

    def _on_event(self, address: SocketAddress, event: events.Event, now: float) -> None:
        if isinstance(event, events.OpeningReceived):
            self.hubs[address].accept(event.stream, event.ticket, now=now)

    def _on_turn(self, address: SocketAddress) -> None:
        receiver = self.receivers.get(address)
        if receiver is None:
            return
        taken = self.taken[address]
        for item in receiver.take(4_096):
            if isinstance(item, events.Packet):
                taken.setdefault(item.an, self.net.now)
            elif isinstance(item, events.Gap):
                self.outcome.gaps += item.until - item.after
        choice = receiver.mending.steering.choice.name
        if address == self.clients[0] and choice != self._choice:
            self._choice = choice
            self.outcome.changes.append((self.net.now - self._began, choice))

    def _bytes(self) -> int:
        counts = [hub.statistics() for hub in self.hubs.values()]
        return sum(count.bytes_out + UDP_IP * count.datagrams_out for count in counts)

    def _publish(self, number: int) -> None:
        for root in self.roots:
            an = self.hubs[root].senders[STREAM].publish(b"%0*d" % (PAYLOAD_BYTES, number))
            self.sent[an] = self.net.now
            self.net.pump(root)

    def go(self, seconds: float, later: Sequence[tuple[float, Cell]], warm_up: float) -> Outcome:
        net, cell, outcome = self.net, self.cell, self.outcome
        net.run_until(3.0)
        net.set_conditions(cell.conditions())
        self._began = net.now
        for after, other in later:
            net.at(net.now + after, lambda other=other: net.set_conditions(other.conditions()))
        packets = int((warm_up + seconds) * cell.hz)
        for number in range(packets):
            net.at(net.now + number / cell.hz, lambda number=number: self._publish(number))
        net.run_until(net.now + warm_up, max_steps=10**9)
        before = self._bytes()
        net.run_until(self._began + warm_up + seconds, max_steps=10**9)
        outcome.bytes = self._bytes() - before
        net.run_until(net.now + SETTLE, max_steps=10**9)
        counted = [an for an in self.sent if an > int(warm_up * cell.hz)]
        for address in self.clients:
            taken, seen = self.taken[address], self.seen[address]
            outcome.expected += len(counted)
            outcome.delays += [taken[an] - self.sent[an] for an in counted if an in taken]
            outcome.waits += [taken[an] - seen[an] for an in counted if an in taken and an in seen]
            outcome.nacks += self.receivers[address].statistics(net.now).nacks
        outcome.plain_bytes = len(counted) * len(self.clients) * (PAYLOAD_BYTES + UDP_IP)
        return outcome
