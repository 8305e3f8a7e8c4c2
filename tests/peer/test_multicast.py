"""A root and three leaves on one LAN: real network namespaces on a bridge, multicast through the kernel.

root 10.78.0.1 --+-- bridge --+-- leaves 10.78.0.2 to 4
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from peer.cli.errors import ExitCode
from tests.namespaces import Hosts, built, sh
from tests.peer.cli.command import running

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("processes")]

LEAVES = (2, 3, 4)
# What a switch does that has been told not to flood multicast to a port; the beacon is off, so this is all of it.
DEAF = """
table inet skymesh {
  chain in {
    type filter hook input priority filter; policy accept;
    ip daddr 239.0.0.0/8 drop
    ip6 daddr ff12::/16 drop
  }
}
"""


class Lan(Hosts):
    def __init__(self) -> None:
        super().__init__("skym", (0, 1, *LEAVES))

    def build(self) -> None:
        super().build()
        switch = self.names[0]
        sh("ip", "-n", switch, "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
        sh("ip", "-n", switch, "link", "set", "switch", "up")
        for number in (1, *LEAVES):
            name, port = self.names[number], f"p{number}"
            sh("ip", "-n", name, "link", "add", "eth", "type", "veth", "peer", "name", port, "netns", switch)
            sh("ip", "-n", switch, "link", "set", port, "master", "switch")
            sh("ip", "-n", switch, "link", "set", port, "up")
            sh("ip", "-n", name, "address", "add", f"10.78.0.{number}/24", "dev", "eth")
            sh("ip", "-n", name, "address", "add", f"fd78::{number}/64", "dev", "eth", "nodad")
            sh("ip", "-n", name, "link", "set", "eth", "up")


@pytest.fixture
def lan() -> Iterator[Lan]:
    with built(Lan()) as lan:
        yield lan


def status_of(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}


def carriers(path: Path) -> list[str]:
    return sorted(child["carrier"] for child in status_of(path).get("children_held", ()))


def start(stack: ExitStack, lan, folder: Path, host: str, *options: str):
    """A root and its leaves, each a host of its own, with status files in the folder."""
    root = stack.enter_context(
        running(
            *("root", "--roots-key", "asdi", "--feed", "demo", "--rate", "50", "--listen", f"{host}:0"),
            *("--no-beacon", "--status-file", str(folder / "root.json"), *options),
            prefix=lan.inside(1),
        )
    )
    address = root.says("skymesh: root of").split(" on ")[1].split(",")[0]
    leaves = [
        stack.enter_context(
            running(
                *("join", "--roots-key", "asdi", "--leaf", "--parents", "1", "--bootstrap", address),
                *("--no-beacon", "--format", "jsonl", "--status-file", str(folder / f"{number}.json")),
                prefix=lan.inside(number),
            )
        )
        for number in LEAVES
    ]
    return root, leaves


@pytest.mark.parametrize("host", ["10.78.0.1", "[fd78::1]"])
def test_leaves_on_one_lan_get_the_stream_by_multicast_and_without_it_by_their_links(lan, tmp_path: Path, host):
    status = tmp_path / "root.json"
    with ExitStack() as stack:
        root, leaves = start(stack, lan, tmp_path, host)
        root.until(lambda: carriers(status) == ["multicast"] * 3)
        seen = [len(leaf.out) for leaf in leaves]
        for leaf, before, number in zip(leaves, seen, LEAVES, strict=True):
            leaf.until(lambda leaf=leaf, before=before: len(leaf.out) > before + 50)
            leaf.until(
                lambda number=number: (
                    [p["carrier"] for p in status_of(tmp_path / f"{number}.json")["parents"]] == ["multicast"]
                )
            )
        # One of them no longer hears the group: two are not worth one, and all go on over their links.
        sh(*lan.inside(LEAVES[0]), "nft", "-f", "-", data=DEAF)
        root.until(lambda: carriers(status) == ["udp"] * 3)
        seen = [len(leaf.out) for leaf in leaves]
        for leaf, before in zip(leaves, seen, strict=True):
            leaf.until(lambda leaf=leaf, before=before: len(leaf.out) > before + 50)
        for leaf in leaves:
            assert leaf.stop() == ExitCode.INTERRUPTED
            ans = [json.loads(line)["an"] for line in leaf.out]
            assert ans == list(range(ans[0], ans[0] + len(ans)))


def test_without_multicast_nobody_is_offered_a_group(lan, tmp_path: Path):
    """The test above can fail."""
    status = tmp_path / "root.json"
    with ExitStack() as stack:
        root, leaves = start(stack, lan, tmp_path, "10.78.0.1", "--no-multicast")
        for leaf in leaves:
            leaf.until(lambda leaf=leaf: len(leaf.out) > 100)
        root.until(lambda: carriers(status) == ["udp"] * 3)
