"""Run under trio until done, or until Ctrl-C, SIGTERM or a closed terminal; then everything is unwound in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from peer.cli.running import stop_signals

INTERRUPTED = 130


def run_interruptible(main: Callable[[], Awaitable[int]]) -> int:
    """The exit code: what `main` returned, or 130. The first of several errors is raised as it is."""
    result = INTERRUPTED

    async def guarded() -> None:
        nonlocal result
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(*stop_signals()) as signals:
                nursery.start_soon(_cancel_on, signals, nursery)
                result = await main()
                nursery.cancel_scope.cancel()

    try:
        trio.run(guarded)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    return result


async def _cancel_on(signals: object, nursery: trio.Nursery) -> None:
    async for _ in signals:  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()
        return
