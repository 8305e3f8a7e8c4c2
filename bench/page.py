"""What the demo's page costs with hundreds of flights: script time of every frame, and frames per second.

The page's own server and files, with Chromium. Instead of a mesh, a simulated one sends the page's own messages:
the peers of the default demo, and flights with full trails, each reported once in ten seconds as at the feed's speed.

We control the script time per frame (mesh, map and curves together); how fast pixels are filled depends on the machine,
and is slow without a graphics card. So the target is on script time, and frames per second are reported as well.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import count, pairwise
from random import Random
from typing import Any

from bench._browser import browser, reason_for_none
from bench.report import Report, Target, progress
from dcp import Packet

SUMMARY = "script time per frame of the demo's page with 500 flights, and frames per second, in Chromium"

FRAME_MS = 1e3 / 60
MAX_P95_MS = FRAME_MS / 2
TRAIL = 14
EVERY = 10.0
"""Seconds between two words of the feed about one flight, at six times the speed of life."""
STATE_INTERVAL, AIR_INTERVAL = 0.5, 0.25
PATIENCE = 60.0
CLIENT = "client-1"
FLIGHT = (
    b"<flight><id>%s</id><flightleg status='active'><speed>%d</speed><altitude>%d</altitude>"
    b"<coordinate><lat>%s</lat><lon>%s</lon></coordinate></flightleg></flight>"
)
MILES_A_DEGREE = 60.0
# Every frame of the page is timed from outside: the page has no code for it.
TIME_FRAMES = """
window.timed = [];
const ask = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (draw) => ask((now) => {
  const began = performance.now();
  draw(now);
  window.timed.push([now, performance.now() - began]);
});
"""
COUNTERS = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flights", type=int, default=500, help="flights in the air (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds to measure (%(default)s)")
    parser.add_argument("--width", type=int, default=1440, help="of the window (%(default)s)")
    parser.add_argument("--height", type=int, default=900, help="of the window (%(default)s)")


def run(args: argparse.Namespace) -> Report:
    reason = reason_for_none()
    if reason is not None:
        return Report("page", {"skipped": reason}, ("page",), [("skipped",)], notes=[reason])
    import trio

    return trio.run(_run, args)


async def _run(args: argparse.Namespace) -> Report:
    import trio

    from demo.page.gateways import Gateways
    from demo.page.run import static_files
    from demo.page.server import PageServer, Socket

    stub = _Stub(args.flights)
    gateways = Gateways({CLIENT})

    async def talk(socket: Socket, orders: AsyncIterator[dict[str, Any]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stub.speak, socket, partial(gateways.put, CLIENT))
            async for _ in orders:
                pass  # a made-up mesh takes no orders
            nursery.cancel_scope.cancel()

    server = PageServer(static_files().get, talk, gateways.find)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(server.serve, 0)
        url = f"http://127.0.0.1:{port}/#{server.token}"
        measured = await trio.to_thread.run_sync(_measure, url, args)
        nursery.cancel_scope.cancel()
    return _report(args, measured)


def _measure(url: str, args: argparse.Namespace) -> dict[str, Any]:
    progress(f"{args.flights} flights for {args.seconds:g} s")
    with browser(args.width, args.height) as window:
        window.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": TIME_FRAMES})
        # Counters of processor time, not of the clock: a busy machine makes them no larger.
        window.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        window.get(url)
        deadline = time.monotonic() + PATIENCE
        shown = "return Number(document.getElementById('flights').textContent)"
        while window.execute_script(shown) < args.flights:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the page did not show {args.flights} flights within {PATIENCE:.0f} s")
            time.sleep(0.1)
        window.execute_script("window.timed.length = 0")
        before, began = _counters(window), time.monotonic()
        time.sleep(args.seconds)
        frames = window.execute_script("return window.timed")
        after, seconds = _counters(window), time.monotonic() - began
        errors = [entry["message"] for entry in window.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        version = window.capabilities["browserVersion"]
    return {
        "frames": frames,
        "counters": {name: after[name] - before[name] for name in COUNTERS},
        "seconds": seconds,
        "errors": errors,
        "chromium": version,
    }


def _counters(window: Any) -> dict[str, float]:
    told = window.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: metric["value"] for metric in told}


def _report(args: argparse.Namespace, measured: dict[str, Any]) -> Report:
    frames = measured["frames"]
    if len(frames) < 2:
        raise RuntimeError("the page drew no frames")
    costs = sorted(cost for _, cost in frames)
    gaps = sorted(after - before for (before, _), (after, _) in pairwise(frames))
    p50, p95 = statistics.median(costs), costs[int(0.95 * len(costs))]
    rate = (len(frames) - 1) * 1e3 / (frames[-1][0] - frames[0][0])
    a_frame = {name: 1e3 * spent / len(frames) for name, spent in measured["counters"].items()}
    data = {
        "flights": args.flights,
        "window": [args.width, args.height],
        "frames": len(frames),
        "frames_per_s": round(rate, 1),
        "script_ms": {"p50": round(p50, 2), "p95": round(p95, 2), "max": round(costs[-1], 2)},
        "interval_ms": {"p50": round(statistics.median(gaps), 1), "p95": round(gaps[int(0.95 * len(gaps))], 1)},
        # With what messages cost, and what the browser does on the page's thread for us.
        "cpu_ms_per_frame": {name.removesuffix("Duration").lower(): round(ms, 2) for name, ms in a_frame.items()},
        "console_errors": measured["errors"],
        "chromium": measured["chromium"],
    }
    return Report(
        "page",
        data,
        ("flights", "frames", "frames/s", "script p50 ms", "p95 ms", "max ms", "CPU ms/frame"),
        [(args.flights, len(frames), rate, p50, p95, costs[-1], a_frame["TaskDuration"])],
        notes=[f"Chromium {measured['chromium']}, headless: drawing is in software"],
        targets=[
            Target(
                f"script time per frame: p95 below {MAX_P95_MS:.1f} ms, half of a frame at 60/s",
                p95 < MAX_P95_MS,
                f"{p95:.2f} ms, median {p50:.2f} ms",
            ),
            Target("no console errors", not measured["errors"], f"{len(measured['errors'])}"),
        ],
    )


def _angle(degrees: float, sides: str, digits: int) -> bytes:
    """`4006N` or `07651W`."""
    minutes = round(abs(degrees) * 60)
    return b"%0*d%02d%s" % (digits, minutes // 60, minutes % 60, sides[degrees < 0].encode())


class _Stub:
    """A simulated mesh: messages of the default demo's size, and the given number of flights."""

    def __init__(self, flights: int) -> None:
        dice = Random(7)
        self._began = time.monotonic()
        self._an = 0
        self._flights = [
            (
                f"{dice.choice(['AAL', 'UAL', 'DAL', 'SWA'])}{number}".encode(),
                dice.uniform(29.0, 47.0),
                dice.uniform(-120.0, -76.0),
                dice.uniform(0, 2 * math.pi),
                dice.randrange(0, 410),
                dice.randrange(180, 520),
                dice.uniform(0, EVERY),
            )
            for number in range(flights)
        ]

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    async def speak(self, socket: Any, hand_over: Callable[[Any], None]) -> None:
        import trio

        from asdi.flights.table import load
        from demo.run.presets import PRESETS

        airports = [[a.icao, a.latitude, a.longitude] for a in load().airports]
        numbers: list[list[float]] = []
        for back in reversed(range(TRAIL)):
            told = self._now - back * EVERY
            numbers += [[self._an, told], [self._an + len(self._flights) - 1, told]]
            for packet in self._packets(-1e9, told):
                hand_over(packet)
        socket.post(
            {
                "t": "hello",
                "speed": 6.0,
                "wants": 2,
                "airports": airports,
                "presets": [[preset.name, preset.query] for preset in PRESETS],
                "scenarios": [],
                "events": [],
                "timeline": [],
                "numbers": numbers,
            }
        )
        for tick in count():
            if tick % round(STATE_INTERVAL / AIR_INTERVAL) == 0:
                socket.post(self._state())
            for packet in self._packets(told, told := self._now):
                hand_over(packet)
            await trio.sleep(AIR_INTERVAL)

    def _packets(self, after: float, until: float) -> Iterator[Packet]:
        """What the feed says of flights between two moments: of each once in EVERY seconds."""
        for callsign, lat, lon, heading, altitude, knots, phase in self._flights:
            at = phase + EVERY * math.floor((until - phase) / EVERY)
            if at > after:
                far = knots / 3600 * 6.0 * at / MILES_A_DEGREE
                place = _angle(lat + far * math.cos(heading), "NS", 2), _angle(lon + far * math.sin(heading), "EW", 3)
                self._an += 1
                yield Packet(self._an - 1, FLIGHT % (callsign, knots, altitude, *place))

    def _state(self) -> dict[str, Any]:
        now = self._now
        names = [f"root-{n}" for n in (1, 2)] + [f"router-{n}" for n in range(1, 7)]
        peers = [self._peer(f"dht-{n}", "dht", []) for n in (1, 2)]
        peers += [self._peer(name, "root", []) for name in names[:2]]
        peers += [self._peer(name, "router", names[max(0, k - 2) : k]) for k, name in enumerate(names) if k >= 2]
        peers += [self._peer(f"client-{n}", "leaf", names[n : n + 2]) for n in range(1, 7)]
        totals = dict.fromkeys(("published", "delivered", "duplicates", "retransmitted"), int(now * 60))
        return {
            "t": "state",
            "now": round(now, 3),
            "feed": 0.0,
            "peers": peers,
            "totals": totals
            | {"lost": 0, "wrong": 0, "longest_stall_ms": 12.0, "wounded_s": None, "repairs_s": [], "cpu_cores": 0.5},
            "everywhere": {"loss": 0.0, "delay": 0.0, "rate": None},
            "links": [],
            "side": [],
            "timeline": [[round(now, 1), 60, 2.0, 5.0, 9.0, 12.0]],
            "numbers": [[self._an, now]],
            "playing": None,
            "verdict": None,
        }

    def _peer(self, name: str, role: str, parents: list[str]) -> dict[str, Any]:
        counters = dict.fromkeys(("duplicates", "nacks", "recovered", "retransmitted", "packets"), int(self._now * 60))
        up = [{"name": p, "rate": 60.0, "won": 0.5, "loss": 0.0, "rtt": 1.0, "sound": True} for p in parents]
        hops = 0 if role == "root" else 1 + int(name[-1]) // 3
        return counters | {
            "name": name,
            "role": role,
            "state": "running",
            "guest": False,
            "pid": 1,
            "level": 512 * hops,
            "hops": hops,
            "sound": len(parents),
            "wants": len(parents),
            "children": 3,
            "capacity": 6,
            "restarts": 0,
            "cpu": 1.0,
            "up": up,
            "query": "true()",
            "flights": len(self._flights),
            "delivered": int(self._now * 60),
            "lost": 0,
            "gaps": 0,
            "missing": 0,
            "pace": None,
        }
