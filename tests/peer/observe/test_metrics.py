"""Metrics of a real mesh over lossy sockets: the page parses, every family moves, and what reads them names them."""

from __future__ import annotations

import json
import random
import re
from contextlib import AsyncExitStack, suppress

import pytest
import trio

from dcp import Packet, Start
from dcp.testing.faulty import lossy
from peer.api import root_from
from peer.cli.metrics import MAX_SCRAPES, serve_metrics
from peer.observe.metrics import FAMILIES, PREFIX, render
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role
from peer.version import version
from tests.peer.cli.command import REPOSITORY
from tests.peer.observe.exposition import Family, parse

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]
PATIENCE = 90.0
OPERATIONS = REPOSITORY / "docs" / "operations"


async def get(address: tuple[str, int], path: str = "/metrics") -> tuple[str, str]:
    """Status line and body."""
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        await stream.send_all(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        answer = b"".join([part async for part in stream]).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0], body


async def scrape(address: tuple[str, int]) -> dict[str, Family]:
    status, body = await get(address)
    assert status == "HTTP/1.1 200 OK"
    return {name.removeprefix(PREFIX): family for name, family in parse(body).items()}


async def test_every_family_is_there_and_moves():
    """A root, a router and a leaf with two parents over lossy sockets; and more joins than there is room for."""
    dice = random.Random(7)
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(trio.open_nursery())
            pages = {}

            async def start(name, role, loss=0.1, **options):
                options = {"stream": "m", "role": role, "beacon": False, "parents": 1, **options}
                peer = await stack.enter_async_context(open_peer(PeerOptions(**options), bind=lossy(loss, dice)))
                pages[name] = await nursery.start(serve_metrics, peer, ("127.0.0.1", 0))
                return peer

            root = await start("root", Role.ROOT, capacity=3)
            root.core.sender.publish_hole(1_000)
            bootstrap = [root.address]
            router = await start("router", Role.ROUTER, bootstrap=bootstrap, deliver=False)
            await router.wait_parents(1)
            leaf = await start(
                "leaf", Role.LEAF, bootstrap=bootstrap, parents=2, query="/p/n > 0", start=Start.POSITION, position=0
            )
            await leaf.wait_parents(2)
            before = {name: await scrape(address) for name, address in pages.items()}

            async def feed() -> None:
                while True:
                    number = root.core.sender.log.head + 1
                    await root.send(b"<p><n>%d</n></p>" % number)
                    await trio.sleep(0.002)

            nursery.start_soon(feed)
            # One more than the root takes: its third place is kept for repairs.
            await start("late", Role.LEAF, 0.0, bootstrap=bootstrap, parents=2)
            store = root.directory._service.node.store
            store.put(b"k" * 20, b"no record", source="192.0.2.1", now=trio.current_time())
            packets = 0
            while packets < 700:
                packets += sum(isinstance(item, Packet) for item in await leaf.receive_many())
            while "refused_full" not in root.core.mesh.counters:
                await root.wait_turn()
            after = {name: await scrape(address) for name, address in pages.items()}
            nursery.cancel_scope.cancel()

    for families in after.values():
        assert list(families) == list(FAMILIES)
        for name, family in families.items():
            assert (family.kind == "counter") == name.endswith("_total")
            assert family.help

    def moved(peer: str, name: str, **labels: str) -> None:
        assert after[peer][name].of(**labels) > before[peer][name].of(**labels), (peer, name, labels)

    for name in ("packets_total", "bytes_total", "duplicates_total", "recovered_total", "position"):
        moved("leaf", name)
    moved("leaf", "nacks_total", direction="sent")
    for name in ("parent_copies_total", "parent_first_copies_total"):
        moved("leaf", name)
    moved("root", "nacks_total", direction="received")
    for name in ("packets_total", "bytes_total", "sent_packets_total", "sent_bytes_total", "retransmissions_total"):
        moved("root", name)
    for name in ("switched_packets_total", "switch_seconds_total", "log_bytes", "cpu_seconds_total"):
        moved("root", name)
    moved("root", "queue_depth", queue="log")
    moved("root", "joins_refused_total", reason="full")
    moved("root", "dht_refused_total")
    for direction in ("in", "out"):
        moved("leaf", "datagrams_total", direction=direction)
        moved("leaf", "datagram_bytes_total", direction=direction)
    moved("root", "dht_requests_total")
    assert after["root"]["mesh_events_total"].of(event="accepted") >= 2
    found = after["leaf"]
    assert found["gaps_total"].total == 1, "the hole before the root's first packet"
    assert found["dht_lookups_total"].of(result="found") > 0
    assert found["dht_lookup_seconds_total"].total > 0
    assert found["parents_wanted"].total == 2
    assert found["info"].of(role="leaf", stream="m") == 1
    assert all(0 < trip < 5 for trip in found["parent_round_trip_seconds"].samples.values())
    losses = list(found["parent_loss_ratio"].samples.values())
    assert losses
    assert all(0.02 < loss < 0.3 for loss in losses), losses
    assert after["root"]["child_round_trip_max_seconds"].total > 0
    assert after["root"]["memory_bytes"].total > 1e6
    assert after["root"]["switch_queries"].total > 0


