"""Transports of other packages: found by their entry point, within the same limits, harmless when they are broken."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

import dcp
from dcp.carriers import registry
from dcp.carriers.pool import Pool
from dcp.carriers.tcp import StreamConduit, Tcp
from dcp.guard import faults, strictness
from tests.peer.cli.command import REPOSITORY, running

pytestmark = pytest.mark.net

EXAMPLES = REPOSITORY / "docs" / "examples"
ENTRIES = """[skymesh.transports]
unix = unix_transport:UnixSockets
broken = no_such_module:Nothing
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch) -> dict[str, str]:
    """The example as a package that somebody has installed; the environment for commands."""
    package = tmp_path / "site" / "unix_transport-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: unix-transport\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(ENTRIES)
    sockets = tmp_path / "s"
    sockets.mkdir()
    for folder in (str(EXAMPLES), str(package.parent)):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("SKYMESH_SOCKETS", str(sockets))
    yield {"PYTHONPATH": f"{EXAMPLES}:{package.parent}", "SKYMESH_SOCKETS": str(sockets)}
    sys.modules.pop("unix_transport", None)


async def first_packet(client: dcp.Endpoint, root: dcp.Endpoint) -> bytes:
    with trio.fail_after(30):
        async for item in client.subscribe("asdi", [root.address], start=dcp.Start.OLDEST):
            if isinstance(item, dcp.Packet):
                return item.payload
    raise AssertionError("the stream has ended")


async def test_the_example_carries_a_stream(installed):
    async with dcp.open_endpoint(transport="udp,unix") as root, dcp.open_endpoint(transport="unix") as client:
        await root.serve("asdi").send(b"<a/>")
        assert await first_packet(client, root) == b"<a/>"
        assert root.driver.carriers.statistics().open == {("unix", "in"): 1}


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_the_example_carries_a_mesh_of_real_processes(installed):
    local = ("--listen", "127.0.0.1:0", "--no-beacon", "--transport", "unix")
    with running(
        "root", "--roots-key", "asdi", "--feed", "demo", "--rate", "50", *local, environment=installed
    ) as root:
        address = root.says("skymesh: root of").split(" on ")[1].split(",")[0]
        with running(
            *("join", "--roots-key", "asdi", "--parents", "1", "--count", "20", "--bootstrap", address, *local),
            environment=installed,
        ) as leaf:
            assert leaf.end() == 0, leaf.text
            assert b"".join(leaf.out).count(b"<flight") >= 20


def test_names_are_checked_when_they_are_given(installed):
    assert registry.carriers_named("auto") == ("udp", "tcp")
    assert registry.carriers_named("udp, unix") == ("udp", "unix")
    with pytest.raises(ValueError, match="expected auto, udp, broken, tcp, unix"):
        registry.carriers_named("udp,unx")
    with pytest.raises(ValueError, match="can't be loaded"):
        registry.load("broken")


class Faulty(Tcp):
    """Somebody else's transport, with bugs."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    async def connect(self, host, port):
        if self._fault == "connect":
            raise KeyError("a bug")
        return FaultyConduit((await super().connect(host, port))._stream, self._fault)


class FaultyConduit(StreamConduit):
    def __init__(self, stream, fault: str) -> None:
        super().__init__(stream)
        self._fault = fault

    async def send(self, datagrams):
        if self._fault == "send":
            raise ZeroDivisionError
        await super().send(datagrams)

    async def receive(self):
        if self._fault == "receive":
            raise ZeroDivisionError
        return await super().receive()


@pytest.mark.parametrize("fault", ["connect", "send", "receive"])
async def test_a_bug_in_a_transport_costs_a_connection_and_is_counted(fault, monkeypatch):
    faults.clear()
    with strictness(False):
        async with dcp.open_endpoint(transport="auto") as root, dcp.open_endpoint(transport="tcp") as client:
            monkeypatch.setitem(client.driver.carriers._transports, "tcp", Faulty(fault))
            await root.serve("asdi").send(b"<a/>")
            with trio.fail_after(30):
                client.subscribe("asdi", [root.address], start=dcp.Start.OLDEST)
                while not faults:
                    await client.wait_turn()
            with trio.fail_after(30):
                async with dcp.open_endpoint(transport="udp") as other:
                    assert await first_packet(other, root) == b"<a/>"
    assert set(faults) == {"connect" if fault == "connect" else "connection"}
    faults.clear()


async def test_a_pool_without_the_transport_of_an_address_drops_what_goes_there():
    pool = Pool({})
    pool.send(b"x", ("192.0.2.1", 1, "carrier pigeon"), asks=True)
    assert pool.statistics().dropped == {"no connection": 1}
