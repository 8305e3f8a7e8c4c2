"""A root at work: reads its feed, numbers it, keeps its pace, and publishes.

A feed without numbers of its own makes the root listen before it serves: as a client, it compares what the mesh carries
with what its own feed brings, and opens as a root only when it knows its numbers. When its feed breaks later it stops
publishing, listens again, and goes on behind a hole.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio

from asdi.origin import MAX_ORIGIN_BYTES, with_origin
from dcp import Packet, Start
from dht import DirectoryUnavailable, Identity, PeerId, id_text
from peer.directory import grant_of
from peer.errors import FeedError, NotSynchronised
from peer.feeds.content_work import ContentWork
from peer.feeds.framing import MAX_DOCUMENT_BYTES, Splitter, make_splitter
from peer.feeds.mark import Mark
from peer.feeds.replay import LogFollower
from peer.feeds.sequencer import AsdiSequencer, ContentSequencer, Numbered, PositionSequencer
from peer.feeds.sources import CHANNEL_CHUNKS
from peer.feeds.state import MarkFile
from peer.node import Peer
from peer.opening import open_peer
from peer.options import PeerOptions
from peer.role import Role

if TYPE_CHECKING:
    from peer.feeds.plan import Plan

log = logging.getLogger(__name__)

RESERVE = 1_024
"""ANs that a counting root writes down ahead, so that it need not sync its mark for each packet."""
SAVE_INTERVAL = 1.0
READ_AHEAD = 256
"""Packets that a generator makes in one go, in a thread."""
CHANNEL_PACKETS = 256
"""Numbered packets that wait to be published; then the feed waits."""
LOOK_INTERVAL = 0.25


class Hole(NamedTuple):
    """A packet that has an AN and can't be published."""

    an: int


