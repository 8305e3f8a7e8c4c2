"""Real processes, forked in milliseconds from one that has imported everything, and gone with the demo however it ends.

Each has a socket pair to the demo. When the demo is gone the pair closes and the process ends itself. A frozen one
can't, so on Linux the kernel sees to it: the process that forks gets SIGKILL when the demo ends, and each that it has
forked gets it then, too.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import trio

from demo.run.channel import Channel
from demo.run.child import main

FORK_PATIENCE = 30.0


def prepare() -> None:
    """See that the process that forks runs; somebody may have killed it, and with it everybody that it had forked.

    From the main thread: the kernel takes the end of a thread for that of a parent.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["demo.run.preload"])
    multiprocessing.forkserver.ensure_running()


class PeerProcess:
    """One life of one peer."""

    def __init__(self, process: multiprocessing.process.BaseProcess, channel: Channel) -> None:
        self._process = process
        self.channel = channel
        assert process.pid is not None
        self.pid = process.pid

    @classmethod
    async def start(cls, spec: dict[str, Any]) -> PeerProcess:
        """OSError when no process can be had."""
        prepare()
        ours, theirs = socket.socketpair()
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=main, args=(theirs, spec), daemon=True, name=spec["name"])
        try:
            # The first start waits for the imports: not on the event loop. Shielded, so that none is started unseen,
            # but not forever, in case the forking process hangs: what it forks later ends with us anyway.
            with trio.move_on_after(FORK_PATIENCE, shield=True) as waited:
                await trio.to_thread.run_sync(process.start, abandon_on_cancel=True)
            if waited.cancelled_caught:
                raise TimeoutError(f"the forking process did not answer within {FORK_PATIENCE:.0f} s")
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, Channel(trio.SocketStream(trio.socket.from_stdlib_socket(ours))))

    def signal(self, number: signal.Signals) -> None:
        """To this process alone; nothing when it has ended."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    async def wait_ended(self) -> None:
        await trio.lowlevel.wait_readable(self._process.sentinel)
        self._process.join()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in self.channel.messages():
            yield message

    def close(self) -> None:
        """Kill it if it runs, and take it off the list of processes. Waits for the kernel, not for the process."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
