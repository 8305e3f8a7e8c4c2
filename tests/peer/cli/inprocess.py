"""The command line called in this process: the same parser, commands, codes and sentences, without a start of Python.

Standard output is captured at its descriptor (`capfd`), since packets are written there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from peer.cli.errors import ExitCode, explain
from peer.cli.main import PROGRAM, main


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str


def call_here(capfd, *arguments: str, environment: dict[str, str] | None = None) -> Done:
    """As `command.call`, in this process. A fault of the program is raised."""
    capfd.readouterr()
    with clean(environment or {}):
        try:
            code: int = main(arguments)
            sentence = ""
        except SystemExit as end:  # argparse
            code, sentence = int(end.code or 0), ""
        except KeyboardInterrupt:
            code, sentence = ExitCode.INTERRUPTED, ""
        except Exception as error:
            explained = explain(error)
            if explained is None:
                raise
            code, sentence = explained
    out, err = capfd.readouterr()
    return Done(
        int(code), out.encode("utf-8", "surrogateescape"), err + (f"{PROGRAM}: {sentence}\n" if sentence else "")
    )


@contextmanager
def clean(environment: dict[str, str]) -> Iterator[None]:
    """No settings of whoever runs the tests."""
    kept = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("PEER_"):
            del os.environ[name]
    os.environ |= {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"} | environment
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextmanager
def root_here(source: str, *, stream: str = "asdi", **options) -> Iterator[str]:
    """A root with a feed in a thread of this process; its address, for --bootstrap."""
    from peer.api import root_from

    opened: list[str] = []
    is_open, token = threading.Event(), []
    scope = trio.CancelScope()
    failed: list[BaseException] = []

    async def run() -> None:
        token.append(trio.lowlevel.current_trio_token())
        with scope:
            async with root_from(stream, source, beacon=False, **options) as feed:
                while feed.peer is None:  # noqa: ASYNC110  # nobody tells
                    await trio.sleep(0.01)
                host, port = feed.peer.address
                opened.append(f"{host}:{port}")
                is_open.set()
                await trio.sleep_forever()

    def thread() -> None:
        try:
            trio.run(run)
        except BaseException as error:
            failed.append(error)
        finally:
            is_open.set()

    running = threading.Thread(target=thread, daemon=True)
    running.start()
    is_open.wait(60)
    if failed:
        raise failed[0]
    try:
        yield opened[0]
    finally:
        token[0].run_sync_soon(scope.cancel)
        running.join(30)
