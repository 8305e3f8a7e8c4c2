"""The peer for programs that are not written for trio: it runs in a thread of its own.

    for item in peer.blocking.join("asdi", query="/flight/flightleg/altitude > 300"):
        ...

    async for item in peer.blocking.join("asdi"):      # under asyncio
        ...

    with peer.blocking.listen("asdi", on_packet=print) as listener:
        ...

    with peer.blocking.root("ticks") as publisher:
        publisher.send(b"<tick/>")

Everything here may be called from any thread. A stream that nobody holds any more leaves the mesh by itself; so do all
when the program ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import trio

from dcp import Gap, Omitted, Packet
from peer import api
from peer.errors import PeerClosed, has_left, plain
from peer.items import Content
from peer.keywords import JoinKeywords, RootKeywords
from peer.mailbox import Ended, Mailbox
from peer.node import Event, Peer
from peer.observe.statistics import Statistics
from peer.session import Session

log = logging.getLogger(__name__)

MAX_WAITING = 1_024
"""Items between the peer's thread and the program; beyond, they wait in the peer's own queue (docs/peer.md)."""
MAX_EVENTS = 256
CLOSE_TIMEOUT = 10.0
"""Children have `MeshConfig.leave_grace` to find others; nobody is waited for longer than this."""
LOOK_INTERVAL = 0.5

T = TypeVar("T")
Notice = Content | Event


class _Thread:
    """A peer in a thread. The program's handle refers to this; nothing here refers to the handle."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[Peer],
        *,
        max_waiting: int = MAX_WAITING,
        events: Mailbox[Event] | None = None,
        statistics_every: float | None = None,
    ) -> None:
        self.items: Mailbox[Notice] = Mailbox(max_waiting)
        self.events = events
        """Where events go; None: to the items, for whoever takes both."""
        self.tells = False
        self.last: Statistics | None = None
        self._statistics_every = statistics_every
        self._session = Session(opening)
        self._opened: Future[Peer] = Future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._run, name="skymesh", daemon=True)

    def start(self) -> Peer:
        """The peer, open. What keeps it from opening is raised here, in the program's own thread."""
        _running.add(self)
        self._thread.start()
        try:
            return self._opened.result()
        except BaseException:
            self.stop()  # it did not open; or Ctrl-C came while it did
            raise

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            trio.run(self._main)
        except BaseException as caught:
            error = plain(caught)
        if not self._opened.done():
            self._opened.set_exception(error or RuntimeError("closed while it was being opened"))
        self.items.close(error)
        if self.events is not None:
            self.events.close()
        _running.discard(self)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        await self._session.run(
            self.items.put,
            self._tell if self.tells else None,
            statistics_every=self._statistics_every,
            opened=self._opened.set_result,
        )

    def _tell(self, event: Event) -> None:
        if self.events is None:
            if isinstance(event, Gap):
                return  # it comes in its place among the packets
            was_taken = self.items.put_or_drop(event)
        else:
            was_taken = self.events.put_or_drop(event)
        if not was_taken:
            log.info("the program is too slow: it missed %s", type(event).__name__)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def call(self, function: Callable[[], T]) -> T:
        """Run in the peer's thread and give back what it gives; RunFinishedError when the peer has gone."""
        assert self._token is not None
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self._token.run_sync_soon(run)
        while True:
            try:
                return answer.result(timeout=LOOK_INTERVAL)
            except TimeoutError:
                if answer.done():
                    raise
                if not self.is_alive:
                    raise trio.RunFinishedError("the peer has left") from None

    def stop(self) -> None:
        """Tell it to leave, and do not wait."""
        token = self._token
        if token is None:
            self._session.close()  # trio has not begun: nobody else looks at the session yet
            return
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(self._session.close)

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)


_running: set[_Thread] = set()


def _end_all() -> None:
    """The program ends: everybody leaves the mesh first."""
    for thread in list(_running):
        thread.stop()
    for thread in list(_running):
        thread.join(CLOSE_TIMEOUT)


atexit.register(_end_all)


