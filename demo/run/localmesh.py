"""A mesh of real processes on this machine: opened, hurt and restored. `ObservedMesh` holds what is known of it."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from demo.check.observed import MeshError
from demo.run import scratch
from demo.run.faults import FAIR, Weather
from demo.run.lying import LIES
from demo.run.member import State
from demo.run.meshprocesses import MeshProcesses
from demo.run.presets import query_of_client
from demo.run.processes import prepare
from demo.run.settings import MAX_PEERS, DemoSettings
from xmlswitch import Query


class LocalMesh(MeshProcesses):
    """Processes, and hands that hurt them. Open it with `open_mesh`."""

    def __init__(self, settings: DemoSettings, folder: Path, nursery: trio.Nursery) -> None:
        super().__init__(settings, folder, nursery)
        self._guests = 0

    # --- controls that hurt -------------------------------------------------------------------------------------------

    def kill(self, *names: str) -> None:
        """As kill -9: no word to anybody."""
        members = [self.member(name) for name in names]
        self.ledger.fault(time.monotonic())
        for member in members:
            if member.state in (State.RUNNING, State.FROZEN) and member.process is not None:
                member.process.signal(signal.SIGKILL)
                self.note("fault", member.name, "killed (SIGKILL)")
                self._died(member)

    def freeze(self, *names: str) -> None:
        """SIGSTOP: it is still there, and says nothing."""
        members = [self.member(name) for name in names]
        self.ledger.fault(time.monotonic())
        for member in members:
            if member.runs and member.process is not None:
                member.process.signal(signal.SIGSTOP)
                member.state = State.FROZEN
                member.excused_until = float("inf")
                self.note("fault", member.name, "frozen (SIGSTOP)")
                self.judge(member, time.monotonic())

    def thaw(self, *names: str) -> None:
        self.ledger.acted(time.monotonic())
        for member in [self.member(name) for name in names]:
            if member.state is State.FROZEN and member.process is not None:
                member.process.signal(signal.SIGCONT)
                member.state = State.RUNNING
                member.thawed_at = time.monotonic()
                # What came while it was stopped is handed over now, and so a little after.
                member.excused_until = time.monotonic() + 0.5
                self.note("heal", member.name, "thawed (SIGCONT)")

    def restart(self, *names: str) -> None:
        """A new process with the same key at the same address; a client goes on where it was."""
        self.ledger.acted(time.monotonic())
        for member in [self.member(name) for name in names]:
            if member.state is State.DEAD:
                member.restarts += 1
                member.state = State.STARTING
                member.lie = None
                self.note("heal", member.name, "restarted")
                self._nursery.start_soon(self._relaunch, member)

    def set_weather(self, weather: Weather, *, between: tuple[str, str] | None = None) -> None:
        """On the link between two peers, both ways; or on every path."""
        self.ledger.fault(time.monotonic())
        words = weather.words()
        if between is None:
            self.everywhere = weather
            self.note("fault" if not weather.is_fair else "heal", "", f"everywhere: {words}")
        else:
            pair = frozenset(self.member(name).name for name in between)
            if len(pair) != 2:
                raise MeshError("a link needs two different peers")
            if weather.is_fair:
                self.links.pop(pair, None)
            else:
                self.links[pair] = weather
            self.note("fault" if not weather.is_fair else "heal", between[1], f"link with {between[0]}: {words}")
        self._tell_weather()

    def set_links(self, weather: Mapping[frozenset[str], Weather]) -> None:
        """All links that are not as `everywhere` says, at once: a landscape, and no fault."""
        self.links = {pair: found for pair, found in weather.items() if not found.is_fair}
        self._tell_weather()

    def partition(self, names: Iterable[str]) -> None:
        """These on one side, everybody else on the other: nothing passes."""
        side = frozenset(self.member(name).name for name in names)
        if not side:
            raise MeshError("no running peer to cut off")
        self.heal_partition(quietly=True)
        self.ledger.fault(time.monotonic())
        # Only a side without a feed can't be timed: no peer can send it anything.
        is_fed = any(self.members[name].role == "root" and self.members[name].runs for name in side)
        self.side = side
        self.cut_off = frozenset() if is_fed else side
        self.note("fault", "", f"partition: {', '.join(sorted(side))} | everybody else")
        self._tell_weather()

    def heal_partition(self, *, quietly: bool = False) -> None:
        if not self.side:
            return
        self.ledger.acted(time.monotonic())
        for name in self.cut_off:
            if name in self.members:
                self.members[name].excused_until = max(self.members[name].excused_until, time.monotonic())
        self.side = self.cut_off = frozenset()
        if not quietly:
            self.note("heal", "", "the partition is healed")
        self._tell_weather()

    def set_pace(self, name: str, rate: float | None) -> None:
        """Make a client consume at most `rate` packets per second; None: as they arrive."""
        member = self.member(name)
        if member.role != "leaf":
            raise MeshError(f"{name} is not a client")
        if rate is not None and not 0.1 <= rate <= 100_000:
            raise MeshError("rate must be 0.1 to 100,000 packets/s")
        member.pace = rate
        if rate is None:
            member.excused_until = max(member.excused_until, time.monotonic() + 0.5)
        self._post(member, {"do": "pace", "rate": rate})
        words = f"consumes {rate:g} packets/s" if rate is not None else "consumes at full speed"
        self.note("fault" if rate is not None else "heal", name, words)

    def lie(self, name: str, how: str | None) -> None:
        """Make a peer lie to its children (see `demo.run.lying`); None: be honest again."""
        member = self.member(name)
        if member.role not in ("root", "router"):
            raise MeshError(f"{name} has no children to lie to")
        if how is not None and how not in LIES:
            raise MeshError(f"a lie is one of {', '.join(LIES)}, got {how!r}")
        if not member.runs:
            raise MeshError(f"{name} is not running")
        member.lie = how
        self._post(member, {"do": "lie", "how": how})
        self.note("fault" if how is not None else "heal", name, LIES[how] if how is not None else "is honest again")

    def change_query(self, name: str, text: str) -> None:
        """QueryError for a bad one."""
        member = self.member(name)
        if member.role != "leaf":
            raise MeshError(f"{name} is not a client and has no query")
        Query.parse(text)
        member.wanted_query = text
        self._post(member, {"do": "query", "text": text})
        self.note("info", name, f"asks for {text}")

    def check_storm(self, *, routers: int, clients: int) -> None:
        room = MAX_PEERS - len(self.members)
        if routers < 0 or clients < 0 or not routers + clients:
            raise MeshError("a storm needs at least one peer")
        if routers + clients > room:
            raise MeshError(f"room for only {room} more peers")

    async def storm(self, *, routers: int = 0, clients: int = 0) -> None:
        """So many peers at once."""
        self.check_storm(routers=routers, clients=clients)
        self.ledger.fault(time.monotonic())
        self.note("fault", "", f"a storm: {routers} routers and {clients} clients join at once")
        async with trio.open_nursery() as nursery:
            for number in range(routers + clients):
                self._guests += 1
                if number < routers:
                    guest = self._add(f"guest-{self._guests}", "router", is_guest=True)
                else:
                    guest = self._add(
                        f"guest-{self._guests}", "leaf", query=query_of_client(self._guests), is_guest=True
                    )
                nursery.start_soon(self._launch, guest)

    def clear_weather(self) -> None:
        self.everywhere, self.links = FAIR, {}
        self._tell_weather()

    def put_back(self) -> None:
        """As it was at the start: fair weather, everybody there, guests gone, first queries; totals from zero."""
        self.heal_partition(quietly=True)
        self.clear_weather()
        self.thaw(*[m.name for m in self.members.values() if m.state is State.FROZEN])
        for member in self.members.values():
            if member.lie is not None and member.runs:
                self.lie(member.name, None)
        guests = [member for member in self.members.values() if member.is_guest]
        for guest in guests:
            if guest.process is not None:
                guest.process.signal(signal.SIGKILL)
            guest.state = State.DEAD
            self.ledger.parents(guest.name, is_short=False, now=time.monotonic())
            self._by_address = {a: n for a, n in self._by_address.items() if n != guest.name}
            del self.members[guest.name]
            self.air.forget(guest.name)
        self.restart(*[m.name for m in self.members.values() if m.state is State.DEAD])
        self.reset_clients()
        self.note("heal", "", "everything restored")
        self.reset_totals()

    def reset_clients(self) -> None:
        """Each client asks for what it asked for at the start, at full speed."""
        for number in range(1, self.settings.clients + 1):
            member = self.members[f"client-{number}"]
            if member.pace is not None:
                self.set_pace(member.name, None)
            if member.wanted_query != query_of_client(number):
                self.change_query(member.name, query_of_client(number))

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came true in time."""
        with trio.move_on_after(seconds):
            while not condition():  # noqa: ASYNC110  (conditions on clocks and counters, which set no event)
                await trio.sleep(0.02)
            return True
        return condition()

    async def wait_settled(self, seconds: float) -> bool:
        """Until everybody has n parents and everything that was due."""
        return await self.wait_until(lambda: self.is_settled() and self.is_caught_up(), seconds)

    def is_settled(self) -> bool:
        starting = any(m.state is State.STARTING for m in self.members.values())
        return not starting and self.ledger.is_settled(time.monotonic())


@asynccontextmanager
async def open_mesh(settings: DemoSettings) -> AsyncIterator[LocalMesh]:
    """A mesh that is started; every process of it is gone when the block is left."""
    scratch.sweep()
    prepare()
    folder = Path(tempfile.mkdtemp(prefix=scratch.prefix()))
    mesh: LocalMesh | None = None
    try:
        async with trio.open_nursery() as nursery:
            mesh = LocalMesh(settings, folder, nursery)
            await mesh.start()
            yield mesh
            nursery.cancel_scope.cancel()
    finally:
        if mesh is not None:
            processes = [m.process for m in mesh.members.values() if m.process is not None]
            for process in processes:
                process.signal(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                for process in processes:
                    await trio.to_thread.run_sync(process.close)
                    await process.channel.aclose()
        shutil.rmtree(folder, ignore_errors=True)
