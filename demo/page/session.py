"""One page: what is sent to it, and its commands. Every command is checked; a bad one gets a one-sentence error."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Final

import trio

from demo.check.observed import MeshError
from demo.check.truth import Fact
from demo.page.server import Socket
from demo.page.view import hello, state
from demo.run.faults import Weather
from demo.run.localmesh import LocalMesh
from demo.scenarios.director import Director
from demo.scenarios.scenario import ScenarioError, built_in, load
from xmlswitch import Query, QueryError
from xmlswitch.errors import EvaluationCutOff

STATE_INTERVAL: Final = 0.5
TRY_PACKETS: Final = 1_500
TRY_CALLS: Final = 5_000
"""For one packet, of a query in XPath 2.0 or later."""
TRY_SECONDS: Final = 0.015
"""For reading it and for all packets: a slow query is tried on the newest packets, and the page says on how many."""
MAX_QUERY: Final = 2_000
ORDERS_A_SECOND: Final = 40.0


class Stage:
    """What all pages share: the scenario that plays, if any."""

    def __init__(self, mesh: LocalMesh, nursery: trio.Nursery) -> None:
        self.mesh = mesh
        self.playing: str | None = None
        self.verdict: dict[str, Any] | None = None
        self._nursery = nursery
        self._scope = trio.CancelScope()

    def play(self, name: str) -> None:
        """From the built-in ones only: a page can't make this program read files."""
        if self.playing is not None:
            raise MeshError(f"{self.playing} is running: wait for it to end, or press Restore everything")
        if name not in built_in():
            raise MeshError(f"no scenario {name!r}")
        self.playing, self.verdict = name, None
        self._nursery.start_soon(self._play, name)

    async def _play(self, name: str) -> None:
        scenario = load(name)
        with trio.CancelScope() as self._scope:
            self.mesh.say(f"{scenario.title}. {scenario.about}")
            self.mesh.reset_clients()  # what a story says about them is true of the queries that they began with
            try:
                verdict = await Director(self.mesh).judge(scenario)
            except ScenarioError as error:
                self.mesh.say(f"Can't run this now: {error}")
            else:
                self.verdict = verdict.as_json() | {"title": scenario.title}
                words = "all promises kept" if verdict.is_kept else "a promise was broken"
                self.mesh.say(f"{scenario.title}: {words}, {verdict.totals['lost']} packets lost.")
        self.playing = None

    def put_back(self) -> None:
        self._scope.cancel()
        self.verdict = None
        self.mesh.put_back()  # at once: a task of its own could come after orders that were given later

    def storm(self, routers: int, clients: int) -> None:
        self.mesh.check_storm(routers=routers, clients=clients)
        self._nursery.start_soon(self._storm, routers, clients)

    async def _storm(self, routers: int, clients: int) -> None:
        try:
            await self.mesh.storm(routers=routers, clients=clients)
        except MeshError as error:
            self.mesh.say(str(error))


