"""Ctrl-C, SIGTERM and a closed terminal: run a command under trio until it ends or is asked to."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from peer.cli.errors import ExitCode


async def until_stopped(command: Callable[[], Awaitable[int]], *, impatient: bool) -> tuple[int, int | None]:
    """The exit code, and the signal that cancelled the command, if any. If `impatient`, a second Ctrl-C exits."""
    caught: list[int] = []
    code = int(ExitCode.OK)
    scope = trio.CancelScope()
    token = trio.lowlevel.current_trio_token()

    def stop(number: int, _frame: object) -> None:
        # Only a second Ctrl-C is impatience. SIGTERM comes twice by itself, from a parent and from its end.
        if impatient and caught and number == signal.SIGINT:
            os._exit(ExitCode.INTERRUPTED)
        caught.append(number)
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(scope.cancel)

    before = {number: signal.signal(number, stop) for number in _stop_signals()}
    try:
        with scope:
            code = await command()
    finally:
        # After a signal the handlers stay until the process ends: a second SIGTERM must not kill it on its way out.
        if not caught:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code, caught[0] if caught else None


def _stop_signals() -> list[signal.Signals]:
    """The signals that end a command: also a closed terminal, unless SIGHUP is ignored (nohup)."""
    stops = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stops.append(signal.SIGHUP)
    return stops
