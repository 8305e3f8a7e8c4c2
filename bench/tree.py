"""The reference tree of `peer.mesh.reftree`: the experiments of the paper on trees over a DHT, and 10,000 hosts.

Section 4 of the paper: 256 keys, 10 to 120 hosts that come and go; the degree of hosts, and the *reconfiguration area*,
the hosts of the smallest subtree that joins the ends of all links that a change made or removed (without the newcomer).
Then n parents over 160-bit places: children, hops, and who is cut off when 30 % of the hosts die at once. Last a mesh
of the peers' own machines in virtual time (`bench._tree_mesh`): joins, deaths, and how soon all are in place again.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from functools import partial
from statistics import mean
from typing import Any

from bench import _tree_figure, _tree_mesh
from bench.report import Report, Target, progress
from peer.mesh.reftree import Holders, ReferenceTree, Rules, crown_of, depths, expected_parents

SUMMARY = "the reference tree: degree and reconfiguration area (section 4), and n parents for 10,000 hosts"
KEYS = 256
HOSTS = (10, 30, 60, 90, 120)
CHANGES = 120
DYING = 0.3
ROOTS = (-1, -2, -3)
ROOT_SLOTS = 30
MESHES = (Rules(1, 2, -1), Rules(2, 6, crown_of(ROOT_SLOTS, 2)), Rules(3, 8, crown_of(45, 3)))
MAX_DEPTH = 16
LINKS_OF_3_5 = [
    {(9, 5), (9, 13), (13, 11), (13, 15)},
    {(9, 4), (4, 5), (9, 13), (13, 11), (13, 15)},
    {(9, 4), (4, 5), (9, 15), (15, 11)},
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arity", type=int, nargs="+", default=[2, 3, 7], help="children of a node (%(default)s)")
    parser.add_argument("--hosts", type=int, default=10_000, help="of the large meshes (%(default)s)")
    parser.add_argument(
        "--live", type=int, default=1_000, help="peers of the mesh in virtual time; 0: none (%(default)s: 40 minutes)"
    )
    parser.add_argument("--seed", type=int, default=1)


def run(args: argparse.Namespace) -> Report:
    rng = random.Random(args.seed)
    small = [churn(arity, hosts, rng) for arity in args.arity for hosts in HOSTS]
    progress(f"{args.hosts:,} hosts")
    large = [shape(rules, args.hosts, rng) for rules in MESHES]
    rows: list[list[Any]] = []
    for row in small:
        name = f"{row['arity']} below, {row['hosts']} hosts of {KEYS} keys"
        rows.append([name, row["degree_max"], row["area_join"], row["area_leave"], "", ""])
    for row in large:
        name = f"n = {row['parents']}, capacity {row['capacity']}, {row['hosts']:,} hosts"
        rows.append([name, row["children_max"], "", "", row["depth_max"], row["cut_off"]])
    data: dict[str, Any] = {"figures_of_3_5": examples(), "section_4": small, "meshes": large, "live": None}
    columns = ("mesh", "most neighbors/children", "area join", "area leave", "longest path", "cut off when 30 % die")
    targets = _targets(data)
    notes = []
    if args.live:
        live = data["live"] = _tree_mesh.measure(args.live, args.seed)
        targets += _live_targets(live)
        notes = [f"{args.live:,} peers in virtual time: " + ", ".join(f"{name} {live[name]}" for name in live)]
    draw = partial(_tree_figure.draw, section_4=small)
    return Report("tree", data, columns, rows, targets, draw=draw, notes=notes)


def _live_targets(live: dict[str, Any]) -> list[Target]:
    join = live["join_messages"] + live["join_lookup_messages"]
    return [
        Target("join p99 <= 2.5 s", live["join_p99_s"] <= 2.5, str(live["join_p99_s"])),
        Target("join <= 100 messages", join <= 100, f"{join:.0f}, {live['join_lookup_messages']:.0f} of look-ups"),
        Target("one death: repair p99 <= 2 s", live["repair_p99_s"] <= 2, str(live["repair_p99_s"])),
        Target("one death: repair <= 15 messages", live["repair_messages"] <= 15, str(live["repair_messages"])),
        Target("exact_60s >= 0.97", live["exact_60s"] >= 0.97, str(live["exact_60s"])),
        Target("exact_240s >= 0.99", live["exact_240s"] >= 0.99, str(live["exact_240s"])),
        Target("30 % at once: repair p99 <= 5 s", live["mass_repair_p99_s"] <= 5, str(live["mass_repair_p99_s"])),
        Target("nobody short after 30 s", not live["short_after_30s"], str(live["short_after_30s"])),
    ]


def _targets(data: dict[str, Any]) -> list[Target]:
    binary = [row for row in data["section_4"] if row["arity"] == 2]
    degree = max((row["degree_max"] for row in binary), default=0)
    area = max((max(row["area_join"], row["area_leave"]) for row in binary), default=0.0)
    more = [row for row in data["meshes"] if row["parents"] > 1]
    depth = max(row["depth_max"] for row in more)
    return [
        Target("the links of Figures 2a, 2b and 2c", data["figures_of_3_5"], str(data["figures_of_3_5"])),
        Target("degree_max 3 (binary)", degree <= 3, str(degree)),
        Target("areas <= 3 (binary)", area <= 3, str(area)),
        Target("children_max <= capacity", all(r["children_max"] <= r["capacity"] for r in more), ""),
        Target(f"depth_max <= {MAX_DEPTH}", depth <= MAX_DEPTH, str(depth)),
        Target("level_violations 0", not any(row["level_violations"] for row in data["meshes"]), ""),
    ]


def examples() -> bool:
    """Section 3.5, link by link."""
    hosts = Holders(ReferenceTree(2, 16), [5, 9, 11, 13, 15])
    found = [links(hosts)]
    hosts.add(4)
    found.append(links(hosts))
    hosts.remove(13)
    found.append(links(hosts))
    return found == LINKS_OF_3_5


def links(hosts: Holders) -> set[tuple[int, int]]:
    found = ((hosts.parent(place), place) for place in hosts.places)
    return {(parent, place) for parent, place in found if parent is not None}


def churn(arity: int, count: int, rng: random.Random) -> dict[str, Any]:
    """Joins and leaves in turn, from `count` hosts."""
    hosts = Holders(ReferenceTree(arity, KEYS), rng.sample(range(KEYS), count))
    areas: tuple[list[int], list[int]] = ([], [])
    degrees: Counter[int] = Counter()
    before = links(hosts)
    for step in range(CHANGES):
        if step % 2:
            hosts.remove(rng.choice(hosts.places))
        else:
            hosts.add(rng.choice([key for key in range(KEYS) if key not in hosts.nodes]))
        after = links(hosts)
        if len(after) != len(hosts) - 1:
            raise AssertionError("not a tree")
        areas[step % 2].append(area(before, after) - (step % 2 == 0))
        degrees.update(Counter(end for link in after for end in link).values())
        before = after
    return {
        "arity": arity,
        "hosts": count,
        "area_join": round(mean(areas[0]), 2),
        "area_leave": round(mean(areas[1]), 2),
        "degree_max": max(degrees),
        "degrees": {degree: round(times / degrees.total(), 3) for degree, times in sorted(degrees.items())},
    }


def area(before: set[tuple[int, int]], after: set[tuple[int, int]]) -> int:
    """Hosts of the subtree that joins the ends of what changed, in the tree afterwards."""
    up = {child: parent for parent, child in after}
    ways = []
    for host in {end for link in before ^ after for end in link} & (up.keys() | set(up.values())):
        way = [host]
        while way[-1] in up:
            way.append(up[way[-1]])
        ways.append(way[::-1])
    shared = 0
    while ways and all(len(way) > shared and way[shared] == ways[0][shared] for way in ways):
        shared += 1
    return len({host for way in ways for host in way[max(0, shared - 1) :]})


def shape(rules: Rules, count: int, rng: random.Random) -> dict[str, Any]:
    hosts = Holders(ReferenceTree(2), (rng.getrandbits(160) for _ in range(count)))
    up = expected_parents(hosts, rules, ROOTS)
    rank = {place: len(node) for place, node in hosts.nodes.items()}
    children = Counter(parent for parents in up.values() for parent in parents if parent >= 0)
    return {
        "parents": rules.parents,
        "capacity": rules.capacity,
        "crown": rules.crown,
        "hosts": count,
        "children_max": max(children.values()),
        "depth_max": max(depths(up).values()),
        "hops_mean": round(mean(_hops(up).values()), 2),
        "cut_off": round(mean(_cut_off(up, rng) for _ in range(10)), 3),
        "level_violations": sum(
            parent >= 0 and rank[parent] >= rank[place] for place, parents in up.items() for parent in parents
        ),
    }


def _hops(up: dict[int, list[int]]) -> dict[int, int]:
    hops: dict[int, int] = {}
    for place, parents in up.items():
        hops[place] = 1 + min(hops.get(parent, 0) for parent in parents)
    return hops


def _cut_off(up: dict[int, list[int]], rng: random.Random) -> float:
    """Of those that live, the share without a way to a root, before anything is repaired."""
    dead = set(rng.sample(list(up), int(DYING * len(up))))
    fed: set[int] = set(ROOTS)
    for place, parents in up.items():
        if place not in dead and any(parent in fed for parent in parents):
            fed.add(place)
    return 1 - (len(fed) - len(ROOTS)) / (len(up) - len(dead))
