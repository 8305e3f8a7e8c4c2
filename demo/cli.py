"""The command: a mesh with a page, a mesh with a verdict, or a large mesh in virtual time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from demo.errors import DemoError
from demo.run.settings import DemoSettings

DESCRIPTION = """\
Watch a mesh lose half its peers and not one packet.

Starts a real mesh of real processes on this machine - a DHT, roots that feed it with flights, routers, and clients with
different XPath queries - and a page that shows it, where you can kill, freeze, slow down and cut off any of them. The
demo does not assume that no packet was lost: it knows the feed and checks everything that every client receives.
"""
EPILOG = """\
examples:
  python -m demo                                           the page; Ctrl-C ends everything
  python -m demo --clients 10 --routers 12 --parents 3 --roots 3
  python -m demo --headless --seconds 10                   no page, no faults, a verdict
  python -m demo --headless --script parent-killed         a scenario (or your own file), and a verdict
  python -m demo --headless --script all --json            every scenario on one mesh, as JSON
  python -m demo scenarios                                 list the included scenarios
  python -m demo simulate --peers 1000 --minutes 10        a large mesh in virtual time (see simulate --help)
  python -m demo news                                      700 RSS feeds, one root, readers (see news --help)

exit codes: 0 all promises kept; 1 a promise broken; 2 invalid command line; 130 Ctrl-C
"""


def build_parser() -> argparse.ArgumentParser:
    defaults = DemoSettings()
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    mesh = parser.add_argument_group("the mesh")
    for flag, name, words in (
        ("--roots", "roots", "peers that feed the stream into the mesh"),
        ("--routers", "routers", "peers that forward it"),
        ("--clients", "clients", "peers that receive part of it"),
        ("--dht-nodes", "dht_nodes", "bare DHT nodes, through which peers find each other"),
        ("--parents", "parents", "parents per peer: all but one can die without a stall"),
        ("--capacity", "capacity", "maximum number of children of a root or router"),
        ("--log-packets", "log_packets", "packets of history that every peer keeps"),
    ):
        value = getattr(defaults, name)
        mesh.add_argument(
            flag,
            dest=name,
            type=int,
            default=value,
            metavar="N",
            help=f"{words} (default {value:,})",
        )
    mesh.add_argument(
        "--copies",
        type=int,
        default=defaults.copies,
        metavar="N",
        help="copies of the built-in flights; 5 gives about 600 in the air",
    )
    mesh.add_argument(
        "--speed", type=float, default=defaults.speed, metavar="X", help="multiple of real speed (default %(default)g)"
    )
    mesh.add_argument(
        "--goal", metavar="GOAL", help='what the mesh should be good at, as "minimize average(path sum(link.latency))"'
    )
    page = parser.add_argument_group("the page")
    page.add_argument("--port", type=int, default=0, help="port of the page (default: any free port)")
    run = parser.add_argument_group("without a page")
    run.add_argument("--headless", action="store_true", help="no page: run, print a verdict, and exit")
    run.add_argument("--seconds", type=float, metavar="N", help="minimum duration; without --script the default is 10")
    run.add_argument(
        "--script",
        action="append",
        default=[],
        metavar="FILE",
        help="a scenario, by file or name; may be repeated; 'all' runs every included one except the story",
    )
    run.add_argument("--seed", type=int, help="seed for the random choices of a scenario")
    run.add_argument("--json", action="store_true", help="print the verdict as JSON to stdout")
    return parser


def main(argv: Sequence[str]) -> int:
    commands: dict[str, Callable[[Sequence[str]], int]] = {
        "simulate": _simulate,
        "scenarios": _scenarios,
        "news": _news,
    }
    try:
        if argv and argv[0] in commands:
            return commands[argv[0]](argv[1:])
        return _run(argv)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    try:
        settings = DemoSettings(
            roots=args.roots,
            routers=args.routers,
            clients=args.clients,
            dht_nodes=args.dht_nodes,
            parents=args.parents,
            capacity=args.capacity,
            copies=args.copies,
            speed=args.speed,
            log_packets=args.log_packets,
            goal=args.goal,
        )
    except ValueError as error:
        raise DemoError(str(error)) from None
    if not args.headless:
        for flag, value in (
            ("--script", args.script or None),
            ("--seconds", args.seconds),
            ("--json", args.json or None),
            ("--seed", args.seed),
        ):
            if value is not None:
                raise DemoError(f"{flag} requires --headless; the page has buttons for it")
        if not 0 <= args.port <= 65_535:
            raise DemoError(f"--port must be in 0..65535, got {args.port}")
        try:
            from demo.page.run import run_page
        except ModuleNotFoundError as error:
            raise DemoError(f"the page needs {error.name}: pip install 'skymesh[demo]', or use --headless") from None

        return run_page(settings, args.port)
    from demo.scenarios.headless import plan, run_headless

    scenarios = plan(args.script, args.seconds)
    return run_headless(settings, scenarios, seed=args.seed, as_json=args.json)


def _scenarios(argv: Sequence[str]) -> int:
    from demo.scenarios.scenario import built_in, load

    parser = argparse.ArgumentParser(prog="python -m demo scenarios", description="List the included scenarios.")
    parser.parse_args(argv)
    for name in built_in():
        scenario = load(name)
        print(f"{name:16} {scenario.seconds:3.0f} s  {scenario.title}. {scenario.about}")
    return 0


def _simulate(argv: Sequence[str]) -> int:
    from demo.simulate import main as simulate

    return simulate(argv)


def _news(argv: Sequence[str]) -> int:
    from demo.news.mesh import main as news

    return news(argv)
