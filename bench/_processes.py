"""Two processes that speak over loopback: the first binds a socket and announces it, the second is told of it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Result = dict[str, Any]
# Far beyond any run of a benchmark: a peer that is gone must not hang the other one for good.
PATIENCE = 1_800.0


# The first is called with a function that announces its address, the second with that address; then the options.
First = Callable[..., Result]
Second = Callable[..., Result]


def run_pair(first: First, second: Second, **options: Any) -> tuple[Result, Result]:
    """What both gave back. Both get the same options; both are gone when this returns, however it returns."""
    # Spawned, not forked: neither process inherits the memory of the other, which one of the benchmarks measures.
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(), context.Pipe()]
    processes = [
        context.Process(target=_run_first, args=(pipes[0][1], first, options), daemon=True),
        context.Process(target=_run_second, args=(pipes[1][1], second, options), daemon=True),
    ]
    try:
        for process in processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()  # so that a process that dies is noticed as the end of its pipe
        pipes[1][0].send(_receive(pipes[0][0], first))
        return _receive(pipes[0][0], first), _receive(pipes[1][0], second)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


def _receive(ours: Connection, who: Callable[..., Result]) -> Any:
    if not ours.poll(PATIENCE):
        raise RuntimeError(f"{who.__name__} has not answered for {PATIENCE:.0f} s")
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError(f"{who.__name__} ended without a result; its error is above") from None


def _run_first(pipe: Connection, first: First, options: Result) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    pipe.send(first(pipe.send, **options))


def _run_second(pipe: Connection, second: Second, options: Result) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(second(pipe.recv(), **options))
