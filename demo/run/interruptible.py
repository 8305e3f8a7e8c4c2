"""Run under trio until done, or until Ctrl-C, SIGTERM or a closed terminal; then everything is unwound in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from peer.cli.stopping import until_stopped

INTERRUPTED = 130


def run_interruptible(main: Callable[[], Awaitable[int]]) -> int:
    """The exit code: what `main` returned, or 130. The first of several errors is raised as it is."""

    async def guarded() -> int:
        # A second Ctrl-C waits, too: the mesh's processes are ended first.
        code, number = await until_stopped(main, impatient=False)
        return code if number is None else INTERRUPTED

    try:
        return trio.run(guarded)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
