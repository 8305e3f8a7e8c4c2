"""What lying parents achieve beside one honest parent, rule by rule, and what the rules cost when nobody lies.

Real machines in virtual time (`bench._lying`). The grid is 88 runs for each set of rules and seed: 11 kinds of liar, a
client alone and below two routers over the same parents, the honest parent 20 and 500 ms later than the liars, loss and
reordering of 0 and 5 %, with a pause of 4 s in the middle; 150 wanted packets in each run. Signed rows get from outside
what signatures will give: authentic copies, the signed head, and proof of a packet.

The cost is measured with two honest parents, the second one later, 100 wanted packets per second out of 400: bytes to
and from the client, and the delay of packets, against the same run without the rules.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from bench import _lying
from bench._lying import LIARS, RULES, Outcome
from bench._processes import Result, run_all
from bench.report import Report, Target, progress

SUMMARY = "packets lost to lying parents beside one honest parent, by rule and kind of liar, and what the rules cost"

TODAY = "none"
MAX_LATE = 0.005
MAX_DELAY = 1.5
MAX_BYTES = 1.04
LAGS = (0.02, 0.5)
LOSSES = (0.0, 0.05)
COST_LAGS = (0.02, 0.1, 0.5)


@dataclass(frozen=True)
class Variant:
    """A set of rules, in a stream with or without signatures."""

    rules: str
    without: tuple[str, ...]
    signed: bool


ALL_SIGNED = Variant("all", (), signed=True)
ALL_UNSIGNED = Variant("all", (), signed=False)
VARIANTS = [
    Variant(TODAY, RULES, signed=False),
    ALL_SIGNED,
    ALL_UNSIGNED,
    *(Variant(f"without {rule}", (rule,), signed=True) for rule in RULES),
]


@dataclass
class Row:
    """The sum over all runs of one variant and kind of liar."""

    variant: Variant
    liar: str
    wanted: int = 0
    silent: int = 0
    gapped: int = 0
    late: int = 0
    stuck: int = 0
    honest_convicted: int = 0
    liars_convicted: int = 0
    worst_delay: float = 0.0
    p99s: list[float] = field(default_factory=list)
    bytes: int = 0
    bytes_today: int = 0

    def add(self, found: dict[str, Any], bytes_today: int) -> None:
        for name in ("wanted", "silent", "gapped", "late", "stuck", "honest_convicted", "liars_convicted", "bytes"):
            setattr(self, name, getattr(self, name) + found[name])
        self.worst_delay = max(self.worst_delay, found["worst_delay"])
        self.p99s.append(found["p99"])
        self.bytes_today += bytes_today

    @property
    def bytes_ratio(self) -> float:
        return self.bytes / self.bytes_today

    @property
    def p99(self) -> float:
        return sum(self.p99s) / len(self.p99s)

    def document(self) -> dict[str, Any]:
        return {
            "rules": self.variant.rules,
            "liar": self.liar,
            "signed": self.variant.signed,
            "wanted": self.wanted,
            "silent": self.silent,
            "gapped": self.gapped,
            "late": self.late,
            "stuck": self.stuck,
            "honest_convicted": self.honest_convicted,
            "liars_convicted": self.liars_convicted,
            "worst_delay_s": round(self.worst_delay, 3),
            "p99_ms": round(self.p99 * 1e3, 1),
            "bytes_ratio": round(self.bytes_ratio, 4),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each run of the grid (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one seed, no ablations: a minute instead of an hour")
    parser.add_argument(
        "--no-ablations", action="store_true", help="only with all rules and with none: a quarter of the time"
    )
    parser.add_argument("--processes", type=int, default=2, help="processes that share the runs (%(default)s)")


def run(args: argparse.Namespace) -> Report:
    seeds = 1 if args.quick else args.seeds
    variants = VARIANTS[:3] if args.quick or args.no_ablations else VARIANTS
    cells = [*product(LIARS, (False, True), LAGS, LOSSES, range(seeds))]
    jobs: list[tuple[Any, ...]] = [("grid", number, *cell) for cell in cells for number in range(len(variants))]
    cost_cells = [*product(COST_LAGS, LOSSES, range(seeds))]
    jobs += [("cost", number, *cell) for cell in cost_cells for number in (0, 2)]
    progress(f"{len(jobs)} runs in {args.processes} processes")
    shares = [jobs[number :: args.processes] for number in range(args.processes)]
    results: dict[tuple[Any, ...], dict[str, Any]] = {}
    for share in run_all(measure, [{"jobs": share} for share in shares]):
        results.update(share["found"])
    rows = [Row(variant, liar) for variant in variants for liar in LIARS]
    by_key = {(row.variant, row.liar): row for row in rows}
    for number, variant in enumerate(variants):
        for cell in cells:
            found, today = results["grid", number, *cell], results["grid", 0, *cell]
            by_key[variant, cell[0]].add(found, today["bytes"])
    costs = _costs(results, cost_cells, variants)
    return Report(
        name="liars",
        data={"seeds": seeds, "runs_per_line": len(cells), "rows": [row.document() for row in [*rows, *costs]]},
        columns=(
            "rules",
            "signed",
            "liar",
            "silent",
            "gapped",
            "late",
            "stuck",
            "honest conv.",
            "liars conv.",
            "worst s",
            "p99 ms",
            "bytes",
        ),
        rows=[tuple(_cells(row)) for row in [*rows, *costs]],
        targets=_targets(rows, costs),
        notes=[_summary(variant, [row for row in rows if row.variant == variant]) for variant in variants],
    )


def _cells(row: Row) -> list[Any]:
    return [
        row.variant.rules,
        row.variant.signed,
        row.liar,
        row.silent,
        row.gapped,
        row.late,
        row.stuck,
        row.honest_convicted,
        row.liars_convicted,
        row.worst_delay,
        row.p99 * 1e3,
        row.bytes_ratio,
    ]


def _costs(
    results: dict[tuple[Any, ...], dict[str, Any]], cells: list[tuple[float, float, int]], variants: list[Variant]
) -> list[Row]:
    """One line for each lag and loss, with no liar: `none` and `all`."""
    rows: dict[tuple[int, str], Row] = {}
    for lag, loss, seed in cells:
        label = f"no liar, {lag * 1e3:.0f} ms, loss {loss:.0%}"
        for number in (0, 2):
            row = rows.setdefault((number, label), Row(variants[number], label))
            row.add(results["cost", number, lag, loss, seed], results["cost", 0, lag, loss, seed]["bytes"])
    return list(rows.values())


def _summary(variant: Variant, rows: list[Row]) -> str:
    names = ("wanted", "silent", "gapped", "late", "stuck", "honest_convicted", "liars_convicted")
    sums = ", ".join(f"{name.replace('_', ' ')} {sum(getattr(row, name) for row in rows):,}" for name in names)
    worst = max(row.worst_delay for row in rows)
    return f"{variant.rules}, {'signed' if variant.signed else 'unsigned'}: {sums}, worst delay {worst:.2f} s"


def _targets(rows: list[Row], costs: list[Row]) -> list[Target]:
    signed = [row for row in rows if row.variant == ALL_SIGNED]
    unsigned = [row for row in rows if row.variant == ALL_UNSIGNED]
    harm = sum(row.silent + row.stuck + row.gapped + row.honest_convicted for row in signed)
    late = sum(row.late for row in signed) / sum(row.wanted for row in signed)
    worst = max(row.worst_delay for row in signed)
    silent = sum(row.silent for row in unsigned if row.liar != "forge")
    with_rules = [row for row in costs if row.variant == ALL_UNSIGNED]
    without = {row.liar: row for row in costs if row.variant.rules == TODAY}
    bytes_ratio = max(row.bytes_ratio for row in with_rules)
    p99s = [(row.p99, without[row.liar].p99) for row in with_rules if row.liar.endswith("loss 0%")]
    return [
        Target("signed: silent, stuck, gapped, honest convicted 0", harm == 0, str(harm)),
        Target("signed: late at most 0.5 %", late <= MAX_LATE, f"{late:.2%}"),
        Target("signed: worst delay at most 1.5 s", worst <= MAX_DELAY, f"{worst:.2f} s"),
        Target("unsigned: silent 0 except forged", silent == 0, str(silent)),
        Target("nobody lies: bytes at most +4 %", bytes_ratio <= MAX_BYTES, f"{bytes_ratio - 1:+.1%}"),
        Target(
            "nobody lies, no loss: p99 equal",
            all(abs(ours - theirs) < 1e-3 for ours, theirs in p99s),
            ", ".join(f"{ours * 1e3:.1f}/{theirs * 1e3:.1f} ms" for ours, theirs in p99s),
        ),
    ]


# --- in the processes -------------------------------------------------------------------------------------------------


def measure(*, jobs: list[tuple[Any, ...]]) -> Result:
    return {"found": {job: _document(_run_job(job)) for job in jobs}}


def _run_job(job: tuple[Any, ...]) -> Outcome:
    kind, number, *cell = job
    variant = VARIANTS[number]
    with _lying.without(*variant.without):
        if kind == "cost":
            lag, loss, seed = cell
            return _lying.run((), honest=("A", "B"), lag=lag, loss=loss, rate=400, seconds=5, seed=seed)
        liar, routers, lag, loss, seed = cell
        return _lying.run(
            LIARS[liar], signed=variant.signed, routers=routers, lag=lag, loss=loss, pause=4.0, seed=1 + seed
        )


def _document(outcome: Outcome) -> dict[str, Any]:
    names = ("wanted", "silent", "gapped", "late", "stuck", "honest_convicted", "liars_convicted", "bytes")
    return {name: getattr(outcome, name) for name in (*names, "worst_delay", "p99")}
