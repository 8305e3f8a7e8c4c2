"""`python -m bench NAME [--json] [--plot]`; `python -m bench` lists what there is."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from types import ModuleType

import bench
from bench.report import commit, progress, save_figure, show


def benchmarks() -> dict[str, str]:
    """Name on the command line -> module: every module of the package that has a `run`."""
    found = {}
    for info in pkgutil.iter_modules(bench.__path__):
        if not info.name.startswith("_") and info.name != "report":
            found[info.name.replace("_", "-")] = f"bench.{info.name}"
    return found


def parser_for(name: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=module.SUMMARY)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--plot", action="store_true", help="also write the figure to docs/figures")
    module.add_arguments(parser)
    return parser


def run_one(name: str, path: str, arguments: list[str]) -> bool:
    module = importlib.import_module(path)
    args = parser_for(name, module).parse_args(arguments)
    measured = commit()  # by the end of a long run the tree may be another
    report = module.run(args)
    show(report, as_json=args.json, measured=measured)
    if args.plot:
        figure = save_figure(report)
        progress(f"figure: {figure}" if figure else f"{name} has no figure")
    return bool(report.reached)


def main(argv: list[str]) -> int:
    """Exit code 0 when every target was reached, 1 when one was missed, 2 for a wrong call."""
    available = benchmarks()
    if not argv or argv[0] in {"-h", "--help", "--list"}:
        print("usage: python -m bench NAME [--json] [--plot] [options of that benchmark]\n")
        for name, path in sorted(available.items()):
            print(f"  {name:<14} {importlib.import_module(path).SUMMARY}")
        print("\n  --all          run all of them with their default options")
        return 0
    if argv[0] == "--all":
        reached = [
            run_one(name, path, argv[1:])
            for name, path in sorted(available.items())
            if not getattr(importlib.import_module(path), "NEEDS_ARGUMENTS", False)
        ]
        return 0 if all(reached) else 1
    path_of = available.get(argv[0])
    if path_of is None:
        progress(f"bench: no benchmark named {argv[0]!r}; available: {', '.join(sorted(available))}")
        return 2
    return 0 if run_one(argv[0], path_of, argv[1:]) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
