"""Trio as a guest of Qt and Tk: real loops, every way to end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

import peer
from peer import guest, guest_hosts
from tests.peer.cli.command import REPOSITORY, STRICT, clean_environment
from tests.peer.display import qt_application, tk_display
from tests.peer.meshthread import document, fed_root, reach

# Of another thread: a signal does not reach Python inside a Qt loop, and a hang must end.
pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes"), pytest.mark.timeout(180, method="thread")]


@pytest.fixture(scope="module")
def root():
    with fed_root(interval=0.005) as root:
        yield root


class Taken:
    """Callbacks that collect, and that do something after so many packets."""

    def __init__(self, after: int, then) -> None:
        self.ans: list[int] = []
        self.events: list[object] = []
        self.ends: list[object] = []
        self._after, self._then = after, then

    def packet(self, packet) -> None:
        assert threading.current_thread() is threading.main_thread()
        assert packet.payload == document(packet.an)
        self.ans.append(packet.an)
        if len(self.ans) == self._after:
            self._then()

    def options(self, root) -> dict:
        return {
            "on_packet": self.packet,
            "on_event": self.events.append,
            "on_end": self.ends.append,
            "statistics_every": 0.05,
            **reach(root),
        }

    def check(self) -> None:
        assert self.ans[: self._after] == list(range(self.ans[0], self.ans[0] + self._after))
        assert {peer.ResilienceChanged, peer.Started, peer.Statistics} <= {type(event) for event in self.events}


def test_qt_quits_and_the_peer_has_left(root):
    application = qt_application()
    from PySide6.QtCore import QTimer

    taken = Taken(20, lambda: QTimer.singleShot(0, application.quit))
    stream = guest.join_qt("asdi", **taken.options(root))
    assert stream.statistics() is None
    application.exec()
    assert stream.is_closed
    assert taken.ends == [None]
    taken.check()
    assert stream.statistics().packets >= 20
    with pytest.raises(peer.PeerClosed, match="this peer of asdi has left: join again"):
        stream.change_query("/p")
    stream.close()
    stream.finish()
    with pytest.raises(peer.PeerClosed):
        stream.change_query(None)


def test_qt_quit_from_a_callback_needs_a_finish(root):
    """`quit` calls back while trio's own turn is under way: it can't end inside itself."""
    application = qt_application()
    taken = Taken(5, application.quit)
    stream = guest.join_qt("asdi", **taken.options(root))
    application.exec()
    stream.finish()
    assert stream.is_closed
    assert taken.ends == [None]


def test_ctrl_c_in_the_terminal_ends_the_qt_program(root):
    application = qt_application()
    taken = Taken(5, lambda: os.kill(os.getpid(), signal.SIGINT))
    stream = guest.join_qt("asdi", **taken.options(root))
    application.exec()
    assert stream.is_closed
    assert taken.ends == [None]


def test_an_error_in_a_callback_ends_the_stream_with_it(root):
    application = qt_application()

    def fail() -> None:
        raise KeyError("mine")

    taken = Taken(3, fail)
    ends: list[object] = []

    def end(error) -> None:
        ends.append(error)
        application.quit()

    guest.join_qt("asdi", **(taken.options(root) | {"on_end": end}))
    application.exec()
    assert [type(error) for error in ends] == [KeyError]


def test_a_query_can_be_changed_before_the_peer_is_open_and_a_bad_one_is_told(root):
    application = qt_application()
    taken = Taken(8, lambda: stream.close())
    stream = guest.join_qt("asdi", **(taken.options(root) | {"on_end": lambda error: application.quit()}))
    with pytest.raises(peer.QueryError):
        stream.change_query("/p[")
    stream.change_query("/p/n mod 3 = 0")
    application.exec()
    assert all(an % 3 == 0 for an in taken.ans), "nothing of the old query came before the stream began"


def test_a_query_changed_after_close_is_an_error_although_the_peer_has_not_left_yet(root):
    application = qt_application()
    refused: list[peer.PeerClosed] = []

    def close() -> None:
        stream.close()
        with pytest.raises(peer.PeerClosed) as caught:
            stream.change_query("/p")
        refused.append(caught.value)

    taken = Taken(5, close)
    stream = guest.join_qt("asdi", **(taken.options(root) | {"on_end": lambda error: application.quit()}))
    application.exec()
    assert [str(error) for error in refused] == ["this peer of asdi has left: join again"]


def test_a_guest_that_is_cancelled_before_its_first_turn_ends():
    application = qt_application()
    began = []

    async def main() -> None:
        began.append(True)
        import trio

        await trio.sleep_forever()

    run = guest.run_in_qt(main, on_done=lambda error: application.quit())
    run.cancel()
    application.exec()
    assert run.is_done
    assert run.error is None


def test_a_program_under_trio_that_fails_is_logged(caplog):
    application = qt_application()

    async def main() -> None:
        raise ValueError("mine")

    run = guest.run_in_qt(main)
    guest_hosts.QtHost().turn_until(lambda: run.is_done)
    assert isinstance(run.error, ValueError)
    assert "a program under trio failed" in caplog.text
    assert application is not None


def python(program: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STRICT, "-c", program],
        cwd=REPOSITORY,
        env=environment or clean_environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_no_application_is_one_sentence():
    qt_application()
    program = "import peer\ntry: peer.guest.join_qt('a', on_packet=print)\nexcept peer.PeerError as error: print(error)"
    assert python(program).stdout == "make the QApplication first: trio is to be a guest of its loop\n"


TK_PROGRAM = """
import gc, os, signal, sys, tkinter
import peer
from peer import guest_hosts

# Tcl aborts when a window is collected in another thread than its own, and trio has one that waits for sockets.
gc.disable()
guest_hosts.TkHost.__init__.__kwdefaults__["can_watch"] = CAN_WATCH
for how in ("destroy later", "destroy in a callback", "interrupt"):
    window = tkinter.Tk()
    ways = {
        "destroy later": lambda: window.after(1, window.destroy),
        "destroy in a callback": window.destroy,
        "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    }
    ans, events, ends = [], [], []
    def take(packet):
        ans.append(packet.an)
        if len(ans) == 10:
            ways[how]()
    stream = peer.guest.join_tk(
        window, "asdi", on_packet=take, on_event=events.append, on_end=ends.append, bootstrap=[ADDRESS], beacon=False,
        parents=1, capacity=0,
    )
    window.mainloop()
    if how == "destroy in a callback":
        stream.finish()
    assert stream.is_closed
    assert ends == [None]
    assert ans[:10] == list(range(ans[0], ans[0] + 10))
    assert any(isinstance(event, peer.Started) for event in events)
    if how == "interrupt":
        window.destroy()
    print(how)
"""


@pytest.mark.parametrize("can_watch", [None, False], ids=["socket watched", "polled"])
def test_tk_ends_and_the_peer_has_left(root, can_watch):
    program = TK_PROGRAM.replace("ADDRESS", repr(root.address)).replace("CAN_WATCH", repr(can_watch))
    with tk_display() as environment:
        done = python(program, environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["destroy later", "destroy in a callback", "interrupt"]
