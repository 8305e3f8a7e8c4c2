"""The public names for programs: what they do together, what they refuse, and how errors leave their blocks."""

from __future__ import annotations

import pytest
import trio

import peer
from dcp import Start
from peer.start import start_of
from tests.peer.cli.command import PATIENCE


async def take(stream, count):
    packets = []
    with trio.fail_after(PATIENCE):
        while len(packets) < count:
            item = await anext(stream)
            if isinstance(item, peer.Packet):
                packets.append(item)
    return packets


@pytest.mark.net
async def test_the_public_names_do_the_same(tmp_path):
    (tmp_path / "feed.xml").write_bytes(b"<a/><b/>")
    local = {"listen": ("127.0.0.1", 0), "beacon": False}
    feed = peer.root_from("feed", str(tmp_path / "feed.xml"), rate=100.0, owner=tmp_path / "owner.key", **local)
    async with feed as source:
        with trio.fail_after(PATIENCE):
            await source.ended.wait()
        reach = [source.peer.address]
        joining = peer.join("feed", parents=1, capacity=0, start="oldest", bootstrap=reach, **local)
        async with joining as stream:
            assert await take(stream, 2) == [peer.Packet(1, b"<a/>"), peer.Packet(2, b"<b/>")]
        # A program's own root, vouched for by the same owner, goes on where the feed ended.
        publishing = peer.root("feed", owner=tmp_path / "owner.key", bootstrap=reach, **local)
        joining = peer.join("feed", parents=2, capacity=0, start=2, bootstrap=reach, **local)
        async with publishing as publisher, joining as stream:
            with trio.fail_after(PATIENCE):
                await stream.wait_parents(2)
            await publisher.send(b"<c/>", an=3)
            assert await take(stream, 2) == [peer.Packet(2, b"<b/>"), peer.Packet(3, b"<c/>")]


@pytest.mark.net
async def test_errors_leave_the_public_blocks_as_they_are(tmp_path):
    """They came in three exception groups, one in the other, which no `except` of a program around the block caught."""
    local = {"listen": ("127.0.0.1", 0), "beacon": False}
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, trio.fail_after(PATIENCE):
        async with peer.root("feed", **local) as publisher, peer.join("feed", bootstrap=[publisher.address], **local):
            raise error
    assert caught.value is error
    with pytest.raises(peer.FeedError, match="cannot read the feed"), trio.fail_after(PATIENCE):
        async with peer.root_from("feed", str(tmp_path / "nothing.xml"), **local):
            await trio.sleep_forever()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parents": 0}, r"parents must be in 1\.\.16, got 0"),
        ({"capacity": -1}, r"capacity must be in 0\.\.4096, got -1"),
        ({"bootstrap": "127.0.0.1:4000"}, r"bootstrap entries must be \(host, port\), got '1'"),
        ({"bootstrap": ["127.0.0.1:4000"]}, "got '127.0.0.1:4000'"),
        ({"bootstrap": [("127.0.0.1", 0)]}, "bootstrap entries must be"),
        ({"bootstrap": [("127.0.0.1", 65_536)]}, "bootstrap entries must be"),
        ({"listen": ":4000"}, r"listen must be \(host, port\), got ':4000'"),
        ({"start": "soon"}, "start must be"),
        ({"start": -3}, "start must be"),
        ({"network": "moon"}, "network must be one of lan, wan, got 'moon'"),
        ({"selection": "luck"}, "selection must be one of scored, walk, tree, got 'luck'"),
        ({"children_from": ["10.0.0.1/8"]}, "has host bits set"),
        ({"profile": "fast"}, "profile must be one of reliable, latency, bandwidth, newest, got 'fast'"),
        ({"deadline": 0.2}, "a deadline is for clients without children: join as a leaf"),
        ({"capacity": 0, "deadline": -1}, r"deadline must be in 0\.001\.\.60 seconds, got -1"),
        ({"order": "random"}, "order must be one of sequence, arrival, got 'random'"),
    ],
)
def test_a_wrong_option_of_a_program_is_one_sentence_before_anything_is_opened(options, said):
    with pytest.raises(ValueError, match=said):
        peer.join("feed", **options)


@pytest.mark.net
async def test_files_may_be_named_by_strings(tmp_path):
    """A name that was no Path raised an AttributeError from deep inside."""
    local = {"listen": ("127.0.0.1", 0), "beacon": False}
    key, owner, state = (str(tmp_path / name) for name in ("me.key", "owner.key", "state"))
    async with peer.root("feed", owner=owner, identity=key, state=state, **local) as publisher:
        reach = [publisher.address]
        async with peer.join("feed", bootstrap=reach, identity=key + "2", state=state + "2", **local) as stream:
            with trio.fail_after(PATIENCE):
                await stream.wait_parents(1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["me.key", "me.key2", "owner.key", "state", "state2"]


def test_starts_are_words_or_numbers():
    assert [start_of(word) for word in ("now", "oldest", "7", 7, 0)] == [
        (Start.NEW, None),
        (Start.OLDEST, None),
        (Start.POSITION, 6),
        (Start.POSITION, 6),
        (Start.POSITION, 0),
    ]
    with pytest.raises(ValueError, match="start must be"):
        start_of("then")


def test_the_product_s_name_gives_the_same_api():
    import skymesh

    assert dir(skymesh) == dir(peer) == sorted(peer.__all__)
    assert all(getattr(skymesh, name) is getattr(peer, name) for name in peer.__all__)
    with pytest.raises(AttributeError, match="module 'skymesh' has no attribute 'jion'"):
        skymesh.jion  # noqa: B018


@pytest.mark.net
async def test_a_stream_that_nobody_serves_is_unavailable_in_the_time_that_was_given():
    with (
        pytest.raises(peer.StreamUnavailable, match="no parent for nothing was found in"),
        trio.fail_after(PATIENCE),
    ):
        async with peer.join("nothing", beacon=False, timeout=0.2) as stream:
            await anext(stream)
    with pytest.raises(peer.StreamUnavailable), peer.blocking.join("nothing", beacon=False, timeout=0.2) as stream:
        stream.get(PATIENCE)


@pytest.mark.parametrize("join", [peer.join, peer.blocking.join, peer.root])
def test_a_bad_name_is_an_error_of_the_call_in_every_flavour(join):
    with pytest.raises(ValueError, match="'A B' is not a stream name"):
        join("A B")
