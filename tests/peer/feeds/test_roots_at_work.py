"""Roots that read feeds: what reaches a client, whose numbers hold, and that nothing is lost without a word."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import trio

from dcp import Gap, Packet, Start
from dht import Identity
from peer.errors import NotSynchronised, WrongOwner
from peer.feeds.framing import MAX_DOCUMENT_BYTES
from peer.feeds.mark import Mark
from peer.feeds.plan import Plan
from peer.feeds.sequencer import AsdiSequencer
from peer.feeds.serve import RESERVE, RootFeed
from peer.feeds.stamp import STAMP_BYTES, stamp
from peer.feeds.state import MarkFile
from peer.node import Peer
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role
from peer.trust.batches import inner_untrusted
from tests.peer.feeds.plans import PATIENCE, plan
from tests.peer.test_roots import claimed


def root_options(folder: Path, bootstrap=(), state: Path | None = None) -> PeerOptions:
    owner = folder / "owner.key"
    Identity.load_or_create(owner)
    return PeerOptions(stream="feed", role=Role.ROOT, owner=owner, beacon=False, bootstrap=bootstrap, state=state)


@asynccontextmanager
async def serving(options: PeerOptions, feed: Plan, **more: object):
    """A root that has been opened."""
    opened = trio.Event()
    root = RootFeed(options, feed, on_open=lambda peer: opened.set(), **more)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(root.run)
        with trio.fail_after(PATIENCE):
            await opened.wait()
        yield root
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client(bootstrap, **options: object):
    chosen = PeerOptions(stream="feed", role=Role.LEAF, beacon=False, bootstrap=bootstrap, **options)  # type: ignore[arg-type]
    async with open_peer(chosen) as peer:
        yield peer


async def take(peer: Peer, packets: int) -> list[Packet | Gap]:
    found: list[Packet | Gap] = []
    with trio.fail_after(PATIENCE):
        while sum(isinstance(item, Packet) for item in found) < packets:
            item = await peer.__anext__()
            if isinstance(item, Packet | Gap):
                found.append(item)
    return found


@pytest.mark.net
async def test_a_file_reaches_a_client_and_its_history_stays(tmp_path):
    documents = [b"<p>%d</p>" % number for number in range(40)]
    (tmp_path / "feed.xml").write_bytes(b"\n".join(documents))
    async with serving(root_options(tmp_path), plan(str(tmp_path / "feed.xml"), rate=0.0)) as root:
        with trio.fail_after(PATIENCE):
            await root.ended.wait()
        assert root.published == 40
        async with client([root.peer.address], parents=1, start=Start.OLDEST) as peer:
            found = await take(peer, 40)
    assert found == [Packet(number + 1, document) for number, document in enumerate(documents)]


@pytest.mark.net
async def test_asdi_text_becomes_numbered_xml(tmp_path):
    from asdi.flights import Feed

    lines = [line.text for line in Feed().lines(1_794_798_734, 1_794_798_760)]
    (tmp_path / "asdi.txt").write_text("\r\n".join([*lines[:10], "nonsense", *lines[11:]]))
    reference = date(2026, 11, 16)
    feed = plan(f"asdi:{tmp_path / 'asdi.txt'}", rate=0.0, reference=reference)
    first = AsdiSequencer(reference, waits=False).number(lines[0].encode())
    assert first is not None
    # From a position, not from the oldest: the oldest is where the coverage without a hole begins.
    where = {"start": Start.POSITION, "position": first.an - 1}
    async with (
        serving(root_options(tmp_path), feed) as root,
        client([root.peer.address], parents=1, **where) as peer,
    ):
        found = await take(peer, len(lines) - 1)
    packets = [item for item in found if isinstance(item, Packet)]
    assert [item.an - packets[0].an for item in packets] == [n for n in range(len(lines)) if n != 10]
    assert [item for item in found if isinstance(item, Gap)] == [Gap(packets[0].an + 9, packets[0].an + 10)]
    assert all(item.payload.startswith(b"<?xml") for item in packets)


class Feeder:
    """Writes packets to a root's `tcp-listen` feed."""

    def __init__(self) -> None:
        self.port = 0
        self.listening = trio.Event()

    def on_listening(self, host: str, port: int) -> None:
        self.port = port
        self.listening.set()

    async def connect(self) -> trio.SocketStream:
        with trio.fail_after(PATIENCE):
            await self.listening.wait()
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@pytest.mark.net
async def test_a_later_root_takes_over_the_numbers_before_it_serves(tmp_path):
    """Two roots without numbers in their feeds; the second starts in the middle, with a feed that is behind."""
    documents = [b"<p>%d</p>" % number for number in range(400)]
    feeders = [Feeder(), Feeder()]
    feed = plan("tcp-listen://127.0.0.1:0")
    options = root_options(tmp_path)
    async with serving(options, feed, on_listening=feeders[0].on_listening, find_timeout=0.2) as first:
        one = await feeders[0].connect()
        await one.send_all(b"".join(documents[:100]))
        bootstrap = [first.peer.address]
        async with trio.open_nursery() as nursery:
            opened = trio.Event()
            second = RootFeed(
                root_options(tmp_path, bootstrap),
                feed,
                on_listening=feeders[1].on_listening,
                on_open=lambda peer: opened.set(),
                find_timeout=20.0,
            )
            nursery.start_soon(second.run)
            two = await feeders[1].connect()
            await two.send_all(b"".join(documents[50:90]))
            await one.send_all(b"".join(documents[100:150]))
            await two.send_all(b"".join(documents[90:150]))
            with trio.fail_after(PATIENCE):
                await opened.wait()
                # "now" of a client is that of the first parent it finds: both must have come to the same.
                for serving_root in (first, second):
                    while serving_root.peer.core.sender.log.head < 150:
                        with trio.move_on_after(0.1):
                            await serving_root.peer.wait_turn()
            # The first root's feed ends, and the second goes on alone: the client never notices.
            async with client(bootstrap, parents=2) as peer:
                with trio.fail_after(PATIENCE):
                    await peer.wait_parents(2)
                await one.send_all(b"".join(documents[150:200]))
                await two.send_all(b"".join(documents[150:400]))
                found = await take(peer, 250)
            await two.aclose()
            nursery.cancel_scope.cancel()
        await one.aclose()
    assert found == [Packet(number + 1, documents[number]) for number in range(150, 400)]


