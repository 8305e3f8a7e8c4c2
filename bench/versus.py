"""Is this tree slower than another one? The same benchmark in both, in turns, within one run.

    git worktree add ../before COMMIT
    python -m bench versus ../before

Two runs minutes apart differ by a tenth and more on the same code, so a figure from yesterday proves nothing. Here the
trees take turns, each turn gives one ratio, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.report import REPOSITORY, Report, Target, commit, progress

NEEDS_ARGUMENTS = True
SUMMARY = "firehose and forward in this tree and in another one, in turns: is it slower?"

ALLOWED = 0.95
"""New over old: below this it is slower. Ratios of equal trees vary by about 3 %."""

# Benchmark, options of one turn, and the rates (packets per second) to compare, by name.
BENCHES = {
    "firehose": ["--packets", "20000", "--sample", "200000", "--repetitions", "1"],
    "forward": ["--repetitions", "1", "--packets", "10000", "--children", "1", "4", "16"],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("other", type=Path, help="the root of the other tree, a git worktree for example")
    parser.add_argument("--turns", type=int, default=5, help="turns of each tree (%(default)s)")
    parser.add_argument("--benches", nargs="+", choices=sorted(BENCHES), default=sorted(BENCHES))


def run(args: argparse.Namespace) -> Report:
    if not (args.other / "bench").is_dir():
        raise SystemExit("bench: name the root of another tree of this project: python -m bench versus ../before")
    found: dict[str, list[tuple[float, float]]] = {}
    for bench in args.benches:
        for turn in range(args.turns):
            progress(f"{bench}: turn {turn + 1} of {args.turns}")
            trees = [args.other.resolve(), REPOSITORY]
            rates = {tree: _rates(tree, bench) for tree in (trees if turn % 2 else reversed(trees))}
            for name, new in rates[REPOSITORY].items():
                found.setdefault(name, []).append((rates[trees[0]][name], new))
    rows = [_Row(name, pairs) for name, pairs in found.items()]
    return Report(
        name="versus",
        data={"other": commit(args.other), "rows": [row.document() for row in rows]},
        columns=["what", "old/s", "new/s", "new/old", "each turn"],
        rows=[[row.what, row.old, row.new, row.ratio, " ".join(map(str, row.ratios))] for row in rows],
        targets=[Target(f"{row.what} not slower", row.ratio >= ALLOWED, f"{row.ratio} ({ALLOWED})") for row in rows],
        notes=[f"old: commit {commit(args.other)}"],
    )


class _Row:
    """One rate, in both trees."""

    def __init__(self, what: str, pairs: list[tuple[float, float]]) -> None:
        self.what = what
        self.old = round(statistics.median(old for old, _ in pairs))
        self.new = round(statistics.median(new for _, new in pairs))
        self.ratios = [round(new / old, 3) for old, new in pairs]
        self.ratio = round(statistics.median(self.ratios), 3)

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "old_per_s": self.old,
            "new_per_s": self.new,
            "ratio": self.ratio,
            "ratios": self.ratios,
        }


def _rates(tree: Path, bench: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-m", "bench", bench, "--json", *BENCHES[bench]],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,  # 1: a target was missed, which is not the question here
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    if bench == "forward":
        return {f"forward, {row['children']} children": row["packets_per_s"] for row in rows}
    return {f"firehose, {row['kind']}": row["packets_per_second"][0] for row in rows if row["kind"] != "bare"}
