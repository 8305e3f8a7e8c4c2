"""Feeds without a mesh: the words of a plan, the mark on disk, sources of bytes, packets with numbers."""

from __future__ import annotations

import os
import socket

import pytest
import trio

from peer.errors import FeedError
from peer.feeds.demo import ANCHOR, DemoFeed
from peer.feeds.first_look import check_feed
from peer.feeds.mark import Mark
from peer.feeds.plan import FeedOptions, plan_feed
from peer.feeds.replay import LogFollower, log_packets
from peer.feeds.sequencer import Numbered
from peer.feeds.sources import DescriptorSource, FileSource, TcpListenSource, TcpSource
from peer.feeds.stamp import stamp, stamp_of, strip_stamp
from peer.feeds.state import MarkFile
from peer.packetlog import Gap as LoggedGap
from peer.packetlog import LogConfig, Writer
from peer.packetlog import Packet as LoggedPacket
from tests.peer.feeds.plans import PATIENCE, plan

# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "numbering", "framing", "live"),
    [
        ("flights.xml", "position", "xml", False),
        ("-", "content", "xml", True),
        ("tcp://127.0.0.1:9", "content", "xml", True),
        ("tcp-listen://[::1]:0", "content", "xml", True),
        ("asdi:messages.txt", "asdi", "lines", False),
        ("asdi:tcp://127.0.0.1:9", "asdi", "lines", True),
    ],
)
def test_sources_suggest_framing_and_numbering(source, numbering, framing, live):
    understood = plan(source)
    assert (understood.numbering, understood.framing, understood.is_live) == (numbering, framing, live)


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        ("f", {"rate": 1.0, "speed": 1.0}, "mutually exclusive"),
        ("f", {"speed": 2.0}, "carry a time"),
        ("f", {"numbering": "asdi"}, "asdi:f"),
        ("f", {"framing": "json"}, "--framing is one of"),
        ("-", {"loop": True}, "--loop is for files"),
        ("asdi:f", {"loop": True, "numbering": "asdi"}, "can't come again"),
        ("asdi:", {}, "needs a source"),
        ("log:x", {"loop": True}, "keep the numbers"),
        ("archive:x", {"follow": True}, "--follow is for a packet log"),
        ("log:x", {"follow": True, "rate": 5.0}, "takes no --rate"),
        ("file", {"lines": True}, "--lines is for ASDI text"),
        ("tcp://nowhere", {}, "HOST:PORT"),
        ("http://x:1", {}, "a feed is"),
        ("demo:many", {}, "takes a number"),
        ("f", {"rate": -1.0}, "from 0 up"),
        ("demo", {"speed": 0.0}, "above 0"),
    ],
)
def test_words_that_make_no_sense_are_refused(source, options, sentence):
    with pytest.raises(FeedError, match=sentence):
        plan(source, **options)


def test_stamps_go_on_and_come_off():
    packet = b"<a><b/></a>"
    assert stamp_of(stamp(packet, 1_794_800_005.25)) == 1_794_800_005.25
    assert strip_stamp(stamp(packet, 1.5)) == packet
    assert stamp_of(packet) is None
    assert strip_stamp(packet) == packet


# --- the mark on disk -------------------------------------------------------------------------------------------------