class _Handle:
    """What a program holds of a peer in a thread."""

    def __init__(self, thread: _Thread) -> None:
        self._thread = thread
        self._peer = thread.start()
        self._finalizer = weakref.finalize(self, thread.stop)

    @property
    def address(self) -> tuple[str, int]:
        """Where this peer is bound: what others on this host name as `bootstrap`."""
        return self._peer.address

    @property
    def is_closed(self) -> bool:
        return not self._thread.is_alive

    def statistics(self) -> Statistics:
        """What the peer counts now; after its end, what it counted when it was last asked."""
        try:
            self._thread.last = self._thread.call(self._peer.statistics)
        except trio.RunFinishedError:
            if self._thread.last is None:
                raise RuntimeError("the peer has left, and was never asked for statistics") from None
        return self._thread.last

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Leave the mesh with a word to everybody; returns when that is done. A second call is harmless."""
        self._thread.stop()
        self._thread.join(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Client(_Handle):
    def change_query(self, query: str | None, namespaces: Mapping[str, str] | None = None) -> None:
        """Want other packets from some position on, which a `QuerySwitched` names. QueryError, PeerClosed."""
        try:
            self._thread.call(lambda: self._peer.change_query(query, namespaces))
        except trio.RunFinishedError:
            raise has_left(self._peer.options.stream) from None


class Stream(_Client):
    """A joined stream: iterate over it, in a thread or under asyncio. Two who do share it, an item to one of them."""

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Content:
        try:
            return self._content(self._thread.items.get())
        except Ended:
            raise StopIteration from None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Content:
        try:
            return self._content(await self._thread.items.get_in_asyncio())
        except Ended:
            raise StopAsyncIteration from None

    def get(self, timeout: float | None = None) -> Content | None:
        """The next item; None at the end. TimeoutError when nothing came in so many seconds."""
        try:
            return self._content(self._thread.items.get(timeout))
        except Ended:
            return None

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    @staticmethod
    def _content(item: Notice) -> Content:
        return item  # type: ignore[return-value]  # events have a mailbox of their own here


class Listener(_Client):
    """A joined stream that calls back."""

    def __init__(self, thread: _Thread, calls: Callable[[Notice], None]) -> None:
        super().__init__(thread)
        self._ended: Future[None] = Future()
        self._caller = threading.Thread(
            target=_call_back, args=(thread, calls, self._ended), name="skymesh-callbacks", daemon=True
        )
        self._caller.start()

    def wait(self, timeout: float | None = None) -> None:
        """Until it is closed. What ended it is raised: an error of the peer, or of a callback. TimeoutError."""
        self._ended.result(timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Leave the mesh; when this returns no callback runs any more, unless it is called from one."""
        super().close(timeout)
        if threading.current_thread() is not self._caller:
            self._caller.join(timeout)


def _call_back(thread: _Thread, calls: Callable[[Notice], None], ended: Future[None]) -> None:
    try:
        while True:
            calls(thread.items.get())
    except Ended:
        ended.set_result(None)
    except BaseException as error:
        log.exception("a callback, or the peer itself, failed; the listener is closed")
        thread.stop()
        ended.set_exception(error)


class Publisher(_Handle):
    """A root."""

    def send(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """Give the mesh its next packet; returns its AN. Never waits for a child. NotXml, PeerClosed."""
        try:
            return self._thread.call(lambda: self._peer.publish_now(payload, an=an, contiguous=contiguous))
        except trio.RunFinishedError:
            raise PeerClosed("this root is closed") from None


def join(
    stream: str,
    *,
    on_event: Callable[[Event], object] | None = None,
    statistics_every: float | None = None,
    max_waiting: int = MAX_WAITING,
    **keywords: Unpack[JoinKeywords],
) -> Stream:
    """Take part in a stream; options as of `peer.join`. What keeps the peer from opening is raised here.

    `on_event` is called with every event of `Peer.events`, in a thread of its own; one that is slow misses events.
    """
    events: Mailbox[Event] = Mailbox(MAX_EVENTS)
    thread = _Thread(
        api.join(stream, **keywords), max_waiting=max_waiting, events=events, statistics_every=statistics_every
    )
    thread.tells = on_event is not None
    joined = Stream(thread)
    if on_event is not None:
        threading.Thread(target=_tell, args=(events, on_event), name="skymesh-events", daemon=True).start()
    return joined


def _tell(events: Mailbox[Event], on_event: Callable[[Event], object]) -> None:
    with contextlib.suppress(Ended):
        while True:
            event = events.get()
            try:
                on_event(event)
            except Exception:
                log.exception("on_event failed on %s", type(event).__name__)


def listen(
    stream: str,
    *,
    on_packet: Callable[[Packet], object],
    on_event: Callable[[Notice], object] | None = None,
    statistics_every: float | None = None,
    max_waiting: int = MAX_WAITING,
    **keywords: Unpack[JoinKeywords],
) -> Listener:
    """Take part in a stream by callbacks, all in one thread. Options as of `peer.join`.

    `on_event` is called with gaps, starts, switches of the query and late packets (`Omitted`), each in its place among
    the packets, and with every event of `Peer.events`. Without it gaps and late packets are logged as warnings.
    """
    thread = _Thread(api.join(stream, **keywords), max_waiting=max_waiting, statistics_every=statistics_every)
    thread.tells = on_event is not None
    return Listener(thread, calls_of(stream, on_packet, on_event))


def calls_of(
    stream: str, on_packet: Callable[[Packet], object], on_event: Callable[[Notice], object] | None
) -> Callable[[Any], None]:
    """Each item to the callback that it is for."""

    def call(item: Notice) -> None:
        if isinstance(item, Packet):
            on_packet(item)
        elif on_event is not None:
            on_event(item)
        elif isinstance(item, Gap):
            log.warning("%s: packets after %d up to %d could not be had", stream, item.after, item.until)
        elif isinstance(item, Omitted):
            log.warning("%s: packet %d came late; pass on_event to receive such packets", stream, item.an)

    return call


def root(stream: str, **keywords: Unpack[RootKeywords]) -> Publisher:
    """Be a root; options as of `peer.root`."""
    return Publisher(_Thread(api.root(stream, **keywords)))


__all__ = ["Listener", "Publisher", "Stream", "join", "listen", "root"]
