"""The processes of a mesh: started, listened to, brought back. `demo.run.localmesh` decides what happens to them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import trio

from demo.check.checker import ClientCheck
from demo.check.observed import MeshError, ObservedMesh
from demo.check.truth import Truth
from demo.run.faults import FAIR, Weather
from demo.run.feed import FeedPlan
from demo.run.member import Member, State
from demo.run.presets import query_of_client
from demo.run.processes import PeerProcess
from demo.run.settings import STREAM, DemoSettings
from dht import Identity
from peer.goals.signed import sign_goal
from xmlswitch import Query

TICK = 0.1
BEGIN_AFTER = 0.3
START_PATIENCE = 60.0


class MeshProcesses(ObservedMesh):
    """ObservedMesh whose members are processes."""

    def __init__(self, settings: DemoSettings, folder: Path, nursery: trio.Nursery) -> None:
        super().__init__(settings, time.monotonic())
        self._folder = folder
        self._nursery = nursery
        self._owner = folder / "owner.key"
        Identity.generate().save(self._owner)
        self.everywhere = FAIR
        self.links: dict[frozenset[str], Weather] = {}
        self.side: frozenset[str] = frozenset()
        """The one side of a partition; empty when there is none."""

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Every process, until it answers. The feed begins when the roots are there."""
        size = self.settings
        await self._launch_first(self._add("dht-1", "dht"))
        async with trio.open_nursery() as nursery:
            for number in range(2, size.dht_nodes + 1):
                nursery.start_soon(self._launch_first, self._add(f"dht-{number}", "dht"))
        plan = FeedPlan(time.monotonic() + BEGIN_AFTER, size.copies, size.speed)
        packets = await trio.to_thread.run_sync(plan.packets_after, plan.began - 1.0)
        plan = FeedPlan(time.monotonic() + BEGIN_AFTER, size.copies, size.speed)
        self.plan = plan
        self.truth = Truth(plan, packets)
        self._nursery.start_soon(self._tick)
        async with trio.open_nursery() as nursery:
            for number in range(1, size.roots + 1):
                nursery.start_soon(self._launch_first, self._add(f"root-{number}", "root"))
        if size.goal is not None:
            self.set_goal(size.goal)
        async with trio.open_nursery() as nursery:
            for number in range(1, size.routers + 1):
                nursery.start_soon(self._launch_first, self._add(f"router-{number}", "router"))
            for number in range(1, size.clients + 1):
                client = self._add(f"client-{number}", "leaf", query=query_of_client(number))
                nursery.start_soon(self._launch_first, client)

    def set_goal(self, text: str) -> None:
        """Sign it as the owner of the stream, and hand it to the roots; the others get it from their neighbours."""
        data = sign_goal(text, STREAM, Identity.load(self._owner), int(time.time() * 1_000))
        self.goal = text
        self.note("info", "", f"goal: {text}")
        for member in self.members.values():
            if member.role == "root" and member.runs and member.process is not None:
                member.process.channel.post({"do": "goal", "data": data.hex()})

    def _add(self, name: str, role: str, *, query: str | None = None, is_guest: bool = False) -> Member:
        spec: dict[str, Any] = {
            "name": name,
            "role": role,
            "identity": str(self._folder / f"{name}.key"),
            "listen": ["127.0.0.1", 0],
        }
        if role != "dht":
            capacity = 0 if role == "leaf" else self.settings.capacity
            spec |= {
                "parents": self.settings.parents,
                "capacity": capacity,
                "owner": str(self._owner),
                "log_packets": self.settings.log_packets,
            }
        if role == "root":
            spec["feed"] = self.plan.as_json()
        if role == "leaf":
            spec["query"] = query
        member = Member(name, role, spec, is_guest=is_guest, wanted_query=query)
        if role == "leaf":
            assert query is not None
            member.check = ClientCheck(name, self.truth, Query.parse(query))
        self.members[name] = member
        return member

    async def _launch_first(self, member: Member) -> None:
        if not await self._launch(member):
            raise MeshError(f"{member.name} did not start within {START_PATIENCE:.0f} s")

    async def _launch(self, member: Member) -> bool:
        """Start the process and wait until it listens. One that does not in time is killed, and may be tried again."""
        member.state = State.STARTING
        member.status, member.rates, member.sound = {}, {}, 0
        # All current DHT nodes: the first one had no other to ask when it was first started.
        nodes = [m for m in self.members.values() if m.role == "dht" and m is not member]
        member.spec["bootstrap"] = [list(node.address) for node in nodes if node.address is not None]
        try:
            process = await PeerProcess.start(member.spec)
        except OSError as error:
            self._give_up(member, str(error))
            return False
        member.process = process
        member.ended = trio.Event()
        ready = trio.Event()
        self._nursery.start_soon(self._serve, member, process, ready)
        if self.members.get(member.name) is not member:  # taken off while it was being forked
            member.state = State.DEAD
            process.signal(signal.SIGKILL)
            return True
        with trio.move_on_after(START_PATIENCE):
            await ready.wait()
            return True
        process.signal(signal.SIGKILL)
        self._give_up(member, f"nothing heard for {START_PATIENCE:.0f} s")
        return False

    def _give_up(self, member: Member, why: str) -> None:
        self.note("fault", member.name, f"did not start: {why}")
        self._died(member)
        if member.process is None:
            member.ended.set()  # there was no life to wait for

    async def _serve(self, member: Member, process: PeerProcess, ready: trio.Event) -> None:
        """Listen to one life of a peer."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.channel.run_writer)
            async for message in process.messages():
                if member.process is process:
                    self.heard(member, message)
                    if message["k"] == "ready":
                        self._tell_weather()
                        self._post(member, {"do": "pace", "rate": member.pace})
                        ready.set()
            nursery.cancel_scope.cancel()
        await process.wait_ended()
        await process.channel.aclose()
        if member.process is process and member.state is not State.DEAD:
            self.note("fault", member.name, "exited unexpectedly")
            self._died(member)
        member.ended.set()
        ready.set()

    def _died(self, member: Member) -> None:
        member.state = State.DEAD
        self.bury(member)
        member.excused_until = time.monotonic()
        self.judge(member, time.monotonic())

    async def _relaunch(self, member: Member) -> None:
        await member.ended.wait()  # what its last life said is read to the end: the next one goes on behind it
        self._resume(member)
        await self._launch(member)

    def _resume(self, member: Member) -> None:
        check = member.check
        if check is None:
            return
        assert member.wanted_query is not None
        query = Query.parse(member.wanted_query)
        member.spec["query"] = member.wanted_query
        if check.position is not None and self.truth[check.position + 1] is None:
            check.position = None  # away for too long: it starts at the present
        if query != check.query:
            check.switched(check.position or 0, query)
        member.spec["position"] = check.position

    # --- inside -------------------------------------------------------------------------------------------------------

    def _post(self, member: Member, order: dict[str, Any]) -> None:
        if member.process is not None and member.state in (State.RUNNING, State.FROZEN):
            member.process.channel.post(order)

    def _tell_weather(self) -> None:
        """Everybody, whenever anything about the network or its addresses has changed."""
        addresses = {name: list(m.address) for name, m in self.members.items() if m.address is not None}
        for name, member in self.members.items():
            if member.role == "dht":
                continue
            links = [
                [addresses[other], weather.as_json()]
                for pair, weather in self.links.items()
                if name in pair
                for other in pair - {name}
                if other in addresses
            ]
            cut = [address for other, address in addresses.items() if (other in self.side) != (name in self.side)]
            order = {"do": "weather", "everywhere": self.everywhere.as_json(), "links": links, "cut": cut}
            self._post(member, order if self.side else order | {"cut": []})

    async def _tick(self) -> None:
        while True:
            self.look(time.monotonic())
            await trio.sleep(TICK)
