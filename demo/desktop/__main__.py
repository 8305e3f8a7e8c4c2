"""`python -m demo.desktop`: join a stream and watch it, or with --demo a mesh of its own."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peer.guest import GuestStream

NEEDS_QT = "skymesh: the desktop example needs PySide6: pip install 'skymesh[desktop]'"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo.desktop",
        description="A desktop window on a stream of flights: a map, a query box, a resilience indicator.",
        epilog="to try it without a running mesh: python -m demo.desktop --demo",
    )
    parser.add_argument("--roots-key", default="asdi", metavar="NAME", help="the stream (default: asdi)")
    parser.add_argument("--bootstrap", action="append", default=[], metavar="HOST:PORT", help="a peer to start from")
    parser.add_argument("--parents", type=int, default=2, metavar="N", help="parents to hold (default: 2)")
    parser.add_argument("--query", default="", metavar="XPATH", help="initial query (default: everything)")
    parser.add_argument("--no-beacon", action="store_true", help="do not look for peers on this host and LAN")
    parser.add_argument("--demo", action="store_true", help="also start two roots with the built-in feed")
    parser.add_argument("--speed", type=float, default=20.0, metavar="X", help="of --demo's feed (default: 20)")
    parser.add_argument("--screenshot", metavar="FILE", help="save a picture of the window after --after and exit")
    parser.add_argument("--after", type=float, default=20.0, metavar="SECONDS", help="(default: 20)")
    return parser


def main(argv: Sequence[str]) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        from PySide6.QtCore import QTimer
        from PySide6.QtWidgets import QApplication
    except ImportError as error:
        print(f"{NEEDS_QT} ({error})", file=sys.stderr)
        return 1
    import peer
    from demo.desktop.window import Window, explained
    from peer.optionspec import address

    if arguments.query and (problem := explained(arguments.query)):
        print(f"skymesh: invalid query: {problem}", file=sys.stderr)
        return 5
    try:
        bootstrap = [address(text) for text in arguments.bootstrap]
    except ValueError as error:
        print(f"skymesh: --bootstrap: {error}", file=sys.stderr)
        return 2
    application = QApplication(sys.argv[:1])
    with roots(arguments.roots_key, arguments.speed) if arguments.demo else nothing() as own:
        join: functools.partial[GuestStream] = functools.partial(
            peer.guest.join_qt,
            arguments.roots_key,
            parents=arguments.parents,
            capacity=0,
            bootstrap=[*bootstrap, *own],
            beacon=not (arguments.no_beacon or arguments.demo),
        )
        window = Window(arguments.roots_key, join, query=arguments.query)
        window.show()
        if arguments.screenshot:

            def shoot() -> None:
                window.grab().save(arguments.screenshot)
                window.close()

            QTimer.singleShot(int(arguments.after * 1_000), shoot)
        application.exec()
        window.stream.finish()
    if window.error is not None:
        print(f"skymesh: {window.error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def nothing() -> Iterator[list[tuple[str, int]]]:
    yield []


@contextmanager
def roots(stream: str, speed: float) -> Iterator[list[tuple[str, int]]]:
    """Two roots with one owner: either could die, and the window would go on."""
    from demo.desktop.demomesh import DemoMesh

    with DemoMesh(stream, speed) as mesh:
        yield mesh.addresses


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
