"""How results are shown: a table for people, JSON for scripts, a PNG when asked for."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    return value


def rows_of(frame: Any, *, limit: int | None = None) -> list[dict[str, Any]]:
    """A small frame as dictionaries."""
    taken = frame if limit is None else frame.limit(limit)
    return [{key: plain(value) for key, value in row.asDict().items()} for row in taken.collect()]


def table(rows: Sequence[dict[str, Any]], *, limit: int = 40) -> str:
    """Aligned columns; numbers short enough to read."""
    if not rows:
        return "(nothing)"
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows[:limit]]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(names)]
    lines = ["  ".join(name.rjust(width) for name, width in zip(names, widths, strict=True))]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    if len(rows) > limit:
        lines.append(f"... and {len(rows) - limit} more (--json has all)")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def emit(document: Any, text: str, *, as_json: bool) -> None:
    print(json.dumps(document) if as_json else text)


def progress(text: str) -> None:
    print(f"pipeline: {text}", file=sys.stderr, flush=True)


def save_plot(path: Path, draw: Callable[[Any], None]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    draw(figure)
    figure.savefig(path)
    progress(f"plot: {path}")


def one_sentence(error: BaseException) -> str:
    """Summarize an error raised by Spark: the message of the worker's own error if there is one."""
    ours = "PipelineError|ArchiveError|PacketLogError|LogDamaged|RecorderEnded|OSError"
    found = re.findall(rf"(?:{ours}): (.+)", str(error))
    if found:
        return str(found[-1]).strip()
    if "Traceback (most recent call last)" in str(error):
        # The last line of Python's part; Java's part follows it.
        found = re.findall(r"^(?:\w+\.)*([A-Z]\w*: .+)$", str(error).partition("SQLSTATE")[0], re.MULTILINE)
        if found:
            return f"a worker failed: {found[-1]}"
    first = str(error).strip().splitlines()
    return first[0] if first else type(error).__name__
