"""What a benchmark hands back, and how it is shown: JSON for scripts, a table for people, a PNG for the docs."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FIGURES = REPOSITORY / "docs" / "figures"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure the project promised to reach, and whether this run reached it."""

    name: str
    met: bool
    detail: str


@dataclass(slots=True)
class Report:
    """The outcome of one benchmark.

    `data` is the JSON document; `columns` and `rows` the table; `draw` paints the figure on a matplotlib figure and is
    called only with `--plot`.
    """

    name: str
    data: dict[str, Any]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    targets: list[Target] = field(default_factory=list)
    draw: Callable[[Any], None] | None = None
    notes: Sequence[str] = ()

    @property
    def reached(self) -> bool:
        return all(target.met for target in self.targets)


def commit(tree: Path = REPOSITORY) -> str:
    """The commit that is being measured, with `+` when the tree differs from it."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=tree,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def show(report: Report, *, as_json: bool, measured: str | None = None) -> None:
    """`measured`: what `commit` said when the run began, and its code was loaded."""
    document = {
        "bench": report.name,
        "commit": measured or commit(),
        "python": platform.python_version(),
        **report.data,
        "targets": [{"name": t.name, "met": t.met, "detail": t.detail} for t in report.targets],
    }
    if as_json:
        print(json.dumps(document))
        return
    print(f"{report.name}  (commit {document['commit']}, Python {document['python']})")
    cells = [[_cell(value) for value in row] for row in report.rows]
    widths = [max([len(c), *(len(r[i]) for r in cells)]) for i, c in enumerate(report.columns)]
    print("  ".join(c.rjust(w) for c, w in zip(report.columns, widths, strict=True)))
    for row in cells:
        print("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)))
    for note in report.notes:
        print(note)
    for target in report.targets:
        print(f"[{'reached' if target.met else 'MISSED'}] {target.name}: {target.detail}")


def save_figure(report: Report) -> Path | None:
    """Paint the figure into docs/figures; None when the benchmark has none."""
    if report.draw is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), dpi=110, layout="constrained")
    report.draw(figure)
    FIGURES.mkdir(parents=True, exist_ok=True)
    path = FIGURES / f"{report.name}.png"
    figure.savefig(path, metadata={"Software": None})
    return path


def progress(text: str) -> None:
    """A line on stderr, so that a long run is seen to be alive and stdout stays a document."""
    print(text, file=sys.stderr, flush=True)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        if value == 0:
            return "0"
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