class RootFeed:
    """Counters and the loop. `run` ends when the feed does."""

    def __init__(
        self,
        options: PeerOptions,
        plan: Plan,
        *,
        transform: Callable[[bytes], bytes] = bytes,
        overhead: int = 0,
        find_timeout: float = 3.0,
        sync_timeout: float = 60.0,
        on_listening: Callable[[str, int], None] = lambda host, port: None,
        on_open: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        self.options = options
        self.plan = plan
        self.errors: Counter[str] = Counter()
        """What the feed brought that became no packet, by reason."""
        self.published = 0
        self.holes = 0
        """ANs that were assigned and not published: each becomes a gap."""
        self.max_document = MAX_DOCUMENT_BYTES - overhead - (MAX_ORIGIN_BYTES if plan.lines else 0)
        self.last_an: int | None = None
        self.ended = trio.Event()
        self.peer: Peer | None = None
        self._transform = transform  # adds at most `overhead` bytes
        self._find_timeout = find_timeout
        self._sync_timeout = sync_timeout
        self._on_listening = on_listening
        self._on_open = on_open
        self._pace_start: tuple[float, float] | None = None
        self._paced = 0
        self._reserved = 0
        self._saved_at = 0.0
        self._file: MarkFile | None = None
        self._mark: Mark | None = None
        self._had_numbers = False
        self._published_at = time.monotonic()

    @property
    def is_barren(self) -> bool:
        """It has brought no packet at all, now or before a restart."""
        return not (self.published or self.holes or self.errors["repeated"] or self._had_numbers)

    @property
    def has_ended(self) -> bool:
        return self.ended.is_set()

    def silent_for(self) -> float:
        """Seconds since the last packet, or since the start."""
        return time.monotonic() - self._published_at

    async def run(self) -> None:
        """Serve until cancelled; `ended` is set when there is nothing more to read."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._open_mark)
        try:
            await self._run()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._close_mark)

    def _open_mark(self) -> None:
        folder = self.options.numbers_folder()
        if folder is None or self.plan.numbering not in ("content", "asdi"):
            return
        try:
            self._file, self._mark = MarkFile.open(folder, self.options.stream)
            self._had_numbers = self._mark is not None
        except FeedError as error:
            if self.options.state is not None:
                raise
            log.warning("%s: %s; after a restart this root would repeat numbers", self.options.stream, error)

    def _close_mark(self) -> None:
        """Write down where the feed stood, without what was reserved ahead."""
        if self._file is None:
            return
        try:
            if self.last_an is not None and self.plan.numbering == "content":
                self._file.save(Mark(self.last_an, exact=True))
            elif self.last_an is not None and self._mark is not None:
                self._file.save(self._mark)
        finally:
            self._file.close()

    async def _run(self) -> None:
        if self.plan.numbering == "content":
            await self._run_content()
            return
        async with self._opened():
            await self._run_numbered()
            await self._rest()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        # Framing decides what a packet is; what the feed brings is passed on as it is.
        async with open_peer(replace(self.options, raw=True), keeps_numbers=False) as self.peer:
            self._on_open(self.peer)
            yield

    async def _rest(self) -> None:
        log.info("the feed has ended after %d packets; its history is still served", self.published)
        self.ended.set()
        await trio.sleep_forever()

    # --- feeds that have their numbers --------------------------------------------------------------------------------

    async def _run_numbered(self) -> None:
        if self.plan.is_demo:
            await self._run_demo()
        elif self.plan.follow is not None:
            await self._run_log(Path(self.plan.follow))
        elif self.plan.packets is not None:
            await self._run_generator(self.plan.packets())
        else:
            await self._run_bytes()

    async def _run_demo(self) -> None:
        from peer.feeds.demo import DemoFeed

        plan = self.plan

        def begin() -> tuple[DemoFeed, Iterator[Numbered]]:
            feed = DemoFeed(copies=plan.copies, speed=plan.speed, rate=plan.rate or None)
            return feed, feed.packets(time.time())

        feed, packets = await trio.to_thread.run_sync(begin)
        ahead = max(1, min(READ_AHEAD, int(plan.rate or 2 * plan.copies * (plan.speed or 1.0))))
        while True:
            for packet in await trio.to_thread.run_sync(lambda: list(islice(packets, ahead))):
                await trio.sleep(max(0.0, feed.send_at(packet) - time.time()))
                await self._publish(packet)

    async def _run_generator(self, packets: Iterator[Numbered]) -> None:
        while batch := await trio.to_thread.run_sync(lambda: list(islice(packets, READ_AHEAD))):
            for packet in batch:
                await self._pace(packet)
                await self._publish(packet)

    async def _run_log(self, path: Path) -> None:
        """What is synced in a log, and what is added to it. A late packet can't be published behind later ones."""
        follower = LogFollower(path)
        while True:
            batch = await trio.to_thread.run_sync(follower.read)
            for packet in batch:
                await self._publish(packet)
            if not batch:
                await trio.sleep(LOOK_INTERVAL)

    async def _run_bytes(self) -> None:
        numberer = self._numberer()
        async with trio.open_nursery() as nursery:
            chunks = self._start_bytes(nursery)
            async with chunks:
                splitter = self._splitter()
                async for chunk in chunks:
                    packets = splitter.feed(chunk) if chunk is not None else splitter.finish()
                    for packet in self._with_skipped(splitter, packets):
                        await self._number_and_publish(numberer, packet)
                    splitter = self._after(splitter, is_break=chunk is None)
                for packet in self._with_skipped(splitter, splitter.finish()):
                    await self._number_and_publish(numberer, packet)
                self._count(splitter)

    def _splitter(self) -> Splitter:
        is_asdi = self.plan.numbering in ("asdi", "asdi-position")
        return make_splitter(self.plan.framing, max_document=self.max_document, exact=is_asdi and self.plan.lines)

    def _with_skipped(self, splitter: Splitter, packets: list[bytes]) -> Iterator[bytes | None]:
        """The packets, with a None for each that was too large, in its place. Each is logged with its size."""
        skipped, splitter.skipped = splitter.skipped, []
        place = 0
        for after, size in skipped:
            yield from packets[place:after]
            place = after
            log.warning(
                "feed %s: skipped a document of %d bytes: a packet holds at most %d", self.plan.name, size,
                self.max_document,
            )  # fmt: skip
            yield None
        yield from packets[place:]

    def _numberer(self) -> Callable[[bytes | None], Numbered | Hole | None]:
        plan = self.plan
        if plan.numbering == "position":
            places = PositionSequencer()
            return lambda payload: places.number(payload) if payload is not None else Hole(places.skip())
        mark = self._mark if plan.numbering == "asdi" else None
        asdi = AsdiSequencer(plan.reference, mark, waits=plan.is_live)
        positions = PositionSequencer() if plan.numbering == "asdi-position" else None

        def number(line: bytes | None) -> Numbered | Hole | None:
            if line is None:
                # ASDI's own numbers show that one is missing.
                return Hole(positions.skip()) if positions is not None else None
            if positions is not None:
                packet = AsdiSequencer(plan.reference, waits=False).number(line)
            else:
                packet = asdi.number(line)
                self._mark = asdi.mark
            if packet is None:
                self.errors["not_published"] += 1
                return None
            if positions is None:
                return packet
            return positions.number(packet.payload)._replace(time=packet.time, line=packet.line)

        return number

    async def _number_and_publish(
        self, numberer: Callable[[bytes | None], Numbered | Hole | None], raw: bytes | None
    ) -> None:
        packet = numberer(raw)
        if isinstance(packet, Hole):
            self._publish_hole(packet.an)
        elif packet is not None:
            await self._pace(packet)
            await self._publish(packet)

    def _start_bytes(self, nursery: trio.Nursery) -> trio.MemoryReceiveChannel[bytes | None]:
        assert self.plan.make_bytes is not None
        send, receive = trio.open_memory_channel[bytes | None](CHANNEL_CHUNKS)
        mark = self._file.path if self._file is not None else None
        memory = mark.with_name(mark.name.replace("root-", "feed-", 1)) if mark is not None else None
        nursery.start_soon(self.plan.make_bytes(self._on_listening, memory).run, send)
        return receive

    def _after(self, splitter: Splitter, *, is_break: bool) -> Splitter:
        """The splitter for what comes next: a new one behind a break, or when this one is out of step for good."""
        if not is_break and not splitter.is_broken:
            return splitter
        self._count(splitter)
        return self._splitter()

    def _count(self, splitter: Splitter) -> None:
        if splitter.errors:
            log.warning("feed %s: %s", self.plan.name, dict(splitter.errors))
            self.errors.update(splitter.errors)

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def _publish(self, packet: Numbered) -> None:
        assert self.peer is not None
        if self.last_an is not None and packet.an <= self.last_an:
            self.errors["repeated"] += 1
            return
        payload = packet.payload
        if self.plan.lines and packet.line is not None and packet.time is not None:
            payload = with_origin(payload, int(packet.time), packet.line)
        try:
            await self.peer.send(self._transform(payload), an=packet.an, contiguous=packet.contiguous)
        except ValueError as error:
            self.errors["not_published"] += 1
            log.warning("feed %s: packet %d was not published: %s", self.plan.name, packet.an, error)
            self._publish_hole(packet.an)
            return
        self.published += 1
        self._published_at = time.monotonic()
        self.last_an = packet.an
        if self.plan.numbering == "asdi" and self._mark is not None:
            await self._save_now_and_then(self._mark)

    def _publish_hole(self, an: int) -> None:
        """Tell clients that the packet with this AN is lost; no other peer has it either."""
        assert self.peer is not None
        if self.last_an is None or an > self.last_an:
            self.peer.publish_hole(an)
            self.last_an = an
            self.holes += 1

    async def _pace(self, packet: Numbered) -> None:
        plan = self.plan
        if plan.is_live:
            return
        if plan.speed is not None and packet.time is not None:
            if self._pace_start is None:
                self._pace_start = (trio.current_time(), packet.time)
            begun, first = self._pace_start
            due = begun + (packet.time - first) / plan.speed
        elif plan.rate:
            if self._pace_start is None:
                self._pace_start = (trio.current_time(), 0.0)
            due = self._pace_start[0] + self._paced / plan.rate
            self._paced += 1
        else:
            return
        if due > trio.current_time():
            await trio.sleep_until(due)

    async def _save_now_and_then(self, mark: Mark) -> None:
        now = trio.current_time()
        if self._file is not None and now - self._saved_at >= SAVE_INTERVAL:
            self._saved_at = now
            await trio.to_thread.run_sync(self._file.save, mark)

    # --- feeds that have no numbers -----------------------------------------------------------------------------------

    async def _run_content(self) -> None:
        """Three tasks: one reads the feed, one finds the numbers when they are not known, and this one publishes."""
        send, receive = trio.open_memory_channel[Numbered | None](CHANNEL_PACKETS)
        work = ContentWork(ContentSequencer(self._mark), send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_content, work)
            nursery.start_soon(self._find_numbers, work)
            async with receive:
                packet = await receive.receive()
                async with self._opened():
                    await self._publish_counted(packet)
                    async for packet in receive:
                        await self._publish_counted(packet)
                    await self._rest()

    async def _publish_counted(self, packet: Numbered | None) -> None:
        if packet is not None:
            await self._reserve(packet.an)
            await self._publish(packet)

    async def _reserve(self, an: int) -> None:
        """Write down that ANs up to a later one may have been given, before this one is."""
        if self._file is not None and an > self._reserved:
            self._reserved = an + RESERVE
            await trio.to_thread.run_sync(self._file.save, Mark(self._reserved))

    async def _read_content(self, work: ContentWork) -> None:
        async with trio.open_nursery() as nursery:
            chunks = self._start_bytes(nursery)
            async with chunks:
                splitter = self._splitter()
                # While the numbers are being looked for, the feed waits: what is read then and breaks off is lost.
                await work.wait_readable()
                async for chunk in chunks:
                    await work.wait_readable()
                    known_errors = splitter.errors.total()
                    packets = splitter.feed(chunk) if chunk is not None else splitter.finish()
                    for packet in self._with_skipped(splitter, packets):
                        if packet is not None:  # a skipped one is an error: the count is found again behind it
                            await work.number(packet)
                    if chunk is None or splitter.errors.total() > known_errors:
                        self._tell_dropped(work.broke())
                    splitter = self._after(splitter, is_break=chunk is None)
                await work.wait_readable()
                for packet in self._with_skipped(splitter, splitter.finish()):
                    if packet is not None:
                        await work.number(packet)
                self._count(splitter)
        work.read_all()

    def _tell_dropped(self, dropped: int) -> None:
        if dropped:
            self.errors["unnumbered"] += dropped
            log.warning(
                "feed %s: %d packets were lost: the feed broke off before their numbers were found", self.plan.name,
                dropped,
            )  # fmt: skip

    async def _find_numbers(self, work: ContentWork) -> None:
        """Whenever the numbers are not known: alone, count; otherwise listen until they are."""
        async with work.out:
            while await work.wait_unknown():
                owner = self._own_owner()
                leaf = self.options.on_any_port(
                    role=Role.LEAF, grant=None, owner=None, capacity=0, start=Start.OLDEST,
                    owner_id=id_text(owner) if owner is not None else None,
                )  # fmt: skip
                async with open_peer(leaf) as listener:
                    if await self._is_alone(listener, owner):
                        await work.count_alone()
                    else:
                        work.let_read()  # its own packets are what the mesh's are compared with
                        await self._listen(listener, work)

    def _own_owner(self) -> PeerId | None:
        """Whose root this is; None for a key of this run only, which nobody else vouches with."""
        options = self.options
        if self.peer is not None:
            return PeerId(self.peer.owner)
        if options.owner is None and options.grant is None and options.identity is None:
            return None
        identity = Identity.load_or_create(options.identity) if options.identity is not None else Identity.generate()
        grant = grant_of(options, identity)
        return grant.owner if grant is not None else identity.peer_id

    async def _is_alone(self, listener: Peer, owner: PeerId | None) -> bool:
        """Whether no other root of this owner is in the directory. Roots of others matter when this one opens."""
        own = {self.peer.identity.peer_id} if self.peer is not None else set()
        if self.options.identity is not None:
            own.add(Identity.load_or_create(self.options.identity).peer_id)
        assert listener.directory is not None
        with trio.move_on_after(self._find_timeout):
            while True:
                try:
                    roots = await listener.directory.claimed_roots(self.options.stream)
                except DirectoryUnavailable:
                    roots = []
                if any(root.peer_id not in own and root.owner == owner for root in roots):
                    return False
                await trio.sleep(LOOK_INTERVAL)
        return True

    async def _listen(self, listener: Peer, work: ContentWork) -> None:
        is_first = self.peer is None
        log.info("another root serves %s: listening until our numbers are known", self.options.stream)
        with trio.move_on_after(self._sync_timeout if is_first else float("inf")):
            async for item in listener:
                if isinstance(item, Packet):
                    await work.heard(item.an, item.payload)
                if not work.sequencer.listening:
                    return
        if work.sequencer.listening:
            why = (
                "the content repeats, and fits in more than one way"
                if work.sequencer.ambiguous
                else "what the mesh carries and what the feed brings have not met"
            )
            raise NotSynchronised(
                f"{self.options.stream} has another root, and this one could not find its numbers in "
                f"{self._sync_timeout:g} s: {why}"
            )