@pytest.mark.net
async def test_a_root_whose_feed_broke_listens_again_and_goes_on_behind_a_hole(tmp_path):
    documents = [b"<p>%d</p>" % number for number in range(200)]
    feeders = [Feeder(), Feeder()]
    feed = plan("tcp-listen://127.0.0.1:0")
    async with serving(root_options(tmp_path), feed, on_listening=feeders[0].on_listening, find_timeout=0.2) as first:
        one = await feeders[0].connect()
        await one.send_all(b"".join(documents[:60]))
        async with trio.open_nursery() as nursery:
            opened = trio.Event()
            second = RootFeed(
                root_options(tmp_path, [first.peer.address]),
                feed,
                on_listening=feeders[1].on_listening,
                on_open=lambda peer: opened.set(),
                find_timeout=20.0,
            )
            nursery.start_soon(second.run)
            two = await feeders[1].connect()
            await two.send_all(b"".join(documents[20:60]))
            with trio.fail_after(PATIENCE):
                await opened.wait()
            await published(second, 60)
            # The connection ends in the middle of a document, and comes back when five more are gone.
            await two.send_all(documents[60][:4])
            await two.aclose()
            two = await feeders[1].connect()
            await two.send_all(b"".join(documents[65:100]))
            await one.send_all(b"".join(documents[60:120]))
            await two.send_all(b"".join(documents[100:120]))
            await published(second, 120)
            await second.peer.wait_children_caught_up()  # and all is signed
            log = second.peer.core.sender.log
            _, ans, payloads, _ = log.columns()
            assert dict(zip(ans, map(inner_untrusted, payloads), strict=True)) == {
                number + 1: b"\0" + documents[number] for number in [*range(20, 60), *range(65, 120)]
            }
            assert log.stretch(60, b"") == (False, 65), "what was lost is a hole"
            await two.aclose()
            nursery.cancel_scope.cancel()
        await one.aclose()


async def published(root: RootFeed, an: int) -> None:
    with trio.fail_after(PATIENCE):
        while root.last_an is None or root.last_an < an:
            assert root.peer is not None
            await root.peer.wait_turn()


async def feed_for_ever(root: RootFeed, feeder: Feeder, data: bytes) -> None:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(root.run)
            async with await feeder.connect() as stream:
                await stream.send_all(data)
                await trio.sleep_forever()


