"""Being a root, at its edges: whose stream it is, which numbers it gives, what it takes, and its end."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
import trio

import peer
from dht import Identity, Pins
from peer import blocking
from peer.feeds.mark import Mark
from peer.feeds.numbers import REFILL, RESERVE, Numbers
from peer.feeds.state import MAX_ROOTS_PER_FOLDER, MarkFile, default_folder

PATIENCE = 60.0
LOCAL = {"beacon": False}


# --- whose stream it is -----------------------------------------------------------------------------------------------


async def claimed(reach: tuple[str, int], stream: str = "feed") -> set[str]:
    """The owners whose roots the directory lists, as a newcomer sees them."""
    from dht import DirectoryOptions, id_text, open_directory

    options = DirectoryOptions(bootstrap=(reach,), beacon=False, read_only=True)
    async with open_directory(Identity.generate(), options, listen=("127.0.0.1", 0)) as directory:
        with trio.fail_after(PATIENCE):
            while not directory.stats().contacts:  # noqa: ASYNC110 - becoming known has no event
                await trio.sleep(0.01)
            return {id_text(root.owner) for root in await directory.claimed_roots(stream)}


async def serve_for_ever(reach: tuple[str, int]) -> None:
    with trio.fail_after(PATIENCE):
        async with peer.root("feed", bootstrap=[reach], **LOCAL):
            await trio.sleep_forever()


async def test_a_root_that_is_refused_for_its_owner_leaves_no_record_behind():
    async with peer.root("feed", **LOCAL) as first:
        mine = {first.identity.fingerprint}
        assert await claimed(first.address) == mine
        for _ in range(3):
            with pytest.raises(peer.WrongOwner, match="already served by roots of the owner"):
                await serve_for_ever(first.address)
            assert await claimed(first.address) == mine


async def test_a_root_that_finds_the_other_owner_late_takes_its_record_back(monkeypatch):
    # It publishes before it has met anybody, as a root does whose network comes late.
    monkeypatch.setattr("peer.ownership.FIRST_CONTACT_PATIENCE", 0.0)
    monkeypatch.setattr("peer.ownership.FIRST_LOOK_PATIENCE", 0.0)
    monkeypatch.setattr("peer.ownership.LOOK_INTERVAL", 0.3)
    async with peer.root("feed", **LOCAL) as first:
        with pytest.raises(peer.WrongOwner):
            await serve_for_ever(first.address)
        assert await claimed(first.address) == {first.identity.fingerprint}


async def test_an_operator_who_names_the_owner_is_not_stopped_by_an_impostor(tmp_path, caplog):
    owner = Identity.load_or_create(tmp_path / "owner.key")
    async with peer.root("feed", **LOCAL) as impostor:
        mine = {"owner": tmp_path / "owner.key", "owner_id": owner.fingerprint, "bootstrap": [impostor.address]}
        with caplog.at_level(logging.WARNING, "peer.ownership"):
            async with peer.root("feed", **mine, **LOCAL) as right:
                with trio.fail_after(PATIENCE):
                    both = {owner.fingerprint, impostor.identity.fingerprint}
                    while await claimed(impostor.address) != both:  # noqa: ASYNC110 - a record has no event
                        await trio.sleep(0.05)
                with pytest.raises(peer.SeveralOwners) as caught, trio.fail_after(PATIENCE):
                    async with peer.join("feed", bootstrap=[right.address], parents=1, **LOCAL) as newcomer:
                        await anext(newcomer)
                assert set(caught.value.owners) == {owner.fingerprint, impostor.identity.fingerprint}
                chosen = {"bootstrap": [right.address], "owner_id": owner.fingerprint, "parents": 1}
                async with peer.join("feed", start="oldest", **chosen, **LOCAL) as newcomer:
                    with trio.fail_after(PATIENCE):
                        await newcomer.wait_parents(1)
                    (parent,) = newcomer.statistics().parents
                    assert parent.peer == right.identity.fingerprint
        assert any("another owner's root" in record.message for record in caplog.records)


async def test_a_root_that_names_another_owner_does_not_start():
    other = Identity.generate().fingerprint
    with pytest.raises(peer.WrongOwner, match=other):
        async with peer.root("feed", owner_id=other, **LOCAL):
            pass


async def test_the_owner_that_was_chosen_is_pinned(tmp_path):
    async with peer.root("feed", **LOCAL) as root:
        mine = root.identity.fingerprint
        async with peer.join("feed", bootstrap=[root.address], owner_id=mine, state=tmp_path, **LOCAL):
            pass
        assert Pins(tmp_path / "pins.json").owner("feed") == root.identity.peer_id


# --- its numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [2, 3])
async def test_a_root_of_the_api_that_is_started_again_counts_on(times):
    ans: list[int] = []
    for _ in range(times):
        async with peer.root("feed", **LOCAL) as root:
            ans += [await root.send(b"<a/>") for _ in range(5)]
    assert ans == list(range(1, 5 * times + 1))


def test_the_same_in_a_thread():
    ans: list[int] = []
    for _ in range(2):
        with blocking.root("feed", **LOCAL) as root:
            ans += [root.send(b"<a/>") for _ in range(5)]
    assert ans == list(range(1, 11))


async def test_a_client_gets_every_packet_over_a_restart_of_its_root(tmp_path):
    got: list[int] = []
    numbers = list(range(1, 16))
    key, listen = tmp_path / "root.key", ("127.0.0.1", 0)
    async with peer.root("feed", identity=key, **LOCAL) as helper:
        del helper  # only its key is wanted
    async with trio.open_nursery() as nursery:
        async with peer.root("feed", identity=key, listen=listen, **LOCAL) as root:
            address = root.address
            reach = {"bootstrap": [address], "parents": 1, "start": "oldest"}
            joined = await nursery.start(_collect, got, reach)
            with trio.fail_after(PATIENCE):
                await joined.wait_parents(1)
            for number in numbers[:5]:
                await root.send(b"<n>%d</n>" % number)
            with trio.fail_after(PATIENCE):
                while len(got) < 5:
                    await joined.wait_turn()
        async with peer.root("feed", identity=key, listen=address, **LOCAL) as root:
            for number in numbers[5:]:
                await root.send(b"<n>%d</n>" % number)
            with trio.fail_after(PATIENCE):
                while len(got) < len(numbers):
                    await joined.wait_turn()
        nursery.cancel_scope.cancel()
    assert got == numbers


async def _collect(got: list[int], reach, task_status=trio.TASK_STATUS_IGNORED):
    async with peer.join("feed", **reach, **LOCAL) as stream:
        task_status.started(stream)
        async for item in stream:
            match item:
                case peer.Packet(_, payload):
                    got.append(int(payload[3:-4]))


def test_after_a_crash_numbers_go_on_behind_the_reserved_ones(tmp_path):
    numbers = Numbers(tmp_path, "feed")
    assert numbers.next() == (1, True)
    numbers.save(RESERVE)
    for an in range(1, RESERVE - REFILL + 2):
        assert numbers.covers(an)
        numbers.given(an)
    assert numbers.runs_low
    numbers._file.close()  # killed: the exact mark was never written
    later = Numbers(tmp_path, "feed")
    assert later.next() == (RESERVE + 2, False)
    later.save(2 * RESERVE)
    later.given(RESERVE + 2)
    later.close()
    assert Numbers(tmp_path, "feed").next() == (RESERVE + 3, True)


def test_a_root_that_published_nothing_after_a_crash_does_not_forget_the_crash(tmp_path):
    numbers = Numbers(tmp_path, "feed")
    numbers.save(RESERVE)
    numbers._file.close()
    Numbers(tmp_path, "feed").close()
    assert Numbers(tmp_path, "feed").next() == (RESERVE + 2, False)


def test_two_roots_on_one_machine_have_a_mark_each_and_the_highest_counts(tmp_path):
    first, _ = MarkFile.open(tmp_path, "feed")
    second, _ = MarkFile.open(tmp_path, "feed")
    first.save(Mark(10))
    second.save(Mark(30))
    second.close()
    third, mark = MarkFile.open(tmp_path, "feed")
    assert mark is not None
    assert (third.path, mark.an) == (second.path, 30)
    first.close()
    third.close()
    _, mark = MarkFile.open(tmp_path, "feed")
    assert mark is not None
    assert mark.an == 30


def test_the_folder_of_marks_is_bounded_and_private(tmp_path):
    folder = tmp_path / "roots"
    held = [MarkFile.open(folder, "feed")[0] for _ in range(MAX_ROOTS_PER_FOLDER)]
    for file in held:
        file.save(Mark(1))
    with pytest.raises(peer.FeedError, match="--state DIR"):
        MarkFile.open(folder, "feed")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_where_numbers_are_kept_by_default():
    assert default_folder({"HOME": "/home/me"}) == Path("/home/me/.local/share/skymesh/roots")
    assert default_folder({"HOME": "/home/me", "XDG_DATA_HOME": "/data"}) == Path("/data/skymesh/roots")


async def test_a_default_folder_that_cannot_be_used_is_a_warning_and_one_that_was_named_an_error(
    tmp_path, monkeypatch, caplog
):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(blocked))
    with caplog.at_level(logging.WARNING):
        async with peer.root("feed", **LOCAL) as root:
            assert await root.send(b"<a/>") == 1
    assert "would repeat numbers" in caplog.text
    with pytest.raises((peer.FeedError, OSError)):
        async with peer.root("feed", state=blocked, **LOCAL):
            pass


async def test_numbers_are_not_kept_when_the_program_says_so():
    for _ in range(2):
        async with peer.root("feed", keep_numbers=False, **LOCAL) as root:
            assert await root.send(b"<a/>") == 1


# --- what it takes, and its end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"not xml <", b"", b"<a>", b"<a/><b/>", b"\xff\xfe", b"plain"])
async def test_what_is_not_xml_is_refused_unless_the_stream_is_raw(payload):
    async with peer.root("feed", **LOCAL) as root:
        with pytest.raises(peer.NotXml) as caught:
            await root.send(payload)
        assert isinstance(caught.value, ValueError)
        assert (root.not_xml, root.statistics().packets) == (1, 0)
        assert await root.send("<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>".encode("latin-1")) == 1
    async with peer.root("other", raw=True, **LOCAL) as root:
        assert await root.send(payload) == 1


def test_what_is_not_xml_is_refused_in_a_thread_too():
    with blocking.root("feed", **LOCAL) as root, pytest.raises(peer.NotXml):
        root.send(b"not xml <")


async def test_a_publisher_counts_what_it_sent():
    async with peer.root("feed", **LOCAL) as root:
        assert root.statistics().packets == 0
        for _ in range(100):
            await root.send(b"<a/>")
        assert root.statistics().packets == 100
        assert root.statistics().position == 100


async def test_a_second_and_a_cancelled_leave_are_harmless():
    async with (
        peer.root("feed", **LOCAL) as root,
        peer.join("feed", bootstrap=[root.address], parents=1, **LOCAL) as joined,
    ):
        with trio.fail_after(PATIENCE):
            await joined.wait_parents(1)
            for leaving in (root, joined):  # a root with a child takes its time, so the second call comes meanwhile
                with trio.move_on_after(0):
                    await leaving.leave()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(leaving.leave)
                    nursery.start_soon(leaving.leave)
                await leaving.leave()


async def test_what_is_sent_or_asked_for_after_leaving_is_an_error():
    async with (
        peer.root("feed", **LOCAL) as root,
        peer.join("feed", bootstrap=[root.address], parents=1, **LOCAL) as joined,
    ):
        with trio.fail_after(PATIENCE):
            await joined.leave()
            await root.leave()
        with pytest.raises(peer.PeerClosed):
            await root.send(b"<a/>")
        with pytest.raises(peer.PeerClosed):
            joined.change_query("/a")
        with pytest.raises(peer.PeerClosed):
            joined.rejoin()
        assert [item async for item in joined if isinstance(item, peer.Packet)] == []


def test_a_closed_root_in_a_thread_says_so_and_may_be_closed_twice():
    root = blocking.root("feed", **LOCAL)
    root.close()
    root.close()
    with pytest.raises(peer.PeerClosed):
        root.send(b"<a/>")


@pytest.mark.parametrize("join", [peer.join, blocking.join])
@pytest.mark.parametrize(
    "wrong",
    [
        {"start": -3},
        {"start": 1.5},
        {"start": True},
        {"start": "-3"},
        {"start": "\u0663"},
        {"start": "9" * 5_000},
        {"start": 1 << 63},
        {"capacity": -1},
        {"capacity": 4_097},
        {"capacity": 2.5},
        {"parents": 0},
        {"owner_id": "nonsense"},
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(join, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        join("feed", **wrong, **LOCAL)


@pytest.mark.parametrize("root", [peer.root, blocking.root])
def test_a_root_with_a_negative_capacity_is_refused_at_the_call(root):
    with pytest.raises(ValueError, match="capacity"):
        root("feed", capacity=-1, **LOCAL)
