"""A network that drops UDP: real network namespaces, the kernel's own firewall.

inside 192.0.2.3 --- firewall (bridge, drops UDP of the inside) --- 192.0.2.2 outside
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

# What the machine inside sends and is sent, but for TCP that it opened itself, is gone without a word.
RULES = """
table inet skymesh {
  chain in {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    meta l4proto tcp ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  }
  chain out {
    type filter hook output priority filter; policy drop;
    oifname "lo" accept
    meta l4proto tcp accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  }
}
"""


class Network(Hosts):
    def __init__(self) -> None:
        super().__init__("skyb", ("in", "out"))

    def build(self) -> None:
        inner, outer = self.names["in"], self.names["out"]
        super().build()
        sh("ip", "-n", inner, "link", "add", "eth", "type", "veth", "peer", "name", "eth", "netns", outer)
        for name, number in ((inner, 3), (outer, 2)):
            sh("ip", "-n", name, "address", "add", f"192.0.2.{number}/24", "dev", "eth")
            sh("ip", "-n", name, "address", "add", f"2001:db8::{number}/64", "dev", "eth", "nodad")
            sh("ip", "-n", name, "link", "set", "eth", "up")
        sh(*self.inside("in"), "nft", "-f", "-", data=RULES)


@pytest.fixture
def network() -> Iterator[Network]:
    with built(Network()) as network:
        yield network


@pytest.mark.parametrize("host", ["192.0.2.2", "[2001:db8::2]"])
def test_join_behind_a_firewall_that_drops_udp_receives_the_stream(network, tmp_path: Path, host):
    """Nothing but the address of one peer is known: directory, parents and stream must all come over TCP."""
    with running(
        *("root", "--roots-key", "asdi", "--feed", "demo", "--rate", "100", "--listen", f"{host}:0"),
        *("--no-beacon", "--owner", str(tmp_path / "owner")),
        prefix=network.inside("out"),
    ) as root:
        address = root.says("skymesh: root of").split(" on ")[1].split(",")[0]
        with running(
            *("root", "--roots-key", "asdi", "--feed", "demo", "--rate", "100", "--listen", f"{host}:0"),
            *("--no-beacon", "--owner", str(tmp_path / "owner"), "--bootstrap", address),
            *("--status-file", str(tmp_path / "root.json")),
            prefix=network.inside("out"),
        ) as second:
            second.says("skymesh: root of")
            with running(
                *("join", "--roots-key", "asdi", "--leaf", "--parents", "2", "--bootstrap", address, "--no-beacon"),
                *("--format", "jsonl", "--status-file", str(tmp_path / "leaf.json")),
                prefix=network.inside("in"),
            ) as leaf:
                # The second root is known from the first one's directory alone.
                leaf.until(lambda: status_of(tmp_path / "leaf.json").get("parents_sound") == 2)
                leaf.until(lambda: len(leaf.out) > 50)
                parents = status_of(tmp_path / "leaf.json")["parents"]
                assert {parent["carrier"] for parent in parents} == {"tcp"}
                second.until(lambda: has_child(tmp_path / "root.json"))
                (child,) = status_of(tmp_path / "root.json")["children_held"]
                assert child["carrier"] == "tcp"
                assert leaf.stop() == ExitCode.INTERRUPTED
            ans = [json.loads(line)["an"] for line in leaf.out]
            assert ans == list(range(ans[0], ans[0] + len(ans)))
            with running(
                *("status", "--roots-key", "asdi", "--bootstrap", address, "--no-beacon", "--json"),
                prefix=network.inside("in"),
            ) as status:
                status.end()
            assert b'"root"' in b"".join(status.out), status.text


def test_over_udp_alone_the_same_join_finds_nobody(network, tmp_path: Path):
    """The test above can fail."""
    with running(
        *("root", "--roots-key", "asdi", "--feed", "demo", "--listen", "192.0.2.2:0", "--no-beacon"),
        prefix=network.inside("out"),
    ) as root:
        address = root.says("skymesh: root of").split(" on ")[1].split(",")[0]
        with running(
            *("join", "--roots-key", "asdi", "--transport", "udp", "--bootstrap", address, "--no-beacon"),
            *("--status-file", str(tmp_path / "leaf.json")),
            prefix=network.inside("in"),
        ) as leaf:
            assert leaf.end() == ExitCode.NO_DHT


def status_of(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}


def has_child(path: Path) -> bool:
    return len(status_of(path).get("children_held", ())) == 1
