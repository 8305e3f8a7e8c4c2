"""The peer inside the event loop of a desktop program, Qt or Tk: no thread to think of, every callback in its own.

    stream = peer.guest.join_qt("asdi", on_packet=show, on_event=tell)         # a QApplication exists
    stream = peer.guest.join_tk(window, "asdi", on_packet=show)                # window = tkinter.Tk()
    stream.change_query("/flight/id = 'DAL841'")

Trio runs as a guest (`trio.lowlevel.start_guest_run`): each of its turns is an event of the host. When the host ends
(the last window is closed, Ctrl-C in the terminal) the peer leaves the mesh first.

`run_in_qt` and `run_in_tk` run any other trio program in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Unpack

import trio

from dcp import Gap
from peer import api
from peer.blocking import Notice, calls_of
from peer.errors import PeerClosed, has_left, plain
from peer.items import Content
from peer.node import Event, Packet
from peer.observe.statistics import Statistics
from peer.session import Session

if TYPE_CHECKING:
    import tkinter

    import outcome

    from peer.guest_hosts import Host
    from peer.keywords import JoinKeywords

log = logging.getLogger(__name__)

Done = Callable[[BaseException | None], object]


class GuestRun:
    """A trio program inside a host's loop. All methods belong to the host's thread."""

    def __init__(self, host: Host, main: Callable[[], Awaitable[object]], on_done: Done | None = None) -> None:
        self.is_ending = False
        """It was asked to end, or has ended."""
        self.is_done = False
        self.error: BaseException | None = None
        """What ended it, when that was neither its own end nor `cancel`."""
        self._host = host
        self._main = main
        self._on_done = on_done
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        host.on_end(self.finish)
        trio.lowlevel.start_guest_run(self._run, run_sync_soon_threadsafe=host.call_soon, done_callback=self._ended)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            await self._main()

    def call_soon(self, function: Callable[[], object]) -> None:
        """In trio's next turn; at once before its first one, when nobody else looks. Nothing when it has ended."""
        if self._token is None:
            function()
        else:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function)

    def cancel(self) -> None:
        """End it soon; `on_done` tells when."""
        self.is_ending = True
        self.call_soon(self._scope.cancel)

    def finish(self) -> None:
        """End it now: the host's loop is turned until it is done.

        From a callback (one that closes the window, say) that can't be: it ends in the turns that the host still has,
        and at the latest when the program ends.
        """
        if self.is_done:
            return
        self.cancel()
        if trio.lowlevel.in_trio_task():
            atexit.register(self.finish)
        else:
            self._host.turn_until(lambda: self.is_done)

    def _ended(self, result: outcome.Outcome[None]) -> None:
        self.is_ending = self.is_done = True
        atexit.unregister(self.finish)
        error = getattr(result, "error", None)
        is_interrupted = error is not None and isinstance(plain(error), KeyboardInterrupt)
        self.error = None if error is None or is_interrupted else plain(error)
        self._host.close()
        if self._on_done is not None:
            self._on_done(self.error)
        elif self.error is not None:
            log.error("a program under trio failed", exc_info=self.error)
        if is_interrupted:  # Ctrl-C in the terminal means the whole program
            self._host.quit()


class GuestStream:
    """A joined stream inside a host's loop. All methods belong to the host's thread."""

    def __init__(
        self,
        host: Host,
        stream: str,
        session: Session,
        take: Callable[[Notice], None],
        *,
        tells: bool,
        statistics_every: float | None,
        on_end: Done | None,
    ) -> None:
        self._stream = stream
        self._session = session
        self._take = take
        self._tells = tells
        self._statistics_every = statistics_every
        self._run = GuestRun(host, self._follow, on_end)

    async def _follow(self) -> None:
        tell = self._tell if self._tells else None
        await self._session.run(self._take_all, tell, statistics_every=self._statistics_every)

    async def _take_all(self, items: list[Content]) -> None:
        for item in items:
            self._take(item)
        await trio.lowlevel.checkpoint()  # the host's turn

    def _tell(self, event: Event) -> None:
        if not isinstance(event, Gap):  # gaps come in their place among the packets
            self._take(event)

    @property
    def is_closed(self) -> bool:
        return self._run.is_done

    def change_query(self, query: str | None, namespaces: Mapping[str, str] | None = None) -> None:
        """Want other packets from some position on, which a `QuerySwitched` names. QueryError, PeerClosed."""
        from xmlswitch import Query

        if query is not None:
            Query.parse(query, namespaces or {})
        if self._run.is_ending or (self._session.peer is not None and self._session.peer.is_leaving):
            raise has_left(self._stream)
        self._run.call_soon(lambda: self._change_query(query, namespaces))

    def _change_query(self, query: str | None, namespaces: Mapping[str, str] | None) -> None:
        # It may have begun to leave since the call. `on_end` says so; an error here would end trio, not the caller.
        with contextlib.suppress(PeerClosed):
            self._session.change_query(query, namespaces)

    def statistics(self) -> Statistics | None:
        """What the peer counts; None while it is being opened."""
        return self._session.peer.statistics() if self._session.peer is not None else None

    def close(self) -> None:
        """Leave the mesh; `on_end` tells when that is done."""
        self._run.cancel()

    def finish(self) -> None:
        """The same, but returns when it is done: the host's loop is turned meanwhile."""
        self._run.finish()


def run_in_qt(main: Callable[[], Awaitable[object]], *, on_done: Done | None = None) -> GuestRun:
    """Run a trio program in the loop of the QApplication (or QCoreApplication) that exists; call `exec` as ever."""
    from peer.guest_hosts import QtHost

    return GuestRun(QtHost(), main, on_done)


def run_in_tk(window: tkinter.Tk, main: Callable[[], Awaitable[object]], *, on_done: Done | None = None) -> GuestRun:
    """Run a trio program in the loop of a Tk window; call `mainloop` as ever."""
    from peer.guest_hosts import TkHost

    return GuestRun(TkHost(window), main, on_done)


def join_qt(
    stream: str,
    *,
    on_packet: Callable[[Packet], object],
    on_event: Callable[[Notice], object] | None = None,
    on_end: Done | None = None,
    statistics_every: float | None = None,
    **keywords: Unpack[JoinKeywords],
) -> GuestStream:
    """Take part in a stream from a Qt program, by callbacks in its own loop; options as of `peer.join`.

    `on_event` is called with gaps, starts and switches of the query, each in its place among the packets, and with
    every event of `Peer.events`. `on_end` is called once, with the error that ended the stream or None. A callback that
    raises ends the stream with that error.
    """
    from peer.guest_hosts import QtHost

    return GuestStream(
        QtHost(),
        stream,
        Session(api.join(stream, **keywords)),
        calls_of(stream, on_packet, on_event),
        tells=on_event is not None,
        statistics_every=statistics_every,
        on_end=on_end,
    )


def join_tk(
    window: tkinter.Tk,
    stream: str,
    *,
    on_packet: Callable[[Packet], object],
    on_event: Callable[[Notice], object] | None = None,
    on_end: Done | None = None,
    statistics_every: float | None = None,
    **keywords: Unpack[JoinKeywords],
) -> GuestStream:
    """The same from a Tk program."""
    from peer.guest_hosts import TkHost

    return GuestStream(
        TkHost(window),
        stream,
        Session(api.join(stream, **keywords)),
        calls_of(stream, on_packet, on_event),
        tells=on_event is not None,
        statistics_every=statistics_every,
        on_end=on_end,
    )


__all__ = ["GuestRun", "GuestStream", "join_qt", "join_tk", "run_in_qt", "run_in_tk"]
