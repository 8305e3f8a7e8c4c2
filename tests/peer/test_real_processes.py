"""Real processes on loopback with the real DHT: killed, frozen and restarted at random, with datagrams lost."""

from __future__ import annotations

import random
import signal
import time

import pytest

from bench._peers import Peers
from dht import Identity

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("processes")]

PAYLOADS = [b"<p><n>%d</n><c>%d</c></p>" % (number, number % 5) for number in range(1_000)]
QUERIES = [None, "/p/c=1", "/p/c>2", "/p/n>500"]
PATIENCE = 90.0
"""Seconds that a busy machine may take for what takes two."""


def eventually(what, *, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while (left := what()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


class Mesh:
    def __init__(self, peers, folder, *, routers, clients, loss):
        self.peers = peers
        owner = folder / "owner.key"
        Identity.generate().save(owner)
        common = {"loss": loss}
        first = peers.start("root 0", role="root", owner=str(owner), identity=str(folder / "root0.key"), **common)
        common["bootstrap"] = [first.address]
        second = peers.start("root 1", role="root", owner=str(owner), identity=str(folder / "root1.key"), **common)
        common["bootstrap"] = [first.address, second.address]
        for i in range(routers):
            key = str(folder / f"router{i}.key")
            peers.start(f"router {i}", role="router", deliver=False, dynamic=i % 2 == 0, identity=key, **common)
        for i in range(clients):
            query = QUERIES[i % len(QUERIES)]
            peers.start(f"client {i}", role="leaf", query=query, payloads=PAYLOADS, **common)

    def named(self, kind):
        return [peer for peer in self.peers.all if peer.name.startswith(kind)]

    def feed(self, rate, last):
        self.feeding = (time.monotonic() + 0.5, rate, PAYLOADS, last)
        for root in self.named("root"):
            root.ask("feed", self.feeding)

    def restart(self, peer):
        again = self.peers.restart(peer)
        if again.name.startswith("root"):
            again.ask("feed", self.feeding)
        return again


def run_havoc(folder, *, seed, routers, clients, seconds, rate):
    dice = random.Random(seed)
    with Peers() as peers:
        mesh = Mesh(peers, folder, routers=routers, clients=clients, loss=0.05)
        for peer in [*mesh.named("router"), *mesh.named("client")]:
            peer.wait_parents(2, patience=PATIENCE)
        last = int(seconds * rate)
        mesh.feed(rate, last)
        end = time.monotonic() + seconds
        killed = set()
        while time.monotonic() < end:
            time.sleep(dice.uniform(0.3, 1.0))
            victim = dice.choice(
                [*mesh.named("router"), *mesh.named("router"), *mesh.named("root"), *mesh.named("client")]
            )
            if dice.random() < 0.5:
                killed.add(victim.name)
                victim.signal(signal.SIGKILL)
                time.sleep(dice.uniform(0.1, 2.0))
                mesh.restart(victim)
            else:
                victim.signal(signal.SIGSTOP)
                time.sleep(dice.uniform(0.2, 4.0))
                victim.signal(signal.SIGCONT)

        def incomplete():
            told = {peer.name: peer.ask("expectation", last) for peer in mesh.named("client")}
            return {name: answer for name, answer in told.items() if answer["missing"] is not None}

        # A client that was restarted after the last packet has nothing to wait for: it starts at now.
        left = eventually(incomplete)
        told = {peer.name: peer.ask("expectation", last) for peer in mesh.named("client")}
        assert left == {}, f"seed {seed}"
        for peer in mesh.named("client"):
            if peer.options["query"] is None and peer.name not in killed:
                assert told[peer.name]["packets"] >= 0.9 * last, f"seed {seed}: it was there from the start"
        assert {name: answer["wrong"] for name, answer in told.items() if answer["wrong"]} == {}, f"seed {seed}"
        assert {name: answer["gaps"] for name, answer in told.items() if answer["gaps"]} == {}, f"seed {seed}"


@pytest.mark.timeout(300)
def test_a_small_mesh_of_processes_survives_kills_and_freezes(tmp_path):
    run_havoc(tmp_path, seed=1, routers=3, clients=3, seconds=8, rate=100)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_roots_six_routers_and_eight_clients_for_a_minute(tmp_path, seed):
    run_havoc(tmp_path, seed=seed, routers=6, clients=8, seconds=60, rate=500)
