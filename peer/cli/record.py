"""`record` and `replay`: a stream into a durable log, and out of it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from dcp import Gap, Omitted, Packet, Start
from peer import packetlog
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.output import Printer
from peer.cli.running import beside, expect_directory, note, peer_options, run
from peer.items import Content
from peer.node import Peer
from peer.opening import open_peer
from peer.role import Role
from peer.trust.recording import ProofWriter

READ_BATCH = 256
SHORTEST_SYNC = 0.05


def record(settings: Settings) -> int:
    config = packetlog.LogConfig(
        max_log_bytes=settings["max_bytes"],
        max_age_seconds=settings["max_age"],
        sync_seconds=settings["sync_seconds"],
    )
    try:
        writer = packetlog.Writer(Path(settings["out"]).expanduser(), config, stream=settings["roots_key"])
    except OSError as error:
        raise CliError(f"--out {settings['out']}: {error.strerror}", ExitCode.DISK) from None
    proofs = ProofWriter(writer.directory, config, settings["roots_key"])
    with writer:
        if writer.repair is not None:
            note(f"cut off {writer.repair.bytes_dropped} bytes that a crash left unfinished in {writer.repair.segment}")
        changes: dict[str, object] = {}
        if writer.last_an >= 0:
            note(f"going on after AN {writer.last_an}")
            changes = {"start": Start.POSITION, "position": writer.last_an}
        options = peer_options(settings, Role.LEAF, **changes)

        async def command() -> int:
            async with open_peer(options) as peer, trio.open_nursery() as nursery:
                nursery.start_soon(expect_directory, peer, settings)
                await beside(peer, settings, nursery, live=True)
                try:
                    code = await _write(peer, writer, proofs, settings)
                finally:
                    await _in_thread(proofs.close)
                nursery.cancel_scope.cancel()
            return code

        return run(settings, command)


async def _write(peer: Peer, writer: packetlog.Writer, proofs: ProofWriter, settings: Settings) -> int:
    keys = peer.keep_envelopes(proofs.keep)

    def write(kept: list[tuple[int, bytes]], items: list[Content], now: float) -> None:
        proofs.flush(kept, keys, now)
        writer.append(entries(items, now))

    def sync() -> None:
        proofs.sync()
        writer.sync()

    count, packets = settings["count"], 0
    timeout = settings["timeout"] if settings["timeout"] is not None else float("inf")
    # The log syncs when it is written to; when nothing comes, it is for us to see to it.
    patience = max(settings["sync_seconds"], SHORTEST_SYNC)
    try:
        with trio.move_on_after(timeout):
            while True:
                items: list[Content] | None = None
                with trio.move_on_after(patience):
                    items = await peer.receive_many()
                if items is None:
                    await _in_thread(sync)
                    continue
                if not items:
                    break
                if count is not None:
                    items = items[: _prefix(items, count - packets)]
                packets += sum(isinstance(item, Packet | Omitted) for item in items)
                await _in_thread(partial(write, proofs.take(), items, time.time()))
                if count is not None and packets >= count:
                    return ExitCode.OK
    finally:
        # Before the peer leaves the mesh, which takes seconds: a supervisor may not wait that long.
        await _in_thread(sync)
    if count is not None:
        raise CliError(f"{packets} of {count} packets came in {timeout:g} s", ExitCode.NOT_ALL)
    return ExitCode.OK


async def _in_thread(write: Callable[[], object]) -> None:
    """A disk that stalls must not keep the peer from its links. Shielded: a batch is in the log or it is not."""
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(write)


def _prefix(items: list[Content], packets: int) -> int:
    """How many items hold that many packets."""
    for place, item in enumerate(items):
        packets -= isinstance(item, Packet | Omitted)
        if packets == 0:
            return place + 1
    return len(items)


def entries(items: list[Content], now: float) -> list[packetlog.Entry]:
    """What the log keeps of the content: packets, late or not, and gaps, with the time they came."""
    now_us = int(now * 1e6)
    kept: list[packetlog.Entry] = []
    for item in items:
        if isinstance(item, Packet):
            kept.append(packetlog.Packet(item.an, now_us, item.payload))
        elif isinstance(item, Omitted):
            kept.append(packetlog.Late(item.an, now_us, item.payload))
        elif isinstance(item, Gap):
            kept.append(packetlog.Gap(item.after, item.until, now_us))
    return kept


def replay(settings: Settings, directory: str) -> int:
    if not Path(directory).is_dir():
        raise CliError(f"{directory} is not a packet log: no such folder", ExitCode.DISK)
    reader = packetlog.Reader(directory, durable=False)
    printer = Printer(settings["format"], reader.stream or Path(directory).name)

    async def command() -> int:
        position = _position(reader, settings["from"])
        while found := await trio.to_thread.run_sync(partial(reader.read, position, limit=READ_BATCH)):
            lines = [printer.render([_content(entry)], entry.time_us / 1e6, settings["count"]) for _, entry in found]
            await printer.put(b"".join(lines))
            position = found[-1][0] + 1
            if settings["count"] is not None and printer.packets >= settings["count"]:
                break
        return ExitCode.OK

    return run(settings, command)


def _position(reader: packetlog.Reader, start: str) -> int:
    if start == "oldest":
        return reader.first_position()
    if start.startswith("@"):
        return reader.find_time(int(float(start[1:]) * 1e6))
    return reader.find_an(int(start))


def _content(entry: packetlog.Entry) -> Packet | Gap | Omitted:
    if isinstance(entry, packetlog.Late):
        return Omitted(entry.an, entry.payload)
    return Packet(entry.an, entry.payload) if isinstance(entry, packetlog.Packet) else Gap(entry.after, entry.until)
