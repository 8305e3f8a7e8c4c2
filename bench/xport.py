"""The XPORT paper's figures and tables, and our mesh of n parents: how near a goal the optimizer comes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bench import _xport_mesh, _xport_paper, _xport_peers, _xport_processes
from bench.report import Report, Target, progress

SUMMARY = "how near its goal the optimizer brings a mesh: the XPORT paper's figures and tables, and ours"
COLUMNS = ["row", "case", "start", "end", "figure", "transformations"]
Rows = list[dict[str, Any]]
EXPERIMENTS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "star": lambda args: _xport_paper.star(),
    "superfluous": lambda args: _xport_paper.superfluous(),
    "fanout": lambda args: _xport_paper.fanout(),
    "cpu": lambda args: _xport_paper.cpu(),
    "constraint": lambda args: _xport_paper.constraint(),
    "bottleneck": lambda args: _xport_paper.bottleneck(),
    "traffic": lambda args: _xport_paper.traffic(),
    "statistics": lambda args: _xport_paper.statistics(),
    "mesh": lambda args: _xport_mesh.mesh(tuple(args.peers)),
    "goals": lambda args: _xport_mesh.goals(),
    "churn": lambda args: _xport_mesh.churn(),
    "peers": lambda args: _xport_peers.peers(),
    "processes": lambda args: _xport_processes.processes(),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--row", action="append", choices=sorted(EXPERIMENTS), help="only this row (repeatable)")
    parser.add_argument("--peers", type=int, nargs="+", default=[300, 1000], help="of the mesh (default %(default)s)")


def run(args: argparse.Namespace) -> Report:
    found: dict[str, Rows] = {}
    for name in args.row or EXPERIMENTS:
        progress(name)
        found[name] = EXPERIMENTS[name](args)
    targets = [target for name, rows in found.items() for target in TARGETS[name](rows)]
    table = [_line(name, row) for name, rows in found.items() for row in rows]
    data = {"rows": [{"row": name} | _rounded(row) for name, rows in found.items() for row in rows]}
    return Report("xport", data, COLUMNS, table, targets, draw=lambda figure: _draw(figure, found))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()
            if key != "curve"}  # fmt: skip


def _line(name: str, row: dict[str, Any]) -> list[Any]:
    """The figures of one row that people look at first."""
    case = [
        str(row[key]) for key in ("kinds", "metric", "fanout", "limit_ms", "p", "peers", "policy", "goal") if key in row
    ]
    first = next((row[key] for key in row if key.startswith("start")), "")
    last = next((row[key] for key in row if key.startswith(("end", "cost_ms", "optimized", "optimization"))), "")
    ratios = (
        "end_to_star",
        "end_to_best",
        "to_star",
        "end_to_optimum",
        "gain",
        "variance_ratio",
        "cost_to_today",
        "end_to_start",
    )
    ratio = next((row[key] for key in ratios if key in row), "")
    return [name, " ".join(case), first, last, ratio, row.get("transformations", row.get("moves", ""))]


# Targets, from the table of the design


def _at_most(name: str, value: float, limit: float) -> Target:
    return Target(name, value <= limit + 1e-9, f"{value:.4g} (at most {limit:.4g})")


def _at_least(name: str, value: float, limit: float) -> Target:
    return Target(name, value >= limit - 1e-9, f"{value:.4g} (at least {limit:.4g})")


def _star(rows: Rows) -> list[Target]:
    (row,) = rows
    return [
        _at_most("star, end_to_star", row["end_to_star"], 1.0),
        _at_most("star, transformations", row["transformations"], row["inner_peers"]),
    ]


def _superfluous(rows: Rows) -> list[Target]:
    whole, without = rows[0], rows[1]
    return [
        _at_most("superfluous, end_kb", whole["end_kb"], 0.0),
        _at_most("superfluous, transformations", whole["transformations"], 25),
        Target(
            "superfluous, end_kb without subtree promotion", without["end_kb"] > 0, f"{without['end_kb']:.4g} (above 0)"
        ),
    ]


def _fanout(rows: Rows) -> list[Target]:
    limits = {2: 1.35, 6: 1.10, 10: 1.05}
    return [
        _at_most(f"fanout {row['fanout']}, latency, end_to_best", row["end_to_best"], limits[row["fanout"]])
        for row in rows
        if row["metric"] == "latency" and row["fanout"] in limits
    ]


def _cpu(rows: Rows) -> list[Target]:
    return [_at_most("cpu, to_idle", rows[0]["to_idle"], 1.0), _at_most("cpu, to_star", rows[0]["to_star"], 0.65)]


def _constraint(rows: Rows) -> list[Target]:
    limits = {None: 1.0, 400: 1.8, 300: 2.1}
    found = []
    for row in rows:
        name = f"constraint, {row['limit_ms'] or 'no'} limit"
        found.append(_at_most(f"{name}, violation", row["violation"], 0.0))
        found.append(_at_most(f"{name}, end_to_optimum", row["end_to_optimum"], limits[row["limit_ms"]]))
    return found


def _bottleneck(rows: Rows) -> list[Target]:
    limits = {2: 1.8, 6: 3.0, 10: 3.0}
    return [
        _at_least(f"bottleneck, fan-out {row['fanout']}, gain", row["gain"], limits[row["fanout"]])
        for row in rows
        if row["fanout"] in limits
    ]


def _traffic(rows: Rows) -> list[Target]:
    sent = {row["metric"]: row["optimization_bytes"] for row in rows}
    return [_at_most("traffic, bottleneck to latency", sent["bottleneck"] / sent["latency"], 0.25)]


def _statistics(rows: Rows) -> list[Target]:
    found = []
    for row in rows:
        if row["p"] and row["announces"]:
            found.append(_at_most(f"statistics, p = {row['p']}, variance_ratio", row["variance_ratio"], 1.15))
            found.append(_at_least(f"statistics, p = {row['p']}, saved", row["saved"], 0.95))
    return found


def _mesh(rows: Rows) -> list[Target]:
    found = []
    for row in rows:
        if row["policy"] not in ("local", "concurrent"):
            continue
        name = f"mesh, {row['peers']} peers, {row['policy']}"
        found += [
            _at_most(f"{name}, cost_to_today", row["cost_to_today"], 0.60),
            _at_most(f"{name}, hops_max", row["hops_max"], 12),
            _at_most(f"{name}, flaps_per_move", row["flaps_per_move"], 0.03),
            _at_most(f"{name}, level_violations", row["level_violations"], 0),
        ]
    return found


def _goals(rows: Rows) -> list[Target]:
    limits = {"latency": 0.65, "superfluous": 0.50, "outgoing": 0.65}
    found = []
    for row in rows:
        name = f"goals, {row['goal']}, end_to_start"
        limit = limits.get(row["goal"])
        found.append(_at_least(name, row["end_to_start"], 1.35) if limit is None else
                     _at_most(name, row["end_to_start"], limit))  # fmt: skip
    return found


def _churn(rows: Rows) -> list[Target]:
    today, local = rows[0], rows[-1]
    return [
        _at_most("churn, local, cost_to_today", local["cost_to_today"], 0.75),
        _at_most("churn, local, short", local["short"], today["short"]),
        _at_most("churn, local, p99 of tries per repair", local["tries_p99"], today["tries_p99"]),
        _at_most("churn, local, level_violations", local["level_violations"], 0),
    ]


def _peers(rows: Rows) -> list[Target]:
    return [_at_most("peers, end_to_best", rows[0]["end_to_best"], 1.3)]


def _processes(rows: Rows) -> list[Target]:
    (row,) = rows
    return [
        _at_most("processes, end_to_best", row["end_to_best"], 1.3),
        _at_most("processes, packets lost", row["lost"], 0),
    ]


TARGETS: dict[str, Callable[[Rows], list[Target]]] = {
    "star": _star,
    "superfluous": _superfluous,
    "fanout": _fanout,
    "cpu": _cpu,
    "constraint": _constraint,
    "bottleneck": _bottleneck,
    "traffic": _traffic,
    "statistics": _statistics,
    "mesh": _mesh,
    "goals": _goals,
    "churn": _churn,
    "peers": _peers,
    "processes": _processes,
}

# The figure: beside the paper's Figures 5, 6, 8 and 9, and our own


def _draw(figure: Any, found: dict[str, Rows]) -> None:
    plots: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
        ("star", "Figure 5: latency, to the star's", lambda row: "20 peers"),
        ("superfluous", "Figure 6: superfluous data, KB", lambda row: row["kinds"]),
        ("constraint", "Figure 8: mean incoming data, KB", lambda row: f"limit {row['limit_ms'] or 'none'}"),
        ("bottleneck", "Figure 9: lowest bandwidth, kbit/s", lambda row: f"fan-out {row['fanout']}"),
        ("mesh", "our mesh: expected first copy, ms", lambda row: f"{row['peers']}, {row['policy']}"),
    ]
    plots = [plot for plot in plots if plot[0] in found]
    figure.set_size_inches(7.5, 2.6 * ((len(plots) + 1) // 2))
    for place, (name, title, label) in enumerate(plots):
        axes = figure.add_subplot((len(plots) + 1) // 2, 2, place + 1)
        for row in found[name]:
            axes.plot(row["curve"], label=label(row), linewidth=1)
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("slots of 5 s" if name == "mesh" else "transformations", fontsize=7)
        axes.tick_params(labelsize=7)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=5)
