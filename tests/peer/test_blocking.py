"""The peer in a thread: order, errors where they belong, and an end from anywhere."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import threading
import time

import pytest
import trio

import peer
from peer import blocking
from peer.mailbox import Ended, Mailbox
from tests.peer.cli.command import REPOSITORY, STRICT, clean_environment
from tests.peer.meshthread import document, fed_root, reach

pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes")]
PATIENCE = 60.0


@pytest.fixture(scope="module")
def root():
    with fed_root() as root:
        yield root


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def numbers(items) -> list[int]:
    return [item.an for item in items if isinstance(item, peer.Packet)]


def test_a_thread_takes_the_stream_in_order_and_closes_it_from_another(root):
    with blocking.join("asdi", start="oldest", **reach(root)) as stream:
        taken = []
        reader = threading.Thread(target=lambda: taken.extend(stream))
        reader.start()
        until(lambda: len(taken) > 30)
        assert stream.statistics().packets > 0
        stream.close()
        reader.join(PATIENCE)
        assert not reader.is_alive(), "the end of the stream ends the iteration"
    assert isinstance(taken[0], peer.Started)
    ans = numbers(taken)
    assert ans == list(range(ans[0], ans[0] + len(ans)))
    assert all(item.payload == document(item.an) for item in taken if isinstance(item, peer.Packet))
    assert stream.is_closed
    assert stream.get() is None
    assert stream.statistics().packets > 0, "the last that was asked for"
    with pytest.raises(peer.PeerClosed, match="this peer of asdi has left: join again"):
        stream.change_query("/p")


def test_what_keeps_it_from_opening_is_raised_by_the_call(root):
    with pytest.raises(peer.QueryError, match="at character 4"):
        blocking.join("asdi", query="/a[", **reach(root))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="in use"):
            blocking.join("asdi", listen=taken.getsockname(), **reach(root))
    with pytest.raises(ValueError, match="holds 1 item or more"):
        blocking.join("asdi", max_waiting=0, **reach(root))


def test_what_ends_the_stream_is_raised_by_the_iteration(root, tmp_path):
    from dht import Identity, Pins

    Pins(tmp_path / "pins.json").accept("asdi", Identity.generate().peer_id)
    with (
        blocking.join("asdi", state=tmp_path, **reach(root)) as stream,
        pytest.raises(peer.WrongOwner, match="belongs to another owner"),
    ):
        list(stream)


def test_the_query_changes_from_any_thread_and_a_bad_one_is_told_there(root):
    with blocking.join("asdi", query="/p/n mod 2 = 0", **reach(root)) as stream:
        assert isinstance(stream.get(PATIENCE), peer.Started)
        assert stream.get(PATIENCE).an % 2 == 0
        stream.change_query("/p/n mod 5 = 0")
        with pytest.raises(peer.QueryError):
            stream.change_query("/p[")
        while not isinstance(switched := stream.get(PATIENCE), peer.QuerySwitched):
            pass
        following = [stream.get(PATIENCE).an for _ in range(3)]
        assert all(an % 5 == 0 and an > switched.position for an in following)


def test_a_program_that_pauses_gets_everything_and_the_queue_stays_bounded(root):
    with blocking.join("asdi", max_waiting=4, **reach(root)) as stream:
        first = stream.get(PATIENCE)
        assert isinstance(first, peer.Started)
        until(lambda: stream.statistics().packets >= 60)
        waiting = len(stream._thread.items._items)
        assert waiting <= 4 + 256, "one batch may come on top"
        taken = [stream.get(PATIENCE) for _ in range(80)]
    ans = numbers(taken)
    assert ans == list(range(first.position + 1, first.position + 81))


def test_callbacks_come_in_one_thread_with_events_and_can_close(root):
    seen, threads, events = [], set(), []

    def take(packet):
        threads.add(threading.current_thread())
        seen.append(packet.an)
        if len(seen) == 10:
            listener.close()

    def tell(event):
        threads.add(threading.current_thread())
        events.append(event)

    listener = blocking.listen("asdi", on_packet=take, on_event=tell, statistics_every=0.05, **reach(root))
    listener.wait(PATIENCE)
    until(lambda: listener.is_closed)
    assert len(threads) == 1
    kinds = {type(event) for event in events}
    assert {peer.ResilienceChanged, peer.Started, peer.Statistics, peer.ParentGained} <= kinds
    assert events[0] == peer.ResilienceChanged(0, 1)
    assert peer.ResilienceChanged(1, 1) in events
    assert seen[:10] == list(range(seen[0], seen[0] + 10))


def test_a_callback_that_raises_closes_the_listener_with_its_error(root, caplog):
    def take(packet):
        raise KeyError("mine")

    listener = blocking.listen("asdi", on_packet=take, **reach(root))
    with pytest.raises(KeyError, match="mine"):
        listener.wait(PATIENCE)
    until(lambda: listener.is_closed)
    listener.close()


def test_a_gap_that_nobody_listens_for_is_logged(root, caplog):
    call = blocking.calls_of("asdi", lambda packet: None, None)
    call(peer.Gap(3, 5))
    assert "packets after 3 up to 5 could not be had" in caplog.text
    call(peer.Started(3))


def test_a_stream_that_nobody_holds_leaves_by_itself(root):
    for item in blocking.join("asdi", **reach(root)):
        if isinstance(item, peer.Packet):
            break
    gc.collect()
    until(lambda: not any(thread.name == "skymesh" and thread.is_alive() for thread in others(root)))


def others(root) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not root._thread._thread]


def test_a_program_that_just_ends_leaves_the_mesh_without_a_word(root):
    program = (
        "import peer\n"
        f"stream = peer.blocking.join('asdi', bootstrap=[{root.address!r}], beacon=False, parents=1)\n"
        "print(stream.get(60))\n"
    )
    gained = len(root.statistics().children)
    done = subprocess.run(
        [*STRICT, "-c", program], cwd=REPOSITORY, env=clean_environment(), capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "Started" in done.stdout
    assert len(root.statistics().children) == gained, "it said goodbye: nobody waits for its silence"


def test_a_closed_root_says_so():
    with blocking.root("other", beacon=False) as closing:
        assert closing.send(b"<a/>") > 0
    with pytest.raises(RuntimeError, match="this root is closed"):
        closing.send(b"<a/>")


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_asyncio_takes_the_stream_and_a_cancelled_wait_loses_nothing(root):
    async def main() -> list[int]:
        ans = []
        async with blocking.join("asdi", **reach(root)) as stream:
            while len(ans) < 30:
                try:
                    async with asyncio.timeout(0.004):
                        item = await anext(stream)
                except TimeoutError:
                    continue
                ans += numbers([item])
            await asyncio.to_thread(stream.close)
            with pytest.raises(peer.PeerClosed, match="this peer of asdi has left: join again"):
                stream.change_query("/p")
            ans += numbers([item async for item in stream])
        return ans

    ans = asyncio.run(main())
    assert ans == list(range(ans[0], ans[0] + len(ans)))


# --- the mailbox alone ------------------------------------------------------------------------------------------------


def test_everything_put_is_taken_once_whoever_waits():
    """Two threads and a loop of asyncio take from a mailbox of eight what a trio thread puts."""
    box: Mailbox[int] = Mailbox(8)
    taken: list[list[int]] = [[], [], []]

    async def produce() -> None:
        for start in range(0, 9_000, 3):
            await box.put(range(start + 1, start + 4))
        box.close()

    def consume(into: list[int]) -> None:
        try:
            while True:
                into.append(box.get())
        except Ended:
            return

    async def consume_in_asyncio(into: list[int]) -> None:
        try:
            while True:
                into.append(await box.get_in_asyncio())
        except Ended:
            return

    threads = [
        threading.Thread(target=consume, args=(taken[0],)),
        threading.Thread(target=consume, args=(taken[1],)),
        threading.Thread(target=lambda: asyncio.run(consume_in_asyncio(taken[2]))),
        threading.Thread(target=lambda: trio.run(produce)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(taken[0] + taken[1] + taken[2]) == list(range(1, 9_001))
    assert all(part == sorted(part) for part in taken)


def test_a_full_mailbox_drops_news_and_an_error_comes_last():
    box: Mailbox[int] = Mailbox(2)
    assert [box.put_or_drop(number) for number in (1, 2, 3)] == [True, True, False]
    box.close(ValueError("the end"))
    assert [box.get(), box.get()] == [1, 2]
    for _ in range(2):
        with pytest.raises(ValueError, match="the end"):
            box.get()
    with pytest.raises(TimeoutError, match="nothing came in"):
        Mailbox[int](1).get(timeout=0.01)