@pytest.mark.net
async def test_a_root_that_cannot_find_its_numbers_does_not_serve(tmp_path):
    feeders = [Feeder(), Feeder()]
    feed = plan("tcp-listen://127.0.0.1:0")
    async with serving(root_options(tmp_path), feed, on_listening=feeders[0].on_listening, find_timeout=0.2) as first:
        one = await feeders[0].connect()
        await one.send_all(b"<a/><b/><c/>" * 30)
        second = RootFeed(
            root_options(tmp_path, [first.peer.address]), feed, on_listening=feeders[1].on_listening, sync_timeout=4.0,
            find_timeout=20.0,
        )  # fmt: skip
        with pytest.raises(ExceptionGroup) as caught:
            await feed_for_ever(second, feeders[1], b"<a/><b/><c/>" * 20)
        assert caught.group_contains(NotSynchronised, match="could not find its numbers", depth=None)
        assert second.peer is None
        await one.aclose()


@pytest.mark.net
async def test_a_counting_root_never_gives_a_number_twice(tmp_path):
    feed = plan("tcp-listen://127.0.0.1:0")
    ans: list[int] = []
    for _ in range(2):
        feeder = Feeder()
        options = root_options(tmp_path, state=tmp_path / "state")
        async with (
            serving(options, feed, on_listening=feeder.on_listening, find_timeout=0.1) as root,
            client([root.peer.address], parents=1) as peer,
        ):
            with trio.fail_after(PATIENCE):
                await peer.wait_parents(1)
            stream = await feeder.connect()
            await stream.send_all(b"<a/><b/><c/>")
            ans += [item.an for item in await take(peer, 3) if isinstance(item, Packet)]
            await stream.aclose()
    assert ans[:3] == [1, 2, 3]
    assert ans[3:] == [5, 6, 7], "one is left out: what the feed brought meanwhile is missing"


async def test_a_counting_root_that_was_killed_goes_on_behind_what_it_reserved(tmp_path):
    file, mark = MarkFile.open(tmp_path, "feed")
    assert mark is None
    file.save(Mark(RESERVE))
    file.close()  # without the exact mark of a proper end
    feed = plan("tcp-listen://127.0.0.1:0")
    feeder = Feeder()
    options = root_options(tmp_path, state=tmp_path)
    async with serving(options, feed, on_listening=feeder.on_listening, find_timeout=0.1) as root:
        stream = await feeder.connect()
        await stream.send_all(b"<a/>")
        with trio.fail_after(PATIENCE):
            while root.last_an is None:
                await root.peer.wait_turn()
        await stream.aclose()
    assert root.last_an == RESERVE + 2


@pytest.mark.net
async def test_a_root_of_another_owner_says_so(tmp_path):
    (tmp_path / "feed.xml").write_bytes(b"<a/>")
    feed = plan(str(tmp_path / "feed.xml"))
    async with serving(root_options(tmp_path), feed) as root:
        stranger = PeerOptions(stream="feed", role=Role.ROOT, beacon=False, bootstrap=[root.peer.address])
        with (
            pytest.raises(WrongOwner, match="already served by roots of the owner"),
            trio.fail_after(PATIENCE),
        ):
            await RootFeed(stranger, feed).run()


@pytest.mark.net
async def test_a_feed_that_is_refused_for_its_owner_leaves_no_record_behind(tmp_path):
    """Found in 3 of 4 tries: its dead record displaced the real root for up to 190 s."""
    (tmp_path / "feed.xml").write_bytes(b"<a/>")
    feed = plan(str(tmp_path / "feed.xml"))
    async with serving(root_options(tmp_path), feed) as root:
        stranger = PeerOptions(stream="feed", role=Role.ROOT, beacon=False, bootstrap=[root.peer.address])
        for _ in range(3):
            with pytest.raises((WrongOwner, ExceptionGroup)), trio.fail_after(PATIENCE):
                await RootFeed(stranger, feed).run()
            assert await claimed(root.peer.address) == {Identity.load(tmp_path / "owner.key").fingerprint}


# --- nothing is lost without a word -----------------------------------------------------------------------------------


