"""Figures 2 to 4 of the paper on trees over a DHT, drawn from what `bench tree` computed."""

from __future__ import annotations

from typing import Any

from peer.mesh.reftree import Holders, ReferenceTree

STEPS = ("5, 9, 11, 13 and 15", "4 joins", "13 fails")


def stages() -> list[Holders]:
    """Section 3.5: five hosts of 16 keys, then one more, then one less."""
    hosts = ([5, 9, 11, 13, 15], [4, 5, 9, 11, 13, 15], [4, 5, 9, 11, 15])
    return [Holders(ReferenceTree(2, 16), places) for places in hosts]


def draw(figure: Any, section_4: list[dict[str, Any]]) -> None:
    trees, charts = figure.subfigures(2, 1)
    for axes, holders, title in zip(trees.subplots(1, 3), stages(), STEPS, strict=True):
        _draw_tree(axes, holders, title)
    degrees, areas = charts.subplots(1, 2)
    binary = [row for row in section_4 if row["arity"] == 2]
    hosts = [row["hosts"] for row in binary]
    for degree in sorted({degree for row in binary for degree in row["degrees"]}):
        degrees.plot(hosts, [row["degrees"].get(degree, 0.0) for row in binary], "o-", label=str(degree))
    degrees.set_xlabel("hosts")
    degrees.set_ylabel("share of hosts")
    degrees.legend(title="neighbors")
    areas.plot(hosts, [row["area_join"] for row in binary], "o-", label="one joins")
    areas.plot(hosts, [row["area_leave"] for row in binary], "o-", label="one leaves")
    areas.set_xlabel("hosts")
    areas.set_ylabel("hosts that a change touches")
    areas.set_ylim(bottom=0)
    areas.legend()


def _draw_tree(axes: Any, holders: Holders, title: str) -> None:
    at = {place: (holders.tree.key(holders.tree.span(node)), -len(node)) for place, node in holders.nodes.items()}
    for place, (x, y) in at.items():
        parent = holders.parent(place)
        if parent is not None:
            above = at[parent]
            axes.plot([x, above[0]], [y, above[1]], color="0.75", zorder=1)
    for place, (x, y) in at.items():
        first, last = holders.keyset(place)
        axes.text(x, y, str(place), ha="center", va="center", zorder=2, bbox={"boxstyle": "circle", "fc": "w"})
        keys = f"{first} to {last}" if first < last else str(first)
        axes.annotate(keys, (x, y), (0, -17), textcoords="offset points", ha="center", va="center", size=7)
    axes.set_title(title, size=10)
    axes.margins(0.2, 0.3)
    axes.axis("off")