def test_marks_survive(tmp_path):
    file = MarkFile(tmp_path / "deep" / "mark.json", "asdi")
    assert file.load() is None
    file.save(Mark(7))
    assert file.load() == Mark(7)
    file.save(Mark(9, 1_794_800_000, True))
    assert file.load() == Mark(9, 1_794_800_000, True)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["mark.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "skymesh root mark v1", "stream": "x", "an": 1}'])
def test_a_damaged_mark_is_an_error(tmp_path, text):
    (tmp_path / "mark.json").write_text(text)
    with pytest.raises(FeedError, match="damaged"):
        MarkFile(tmp_path / "mark.json", "asdi").load()


# --- sources of bytes -------------------------------------------------------------------------------------------------


async def collect(source, most: int | None = None) -> list[bytes | None]:
    found: list[bytes | None] = []
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[bytes | None](4)
            nursery.start_soon(source.run, send)
            async with receive:
                async for chunk in receive:
                    found.append(chunk)
                    if most is not None and len(found) == most:
                        nursery.cancel_scope.cancel()
    return found


async def test_a_file_is_read_and_read_again(tmp_path):
    path = tmp_path / "feed"
    path.write_bytes(b"<a/>")
    assert await collect(FileSource(str(path))) == [b"<a/>"]
    assert await collect(FileSource(str(path), loop=True), most=3) == [b"<a/>"] * 3
    path.write_bytes(b"")
    assert await collect(FileSource(str(path), loop=True)) == []


async def test_a_file_that_is_not_there_is_one_sentence():
    with pytest.raises(ExceptionGroup) as caught:
        await collect(FileSource("/nowhere/at/all"))
    assert caught.group_contains(FeedError, match="cannot read the feed /nowhere/at/all: No such file")


async def test_a_pipe_is_read_to_its_end():
    read, write = os.pipe()
    try:
        os.write(write, b"<a/><b/>")
        os.close(write)
        assert await collect(DescriptorSource(read)) == [b"<a/><b/>"]
    finally:
        os.close(read)


async def test_tcp_connects_again_and_tells_of_the_break():
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]

    async def serve_twice() -> None:
        for text in (b"one", b"two"):
            stream = await listener.accept()
            await stream.send_all(text)
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_twice)
        assert await collect(TcpSource("127.0.0.1", port), most=4) == [b"one", None, b"two", None]
    await listener.aclose()


async def test_whoever_connects_feeds_and_a_second_one_is_closed():
    ports: list[int] = []
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            send, receive = trio.open_memory_channel[bytes | None](4)
            listening = trio.Event()

            def on_listening(host: str, port: int) -> None:
                ports.append(port)
                listening.set()

            nursery.start_soon(TcpListenSource("127.0.0.1", 0, on_listening).run, send)
            await listening.wait()
            first = await trio.open_tcp_stream("127.0.0.1", ports[0])
            await first.send_all(b"<a/>")
            assert await receive.receive() == b"<a/>"
            second = await trio.open_tcp_stream("127.0.0.1", ports[0])
            assert await second.receive_some() == b""
            await first.aclose()
            assert await receive.receive() is None
            third = await trio.open_tcp_stream("127.0.0.1", ports[0])
            await third.send_all(b"<b/>")
            assert await receive.receive() == b"<b/>"
            await third.aclose()
            await second.aclose()
            nursery.cancel_scope.cancel()


async def test_a_port_in_use_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ExceptionGroup) as caught:
            await collect(TcpListenSource("127.0.0.1", taken.getsockname()[1]))
    assert caught.group_contains(FeedError, match="cannot listen for a feed")


# --- packets with numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"speed": 60.0}, {"rate": 100.0}])
def test_demo_roots_started_apart_send_the_same_at_the_same_time(options):
    now = ANCHOR + 27_000_000.0
    first, second = DemoFeed(**options), DemoFeed(**options)
    early = first.packets(now)
    later = second.packets(now + 3.0)
    beginning = next(later)
    assert second.send_at(beginning) >= now + 3.0
    known = {}
    while beginning.an not in known:
        packet = next(early)
        known[packet.an] = packet
    for _ in range(50):
        assert known.pop(beginning.an, None) == beginning
        beginning, packet = next(later), next(early)
        known[packet.an] = packet
        assert first.send_at(packet) == second.send_at(packet)


def test_demo_refuses_what_it_cannot_do():
    for wrong in ({"copies": 0}, {"speed": 1e9}, {"rate": 1e9}, {"rate": 1.0, "speed": 1.0}):
        with pytest.raises(FeedError):
            DemoFeed(**wrong)
    with pytest.raises(FeedError, match="before 2026"):
        next(DemoFeed(rate=5.0).packets(ANCHOR - 100.0))


def test_a_packet_log_is_fed_with_its_gaps(tmp_path):
    with Writer(tmp_path / "log") as writer:
        writer.append(
            [LoggedPacket(3, 1_000_000, b"<a/>"), LoggedGap(3, 6, 2_000_000), LoggedPacket(7, 3_000_000, b"<b/>")]
        )
    found = list(log_packets(str(tmp_path / "log")))
    assert [(packet.an, packet.payload, packet.contiguous, packet.time) for packet in found] == [
        (3, b"<a/>", True, 1.0),
        (7, b"<b/>", False, 3.0),
    ]


