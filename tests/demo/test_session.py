"""One page's session: what it is told, and how much, when it does not take it."""

from __future__ import annotations

from types import SimpleNamespace

import trio
from trio.testing import MockClock

from demo.page import session
from demo.page.server import BEHIND, Socket


def test_a_page_that_does_not_keep_up_is_shown_less_and_not_let_go(monkeypatch):
    """Found by a storm on a busy machine: pictures of the mesh filled the queue, and the page was let go."""
    monkeypatch.setattr(session, "hello", lambda mesh: {"t": "hello"})
    monkeypatch.setattr(session, "state", lambda mesh, since: ({"t": "state"}, since))
    stage = SimpleNamespace(mesh=SimpleNamespace(listeners=[]), playing=None, verdict=None)
    socket = Socket()

    async def orders():
        await trio.sleep(600.0)
        return
        yield {}

    async def run():
        await session.Session(stage, socket).run(orders())
        kept = socket.outgoing.statistics().current_buffer_used
        assert kept == BEHIND + 1
        for _ in range(kept):  # it takes what there is, and is told more
            socket.outgoing.receive_nowait()
        assert not socket.is_behind
        socket.post({"t": "state"})
        assert socket.outgoing.receive_nowait() == '{"t":"state"}'

    trio.run(run, clock=MockClock(autojump_threshold=0))
