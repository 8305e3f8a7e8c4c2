"""The event loops that trio can be a guest of: how to be called in their thread, and how to end with them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from peer.errors import PeerError

if TYPE_CHECKING:
    import tkinter

POLL_INTERVAL_MS = 10
"""Where Tk can't watch a socket (Windows) it looks so often whether trio has something to do."""


TCL_READABLE = 2
"""`tkinter.READABLE`, without importing tkinter where there is none."""
TCL_DONT_WAIT = 2


class Host(Protocol):
    """Only `call_soon` may be called from other threads."""

    def call_soon(self, function: Callable[[], object]) -> None: ...
    def on_end(self, function: Callable[[], object]) -> None:
        """Call this when the host is about to end."""

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        """Run the loop inside a call from it."""

    def close(self) -> None:
        """The guest has gone."""

    def quit(self) -> None:
        """End the host's loop."""


class _Calls:
    """Functions to call in the host's thread. `wake` is called when there may be nobody on the way to them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Callable[[], object]] = deque()

    def add(self, function: Callable[[], object]) -> None:
        self._waiting.append(function)
        self._wake()

    def run(self) -> None:
        """Those that are there now; what they add waits for the host's next turn, so that the host gets one."""
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()


class QtHost:
    """PySide6. An event that is posted to an object is handled in that object's thread: here, the application's."""

    def __init__(self) -> None:
        try:
            from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop, QObject
        except ImportError as error:
            raise PeerError(f"a Qt program needs PySide6: pip install 'skymesh[desktop]' ({error})") from None
        application = QCoreApplication.instance()
        if application is None:
            raise PeerError("make the QApplication first: trio is to be a guest of its loop")
        self._application = application
        self._core = QCoreApplication
        self._loop_of = QEventLoop
        self._event_of = QEvent
        self._kind = QEvent.Type(QEvent.registerEventType())
        calls = self._calls = _Calls(self._post)

        class Target(QObject):
            def event(self, event: QEvent) -> bool:
                calls.run()
                return True

        self._target = Target()

    def _post(self) -> None:
        self._core.postEvent(self._target, self._event_of(self._kind))

    def call_soon(self, function: Callable[[], object]) -> None:
        self._calls.add(function)

    def on_end(self, function: Callable[[], object]) -> None:
        self._application.aboutToQuit.connect(function)

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._core.processEvents(self._loop_of.ProcessEventsFlag.WaitForMoreEvents)

    def close(self) -> None:
        pass

    def quit(self) -> None:
        self._core.quit()


class TkHost:
    """Tcl is not to be called from other threads: they write a byte to a socket that Tcl's loop watches."""

    def __init__(self, window: tkinter.Tk, *, can_watch: bool | None = None) -> None:
        self._window = window
        self._tk: Any = window.tk
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)
        self._calls = _Calls(self._write)
        self._timer: str | None = None
        self._watches = hasattr(self._tk, "createfilehandler") if can_watch is None else can_watch
        if self._watches:
            self._tk.createfilehandler(self._ours, TCL_READABLE, self._readable)
        else:
            self._poll()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # full: it will be read anyway; closed: nobody is there any more
            self._theirs.send(b"\0")

    def _readable(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            self._ours.recv(4_096)
        self._calls.run()

    def _poll(self) -> None:
        self._timer = self._window.after(POLL_INTERVAL_MS, self._poll)
        self._readable()

    def _stop_polling(self) -> None:
        if self._timer is not None:
            self._window.after_cancel(self._timer)
            self._timer = None

    def call_soon(self, function: Callable[[], object]) -> None:
        self._calls.add(function)

    def on_end(self, function: Callable[[], object]) -> None:
        def destroyed(event: tkinter.Event[Any]) -> None:
            if event.widget is self._window:  # the event comes for every widget inside, too
                self._stop_polling()  # while there is an interpreter that can be told
                function()

        self._window.bind("<Destroy>", destroyed, add=True)

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            if self._watches:
                self._tk.dooneevent(0)
                continue
            while self._tk.dooneevent(TCL_DONT_WAIT):
                pass
            self._readable()  # a window that is destroyed has no timers any more
            time.sleep(POLL_INTERVAL_MS / 1_000)

    def close(self) -> None:
        if self._watches:
            self._tk.deletefilehandler(self._ours)
        self._stop_polling()
        self._ours.close()
        self._theirs.close()

    def quit(self) -> None:
        self._window.quit()