@pytest.mark.net
async def test_a_document_that_is_too_large_is_skipped_and_its_an_is_a_hole(tmp_path, caplog):
    big = b"<feed>" + b"<flight><id>DAL841</id></flight>" * 80_095 + b"</feed>"
    (tmp_path / "feed.xml").write_bytes(b"<a>1</a>" + big + b"<a>3</a>")
    with caplog.at_level("WARNING", "peer.feeds.serve"):
        async with (
            serving(root_options(tmp_path), plan(str(tmp_path / "feed.xml"), rate=0.0)) as root,
            client([root.peer.address], parents=1, start=Start.POSITION, position=0) as peer,
        ):
            assert await take(peer, 2) == [Packet(1, b"<a>1</a>"), Gap(1, 2), Packet(3, b"<a>3</a>")]
            with trio.fail_after(PATIENCE):
                await root.ended.wait()
            assert (root.published, root.holes, root.errors) == (2, 1, {"too_large": 1})
    assert f"skipped a document of {len(big)} bytes: a packet holds at most {MAX_DOCUMENT_BYTES}" in caplog.text


@pytest.mark.net
@pytest.mark.parametrize("overhead", [0, STAMP_BYTES])
async def test_a_document_that_its_stamp_makes_too_large_is_a_hole(tmp_path, overhead):
    big = b"<a>" + b"x" * (MAX_DOCUMENT_BYTES - 10) + b"</a>"
    assert len(big) <= MAX_DOCUMENT_BYTES
    (tmp_path / "feed.xml").write_bytes(b"<a>1</a>" + big + b"<a>3</a>" + big)
    stamping = {"transform": lambda payload: stamp(payload, 1_794_800_000.0), "overhead": overhead}
    async with (
        serving(root_options(tmp_path), plan(str(tmp_path / "feed.xml"), rate=0.0), **stamping) as root,
        client([root.peer.address], parents=1, start=Start.POSITION, position=0) as peer,
    ):
        found = await take(peer, 2)
        assert [(item.an if isinstance(item, Packet) else item) for item in found] == [1, Gap(1, 2), 3]
        with trio.fail_after(PATIENCE):
            await root.ended.wait()
            assert await anext(peer) == Gap(3, 4)
        assert (root.published, root.holes, root.last_an) == (2, 2, 4)


@pytest.mark.net
async def test_what_is_written_before_the_numbers_are_found_is_not_lost(tmp_path):
    feeder = Feeder()
    opened = trio.Event()
    root = RootFeed(
        root_options(tmp_path), plan("tcp-listen://127.0.0.1:0"), on_listening=feeder.on_listening, find_timeout=0.5,
        on_open=lambda peer: opened.set(),
    )  # fmt: skip
    async with trio.open_nursery() as nursery:
        nursery.start_soon(root.run)
        # Programs that connect, write one document and go, as a script does: none waits for the root.
        for number in range(3):
            assert not opened.is_set()
            stream = await feeder.connect()
            await stream.send_all(b"<a>%d</a>" % number)
            await stream.aclose()
        with trio.fail_after(PATIENCE):
            await opened.wait()
            while root.published < 3:
                await root.peer.wait_turn()
        async with client([root.peer.address], parents=1, start=Start.POSITION, position=0) as peer:
            found = await take(peer, 3)
        nursery.cancel_scope.cancel()
    assert [item.payload for item in found if isinstance(item, Packet)] == [b"<a>0</a>", b"<a>1</a>", b"<a>2</a>"]
    assert root.errors == {}


@pytest.mark.net
async def test_an_impostor_does_not_keep_a_counting_root_from_its_numbers(tmp_path):
    """A stranger's record under the same name is neither a root to listen to nor a reason to stop, if so told."""
    stranger = PeerOptions(stream="feed", role=Role.ROOT, beacon=False)
    async with open_peer(stranger) as impostor:
        options = root_options(tmp_path, bootstrap=[impostor.address])
        named = replace(options, owner_id=Identity.load(tmp_path / "owner.key").fingerprint)
        feeder = Feeder()
        feed = plan("tcp-listen://127.0.0.1:0")
        async with serving(named, feed, on_listening=feeder.on_listening, find_timeout=0.3) as root:
            stream = await feeder.connect()
            await stream.send_all(b"<a/>")
            with trio.fail_after(PATIENCE):
                while root.published < 1:
                    await root.peer.wait_turn()
            await stream.aclose()
        with pytest.raises(ExceptionGroup) as caught, trio.fail_after(PATIENCE):
            await RootFeed(options, feed, find_timeout=0.3).run()
        assert caught.group_contains(WrongOwner, match="already served", depth=None)