def test_an_archive_or_log_that_is_not_there_is_one_sentence(tmp_path):
    plan = plan_feed(FeedOptions(source=f"archive:{tmp_path / 'nothing'}"))
    with pytest.raises(FeedError):
        list(plan.packets())
    with pytest.raises(FeedError, match="not a packet log"):
        list(log_packets(str(tmp_path / "nothing")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FeedError, match="no packets"):
        list(log_packets(str(tmp_path / "empty")))


class OneFeed:
    """An entry point of a package that adds a feed."""

    def __init__(self, problem: ImportError | None = None) -> None:
        self.problem = problem

    def load(self):
        if self.problem is not None:
            raise self.problem
        return lambda rest: iter([Numbered(7, rest.encode(), True)])


def test_a_package_can_add_a_feed(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group, name: [OneFeed()] if name == "tape" else [])
    plan = plan_feed(FeedOptions(source="tape:<a/>"))
    assert [(packet.an, packet.payload) for packet in plan.packets()] == [(7, b"<a/>")]
    with pytest.raises(FeedError, match="--loop does not work with tape"):
        plan_feed(FeedOptions(source="tape:<a/>", loop=True))
    assert plan_feed(FeedOptions(source="other:file")).make_bytes is not None  # a file with a colon in its name


def test_a_feed_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group, name: [])
    with pytest.raises(FeedError, match=r"pip install 'skymesh\[spark\]'"):
        plan_feed(FeedOptions(source="archive:x"))
    broken = OneFeed(ImportError("No module named 'pyarrow'"))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group, name: [broken])
    with pytest.raises(FeedError, match="pyarrow"):
        plan_feed(FeedOptions(source="archive:x"))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.xml", None, "cannot read the feed .*none.xml: No such file"),
        ("empty.xml", b" \n", "is empty"),
        (
            "lines.txt",
            b"KZAU 1200 TZ DAL841/1\n",
            "not XML, it begins with 'KZAU 1200 TZ DAL841/1'; for ASDI text give asdi:",
        ),
        ("packed.gz", b"\x1f\x8b\x08rest", "is compressed"),
    ],
)
def test_a_file_that_brings_nothing_is_refused_before_the_root_opens(tmp_path, name, content, sentence):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FeedError, match=sentence):
        check_feed(plan_feed(FeedOptions(source=str(path))))


def test_the_first_look_takes_every_feed_that_may_bring_something(tmp_path):
    path = tmp_path / "f"
    for content, source in (
        (b"\xef\xbb\xbf<a/>", str(path)),
        ("<a/>".encode("utf-16"), str(path)),
        (b"# a comment of a producer\n<a/>", str(path)),
        (b"KZAU 1200 TZ DAL841/1\n", f"asdi:{path}"),
    ):
        path.write_bytes(content)
        check_feed(plan_feed(FeedOptions(source=source)))
    os.mkfifo(tmp_path / "pipe")
    check_feed(plan_feed(FeedOptions(source=str(tmp_path / "pipe"))))
    check_feed(plan_feed(FeedOptions(source="demo")))


@pytest.mark.parametrize("source", ["log:{}/none", "log:{}", "archive:{}/none"])
def test_a_recording_that_is_not_there_is_refused_before_the_root_opens(tmp_path, source):
    with pytest.raises(FeedError):
        check_feed(plan_feed(FeedOptions(source=source.format(tmp_path))))


def test_a_log_is_followed_from_before_it_is_there(tmp_path):
    follower = LogFollower(tmp_path / "log")
    assert follower.read() == []
    with Writer(tmp_path / "log", LogConfig(max_segment_bytes=2_000, max_log_bytes=4_000)) as writer:
        writer.append([LoggedPacket(1, 5_000_000, b"<a/>"), LoggedPacket(2, 6_000_000, b"<b/>")])
        assert follower.read() == []  # not synced yet: it could come again with other content
        writer.sync()
        assert follower.read() == [Numbered(1, b"<a/>", True, 5.0), Numbered(2, b"<b/>", True, 6.0)]
        writer.append([LoggedGap(2, 4, 7_000_000), LoggedPacket(5, 8_000_000, b"<c/>")])
        writer.sync()
        assert follower.read() == [Numbered(5, b"<c/>", False, 8.0)]
        assert follower.read() == []
        writer.append([LoggedPacket(n, 0, bytes(300)) for n in range(10, 60)])  # retention removes the first
        writer.sync()
        assert follower.read() == []
        rest = follower.read()
        assert rest[-1].an == 59
        assert [packet.contiguous for packet in rest] == [False, *([True] * (len(rest) - 1))]
