"""Benchmarks in several processes: pairs that speak over loopback, or shares of one job side by side."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    with _processes([(_run_first, first, options), (_run_second, second, options)]) as (one, two):
        two.send(_receive(one, first))
        return _receive(one, first), _receive(two, second)


def run_all(function: Callable[..., Result], options: Sequence[dict[str, Any]]) -> list[Result]:
    """The function once for each of the options, each in a process of its own, all at the same time.

    However long it takes: they wait for nobody, and one that dies is noticed.
    """
    with _processes([(_run_alone, function, each) for each in options]) as pipes:
        return [_receive(pipe, function, patience=None) for pipe in pipes]


@contextmanager
def _processes(jobs: list[tuple[Callable[..., None], Callable[..., Result], dict[str, Any]]]) -> Iterator[list[Any]]:
    """A process for each job, with our ends of their pipes; they are gone when the block is left, however it is."""
    # Spawned, not forked: no process inherits the memory of another, which one of the benchmarks measures.
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in jobs]
    processes = [
        context.Process(target=target, args=(theirs, function, options), daemon=True)
        for (target, function, options), (_, theirs) in zip(jobs, pipes, strict=True)
    ]
    try:
        for process in processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()  # so that a process that dies is noticed as the end of its pipe
        yield [ours for ours, _ in pipes]
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
        for process in processes:
            if process.pid is not None:
                process.join()


def _receive(ours: Connection, who: Callable[..., Result], *, patience: float | None = PATIENCE) -> Any:
    if not ours.poll(patience):
        raise RuntimeError(f"{who.__name__} did not answer within {PATIENCE:.0f} s")
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError(f"{who.__name__} ended without a result; its error is above") from None


def _run_first(pipe: Connection, first: First, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    pipe.send(first(pipe.send, **options))


def _run_second(pipe: Connection, second: Second, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(second(pipe.recv(), **options))


def _run_alone(pipe: Connection, function: Callable[..., Result], options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(function(**options))
