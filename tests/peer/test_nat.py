"""A leaf behind a NAT, with nothing forwarded to it: real network namespaces, the kernel's own masquerading.

inside 10.77.0.2 --- 10.77.0.1 NAT 192.0.2.1 --- 192.0.2.2 outside
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from peer.cli.errors import ExitCode
from tests.namespaces import Hosts, built, sh
from tests.peer.cli.command import running

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("processes")]

# Only what was asked for from inside comes in; the outside knows no way to the inside's addresses.
RULES = """
table ip skymesh {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    iifname "inner" accept
  }
  chain leave {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "outer" masquerade
  }
}
"""


class Network(Hosts):
    def __init__(self) -> None:
        super().__init__("sky", ("in", "nat", "out"))

    def build(self) -> None:
        super().build()
        inner, nat, outer = (self.names[part] for part in ("in", "nat", "out"))
        sh("ip", "-n", inner, "link", "add", "eth", "type", "veth", "peer", "name", "inner", "netns", nat)
        sh("ip", "-n", outer, "link", "add", "eth", "type", "veth", "peer", "name", "outer", "netns", nat)
        for name, device, address in (
            (inner, "eth", "10.77.0.2/24"),
            (nat, "inner", "10.77.0.1/24"),
            (nat, "outer", "192.0.2.1/24"),
            (outer, "eth", "192.0.2.2/24"),
        ):
            sh("ip", "-n", name, "address", "add", address, "dev", device)
            sh("ip", "-n", name, "link", "set", device, "up")
        sh("ip", "-n", inner, "route", "add", "default", "via", "10.77.0.1")
        sh(*self.inside("nat"), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        sh(*self.inside("nat"), "nft", "-f", "-", data=RULES)


@pytest.fixture
def network() -> Iterator[Network]:
    with built(Network()) as network:
        yield network


def test_a_leaf_behind_a_nat_gets_the_stream_and_can_ask_again(network, tmp_path: Path):
    with running(
        *("root", "--roots-key", "asdi", "--feed", "demo", "--rate", "100", "--listen", "192.0.2.2:0", "--no-beacon"),
        *("--status-file", str(tmp_path / "root.json")),
        prefix=network.inside("out"),
    ) as root:
        address = root.says("skymesh: root of").split(" on ")[1].split(",")[0]
        with running(
            *("join", "--roots-key", "asdi", "--leaf", "--parents", "1", "--bootstrap", address, "--no-beacon"),
            *("--format", "jsonl"),
            prefix=network.inside("in"),
        ) as leaf:
            leaf.until(lambda: len(leaf.out) > 50)
            root.until(lambda: has_child(tmp_path / "root.json"))
            (child,) = json.loads((tmp_path / "root.json").read_text())["children_held"]
            assert child["address"].startswith("192.0.2.1:"), "the root sees the NAT, never the leaf"
            # The inside goes away for a moment, as a laptop does; the link or a new one goes on without a gap.
            sh("ip", "-n", network.names["nat"], "link", "set", "inner", "down")
            seen = len(leaf.out)
            sh("ip", "-n", network.names["nat"], "link", "set", "inner", "up")
            leaf.until(lambda: len(leaf.out) > seen + 100)
            assert leaf.stop() == ExitCode.INTERRUPTED
        lines = [json.loads(line) for line in leaf.out]
        ans = [line["an"] for line in lines]
        assert ans == list(range(ans[0], ans[0] + len(ans)))


def has_child(path: Path) -> bool:
    return path.exists() and len(json.loads(path.read_text())["children_held"]) == 1