async def test_a_child_whose_query_takes_too_long_is_named():
    """Its packets pass unmatched; who runs the parent must see for which child, and how often."""
    large = b"<p>" + b"".join(b"<x><y>%d</y></x>" % number for number in range(400)) + b"</p>"
    with trio.fail_after(PATIENCE):
        async with (
            open_peer(PeerOptions(stream="m", role=Role.ROOT, beacon=False)) as root,
            trio.open_nursery() as nursery,
        ):
            address = await nursery.start(serve_metrics, root, ("127.0.0.1", 0))
            reach = {"stream": "m", "role": Role.LEAF, "beacon": False, "parents": 1, "bootstrap": [root.address]}
            async with (
                open_peer(PeerOptions(**reach, query="//*[. = //*] and //y[. > 398]")) as slow,
                open_peer(PeerOptions(**reach, query="/p/x/y > 398")) as quick,
            ):
                for leaf in (slow, quick):
                    await leaf.wait_parents(1)
                for _ in range(3):
                    await root.send(large)
                children = {child.peer: child for child in root.statistics().children}
                named = children[slow.identity.fingerprint]
                assert (named.cut_off, children[quick.identity.fingerprint].cut_off) == (3, 0)
                families = await scrape(address)
                assert families["cut_off_total"].total == 3
                assert families["child_cut_off_total"].of(child=named.address) == 3
                assert families["child_cut_off_total"].total == 3
            nursery.cancel_scope.cancel()


async def test_strangers_and_crowds_at_the_page_harm_nobody():
    with trio.fail_after(PATIENCE):
        async with (
            open_peer(PeerOptions(stream="m", role=Role.ROOT, beacon=False)) as root,
            trio.open_nursery() as nursery,
        ):
            address = await nursery.start(serve_metrics, root, ("127.0.0.1", 0))
            status, body = await get(address, "/secret")
            assert status == "HTTP/1.1 404 Not Found"
            assert body == "there is only /metrics\n"
            idle = [await trio.open_tcp_stream(*address) for _ in range(2 * MAX_SCRAPES)]
            # Idle connections once shut scrapes out until they timed out.
            assert (await get(address))[0] == "HTTP/1.1 200 OK"
            with suppress(trio.BrokenResourceError):
                assert await idle[0].receive_some() == b"", "the one that was silent for longest gave way"
            for connection in idle:
                await connection.aclose()
            garbage = await trio.open_tcp_stream(*address)
            with suppress(trio.BrokenResourceError):
                await garbage.send_all(b"\0" * 20_000)
                assert await garbage.receive_some() == b""
            await garbage.aclose()
            assert (await get(address))[0] == "HTTP/1.1 200 OK"
            nursery.cancel_scope.cancel()


def names_in(text: str) -> set[str]:
    return set(re.findall(rf"\b{PREFIX}\w+", text))


KNOWN = {PREFIX + name for name in FAMILIES}


def test_every_query_of_the_dashboard_names_a_metric_there_is():
    dashboard = json.loads((OPERATIONS / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 12
    for query in queries:
        assert names_in(query), query
        assert names_in(query) <= KNOWN, query
    # Everything that an operator is told to watch is on it.
    shown = set().union(*map(names_in, queries))
    for name in ("packets", "bytes", "duplicates", "gaps", "retransmissions", "nacks", "dht_lookups", "joins_refused"):
        assert f"{PREFIX}{name}_total" in shown, name
    for name in ("parent_round_trip_seconds", "parent_loss_ratio", "queue_depth", "switch_seconds_total"):
        assert PREFIX + name in shown, name


def test_every_alarm_names_a_metric_there_is_and_is_explained():
    rules = (OPERATIONS / "alerts.yml").read_text()
    assert names_in(rules)
    assert names_in(rules) <= KNOWN
    page = (OPERATIONS / "README.md").read_text()
    alarms = re.findall(r"- alert: (\w+)", rules)
    assert len(alarms) >= 6
    for alarm in alarms:
        assert f"`{alarm}`" in page, alarm
    assert names_in(page) <= KNOWN | {"skymesh_total"}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_is_on_the_page_for_operators(name):
    assert f"`{name}`" in (OPERATIONS / "README.md").read_text()


async def test_a_roots_feed_is_counted_and_its_silence_too(tmp_path):
    """An upstream that died paged nobody: every rate was 0, and 0 is what a quiet stream looks like."""
    from prometheus_client.parser import text_string_to_metric_families

    (tmp_path / "feed.xml").write_bytes(b"<a/><b/>garbage<c/>")
    feed = root_from("m", str(tmp_path / "feed.xml"), beacon=False, keep_numbers=False, name='t"w\\r')
    with trio.fail_after(PATIENCE):
        async with feed as serving:
            await serving.ended.wait()
            page = render(serving.peer, serving)
    found = {
        (sample.name, sample.labels.get("reason")): sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["skymesh_feed_packets_total", None].value == 3
    assert found["skymesh_feed_errors_total", "garbage"].value == 1
    assert found["skymesh_feed_ended", None].value == 1
    assert 0 <= found["skymesh_feed_silence_seconds", None].value < PATIENCE
    labels = found["skymesh_info", None].labels
    assert (labels["name"], labels["version"]) == ('t"w\\r', version())