class Session:
    def __init__(self, stage: Stage, socket: Socket) -> None:
        self.stage = stage
        self.mesh = stage.mesh
        self.socket = socket
        self._since = 0
        self._allowance, self._asked_at = ORDERS_A_SECOND, time.monotonic()

    async def run(self, orders: AsyncIterator[dict[str, Any]]) -> None:
        self.socket.post(hello(self.mesh))
        self.mesh.listeners.append(self._on_event)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_state)
                async for order in orders:
                    await self._take(order)
                nursery.cancel_scope.cancel()
        finally:
            self.mesh.listeners.remove(self._on_event)

    def _on_event(self, event: dict[str, Any]) -> None:
        self.socket.post({"t": "event", "event": event})

    # --- telling ------------------------------------------------------------------------------------------------------

    async def _tell_state(self) -> None:
        while True:
            # A page on a busy machine is shown less, and the newest: a queue of old pictures would only grow.
            if not self.socket.is_behind:
                message, self._since = state(self.mesh, self._since)
                self.socket.post(message | {"playing": self.stage.playing, "verdict": self.stage.verdict})
            await trio.sleep(STATE_INTERVAL)

    # --- orders -------------------------------------------------------------------------------------------------------

    async def _take(self, order: dict[str, Any]) -> None:
        now = time.monotonic()
        self._allowance = min(ORDERS_A_SECOND, self._allowance + (now - self._asked_at) * ORDERS_A_SECOND) - 1
        self._asked_at = now
        if self._allowance < 0:
            await trio.sleep(-self._allowance / ORDERS_A_SECOND)
        try:
            await self._obey(order)
        except (MeshError, ValueError, QueryError) as error:
            self.socket.post({"t": "refused", "do": str(order.get("do"))[:40], "text": str(error)[:500]})

    async def _obey(self, order: dict[str, Any]) -> None:
        mesh = self.mesh
        match order:
            case {"do": "kill" | "freeze" | "thaw" | "restart" as do, "names": [*names]}:
                checked = [_name(name) for name in names[:200]]
                getattr(mesh, do)(*checked)
            case {"do": "weather", "weather": dict() as weather, "between": [one, other]}:
                mesh.set_weather(Weather.from_json(weather), between=(_name(one), _name(other)))
            case {"do": "weather", "weather": dict() as weather}:
                mesh.set_weather(Weather.from_json(weather))
            case {"do": "partition", "names": [*names]}:
                mesh.partition(_name(name) for name in names[:200])
            case {"do": "heal"}:
                mesh.heal_partition()
            case {"do": "storm", "routers": int(routers), "clients": int(clients)}:
                self.stage.storm(routers, clients)
            case {"do": "pace", "name": str(name), "rate": None | int() | float() as rate}:
                mesh.set_pace(name, rate)
            case {"do": "lie", "name": str(name), "how": None | str() as how}:
                mesh.lie(name, how)
            case {"do": "query", "name": str(name), "text": str(text)}:
                mesh.change_query(name, _short(text))
            case {"do": "try", "text": str(text), "id": int(number)}:
                await self._try(_short(text), number)
            case {"do": "play", "name": str(name)}:
                self.stage.play(name)
            case {"do": "put back"}:
                self.stage.put_back()
            case {"do": "reset totals"}:
                mesh.reset_totals()
            case _:
                raise MeshError("invalid command")

    async def _try(self, text: str, number: int) -> None:
        """What a query would match, among the packets of the last seconds; or why it is none."""
        left = TRY_SECONDS
        began = time.perf_counter()
        try:
            query = Query.parse(text)
        except QueryError as error:
            self.socket.post(
                {"t": "tried", "id": number, "ok": False, "error": error.reason, "position": error.position}
            )
            return
        facts = self.mesh.truth.recent(TRY_PACKETS, before=time.monotonic())
        matched = tried = 0
        left -= time.perf_counter() - began
        for fact in reversed(facts):
            began = time.perf_counter()
            matched += _would_match(query, fact)
            tried += 1
            left -= time.perf_counter() - began
            if left <= 0:
                break
            if tried % 100 == 0:
                await trio.lowlevel.checkpoint()
        seconds = facts[-1].due_at - facts[-tried].due_at if tried else 0.0
        self.socket.post(
            {
                "t": "tried",
                "id": number,
                "ok": True,
                "matched": matched,
                "of": tried,
                "seconds": round(seconds, 1),
                "canonical": query.canonical[:MAX_QUERY],
            }
        )


def _would_match(query: Query, fact: Fact) -> bool:
    """As a router says: a query that takes too long for a packet counts as matching it."""
    if query.later is None:
        return query.passes(fact.payload)
    try:
        return query.later.holds(fact.document(), calls=TRY_CALLS)
    except EvaluationCutOff:
        return True


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise MeshError("peer must be a name")
    return value[:64]


def _short(text: str) -> str:
    if len(text) > MAX_QUERY:
        raise MeshError(f"query is longer than {MAX_QUERY:,} characters")
    return text
