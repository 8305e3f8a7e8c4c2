"""What is known of a mesh: who is in it, what was published, what every client was handed, what happened when.

Fed with what the processes say; it starts, stops and sends nothing. All moments are those of one monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from dcp import Gap, Packet, Started
from demo.check.air import Air
from demo.check.ledger import Ledger
from demo.check.truth import Truth
from demo.run.member import Member, State
from demo.run.rates import link_rates
from demo.run.settings import DemoSettings
from dht.addresses import endpoint_text
from peer.items import Content
from xmlswitch import Query

log = logging.getLogger(__name__)

LEAD = 1.0
"""The truth is computed this long before it is due, so that no client can receive a packet not known yet."""
MAX_EVENTS = 400
REMEMBER_DEAD = 60.0
"""The truth does not wait for a client that is dead for longer: it restarts at the present."""
ON_THE_WAY = 1.0
"""What was due this recently may still be in transit, and be reported late."""
CPU_SECONDS = 5.0
"""CPU is the mean over this time: processes report twice per second, and late on a busy machine."""
COUNTERS = ("duplicates", "nacks", "recovered", "retransmitted", "omitted", "disputed", "protection_changes")


class MeshError(Exception):
    """An order that makes no sense, in one sentence."""


class ObservedMesh:
    truth: Truth

    def __init__(self, settings: DemoSettings, now: float) -> None:
        self.settings = settings
        self.began = now
        self.members: dict[str, Member] = {}
        self.events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        """Called with every event."""
        self.takers: list[Callable[[str, Content], None]] = []
        """Called with every item that a client was handed."""
        self.goal: str | None = None
        """What the mesh should be good at."""
        self.air = Air(settings.speed)
        self.ledger = Ledger(now)
        self.cut_off: frozenset[str] = frozenset()
        """Peers that a partition keeps from every feed."""
        self.cpu_cores = 0.0
        self.cpu_seconds = 0.0
        self._event_count = 0
        self._by_address: dict[str, str] = {}
        self._by_id: dict[str, str] = {}
        self._published_before = 0
        self._base: dict[str, int] = {}
        self._buried: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._cpu_marks: deque[tuple[float, float]] = deque([(now, 0.0)])

    # --- what peers say -----------------------------------------------------------------------------------------------

    def heard(self, member: Member, message: dict[str, Any]) -> None:
        now = time.monotonic()
        if member.state is State.DEAD and message["k"] != "got":
            return  # said before it died: what it was handed counts, what it believed does not any more
        match message["k"]:
            case "ready":
                self._by_id[message["id"]] = member.name
                member.address = (message["address"][0], message["address"][1])
                member.spec["listen"] = list(member.address)  # the same place in its next life
                member.state = State.RUNNING
                self._by_address[endpoint_text(member.address)] = member.name
                self.judge(member, now)
            case "published":
                self.truth.make_until(now + LEAD)  # the tick may be late on a busy machine
                self._published(message["first"], message["last"])
            case "got":
                self.truth.make_until(now + LEAD)
                for item in message["items"]:
                    self._got(member, item, now)
            case "event":
                self._event(member, message, message["at"])
            case "stat":
                message["up"] = [
                    link | {"name": self._by_address.get(link["address"], link["address"])} for link in message["up"]
                ]
                moves = (message.get("goal") or {}).get("moves", 0)
                if moves > (member.status.get("goal") or {}).get("moves", moves):
                    self.note("info", member.name, "moved to a better parent, towards the goal")
                member.rates = link_rates(member.status, message, now - member.status_at)
                member.status, member.status_at = message, now
                pause, began = message.get("pause", (0.0, 0.0))
                if began > max(member.thawed_at, self.ledger.began):  # not what we did to it, and not before the run
                    self.ledger.machine_pause = max(self.ledger.machine_pause, pause)
                if member.role not in ("root", "dht"):
                    member.sound = message["sound"]
                    self.judge(member, message["at"])

    def _published(self, first: int, last: int) -> None:
        for fact in self.truth.publish(first, last):
            for member in self.members.values():
                if member.check is not None:
                    member.check.published(fact)

    def _got(self, member: Member, item: list[Any], now: float) -> None:
        check = member.check
        assert check is not None
        match item:
            case ["start", position]:
                check.started(position)
                self._handed(member, Started(position))
                member.excused_until = max(member.excused_until, now)
            case ["gap", after, until]:
                lost = check.lost
                check.gap(after, until)
                self._handed(member, Gap(after, until))
                if check.lost > lost:
                    self.note("loss", member.name, f"gap: {check.lost - lost} packets lost")
            case ["omitted", an, crc]:
                self._published(an, an)  # the root's own word may come later
                check.omitted(an, crc)
                self.note("info", member.name, f"packet {an} came late: a parent had left it out")
            case ["query", position, text]:
                query = Query.parse(text)
                check.switched(position, query)
                self.air.switched(member.name, query)
                self.note("info", member.name, f"switched to {text} after packet {position}", query=text)
            case [int(an), int(crc), float(at)]:
                self._published(an, an)
                wrong = check.wrong
                fact = check.packet(an, crc)
                if check.wrong > wrong:
                    self.note("loss", member.name, f"broken promise: {', '.join(check.complaints[-1:])}")
                if fact is None:
                    return
                self.air.saw(member.name, fact)
                self._handed(member, Packet(an, fact.payload))
                if member.pace is not None or member.name in self.cut_off or fact.due_at <= member.excused_until:
                    self.ledger.took_excused()
                else:
                    self.ledger.took(member.name, at - fact.due_at, at)
            case _:
                raise MeshError(f"{member.name} reported unknown item {item!r}")

    def _event(self, member: Member, event: dict[str, Any], now: float) -> None:
        name = event["name"]
        other = self._by_id.get(event.get("peer", ""), "")
        match name:
            case "Degraded":
                member.sound = event["sound"]
                self.note("degraded", member.name, f"has {event['sound']} of {event['wanted']} parents", other)
                self.judge(member, now)
            case "Restored":
                member.sound = event["wanted"]
                self.note(
                    "restored", member.name, f"has {event['wanted']} parents again, after {event['after']:.2f} s", other
                )
                self.judge(member, now)
            case "ParentGained":
                self.note("gained", member.name, f"took {other or 'a peer'} as a parent", other)
            case "ParentLost":
                reason = str(event.get("reason", "")).replace("_", " ")
                self.note("lostparent", member.name, f"lost its parent {other or 'a peer'}: {reason}", other)
            case "ParentSuspected":
                self.note("suspected", member.name, f"suspects {other or 'a parent'}: no sign of life", other)
            case "Disputed":
                about = f"about packets after {event['after']} up to {event['until']}"
                text = f"{other or 'a parent'} is contradicted {about}: {event['reason']}"
                self.note("disputed", member.name, text, other)
            case "Starved":
                self.note("disputed", member.name, f"parents report packets up to {event['head']} and bring none")
            case "Thawed":
                self.note("info", member.name, f"woke up after {event['slept']:.1f} s and checks its links")
            case "ColdRestart":
                self.note("info", member.name, "no parent for too long: starting over")
            case "FallingBehind":
                self.note("info", member.name, "its application is too slow: its parents wait, other peers do not")
            case "KeepingUp":
                self.note("info", member.name, "its application keeps up again")
            case "Overrun" | "Disconnected":
                self.note("info", member.name, f"{event.get('reason', '')}: rejoining")

    def judge(self, member: Member, now: float) -> None:
        """Is it short of parents, and is the mesh whole again?"""
        took = self.ledger.parents(member.name, is_short=member.is_short, now=now)
        if took is not None:
            self._note_whole(took)

    def _note_whole(self, took: float) -> None:
        self.note("whole", "", f"all peers have {self.settings.parents} parents again after {took:.2f} s")

    def _handed(self, member: Member, item: Content) -> None:
        for take in self.takers:
            take(member.name, item)

    def note(self, kind: str, who: str, text: str, other: str = "", **more: str) -> None:
        self._event_count += 1
        at = round(time.monotonic() - self.began, 3)
        event = {"n": self._event_count, "at": at, "kind": kind, "who": who, "text": text, "other": other, **more}
        self.events.append(event)
        if kind == "loss":
            log.error("%s: %s", who, text)
        for listener in self.listeners:
            listener(event)

    def say(self, text: str) -> None:
        """A word of the story."""
        self.note("story", "", text)

    # --- what is known ----------------------------------------------------------------------------------------------

    def member(self, name: str) -> Member:
        if name not in self.members:
            raise MeshError(f"no peer {name!r}; peers: {', '.join(sorted(self.members))}")
        return self.members[name]

    def reset_totals(self) -> None:
        now = time.monotonic()
        short = self.ledger.short
        self.ledger = Ledger(now)
        for name in short:
            self.ledger.parents(name, is_short=True, now=now)
        self._published_before = self.truth.published
        for member in self.members.values():
            if member.check is not None:
                member.check.delivered = member.check.lost = member.check.gaps = member.check.wrong = 0
                member.check.complaints.clear()
        self._base = self._counters()

    # --- what is known ------------------------------------------------------------------------------------------------

    def clients(self) -> list[Member]:
        return [member for member in self.members.values() if member.check is not None]

    def parents_of(self, name: str) -> list[str]:
        """Names of the running parents of a peer, routers first."""
        member = self.member(name)
        held = [link["name"] for link in member.status.get("up", []) if link["name"] in self.members]
        alive = [other for other in held if self.members[other].runs]
        return sorted(alive, key=lambda other: (self.members[other].role == "root", other))

    def _counters(self) -> dict[str, int]:
        """Sums over all peers, including earlier runs of the same peer, as far as reported."""
        return {
            name: self._buried[name] + sum(int(m.status.get(name, 0)) for m in self.members.values())
            for name in COUNTERS
        }

    def bury(self, member: Member) -> None:
        """A life has ended: its counters and its time go to those of the past."""
        for name in COUNTERS:
            self._buried[name] += int(member.status.get(name, 0))
        member.earlier_cpu, member.status = member.cpu, {}
        member.rates, member.sound = {}, 0

    def totals(self) -> dict[str, Any]:
        now = time.monotonic()
        checks = [member.check for member in self.members.values() if member.check is not None]
        counters, base = self._counters(), self._base
        wounded = self.ledger.wounded_for(now)
        return {
            "published": self.truth.published - self._published_before,
            "delivered": self.ledger.delivered,
            "lost": sum(check.lost for check in checks),
            "gaps": sum(check.gaps for check in checks),
            "wrong": sum(check.wrong for check in checks),
            **{name: count - base.get(name, 0) for name, count in counters.items()},
            "longest_stall_ms": round(self.ledger.longest_stall * 1e3, 1),
            "stalled": self.ledger.stalled,
            "machine_pause_ms": round(self.ledger.machine_pause * 1e3, 1),
            "latency_ms": self.ledger.latencies_ms(),
            "is_whole": self.ledger.is_whole,
            "wounded_s": round(wounded, 2) if wounded is not None else None,
            "repairs_s": [round(took, 2) for took in self.ledger.repairs],
            "recoveries_s": [round(took, 2) for took in self.ledger.recoveries],
            "seconds": round(now - self.ledger.began, 1),
            "cpu_cores": round(self.cpu_cores, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "processes": sum(m.state in (State.RUNNING, State.FROZEN) for m in self.members.values()),
        }

    def is_caught_up(self) -> bool:
        """Every running client has been handed everything that was due a moment ago."""
        moment = time.monotonic() - ON_THE_WAY
        for member in self.clients():
            if not member.runs or member.check is None:
                continue
            if member.check.position is None:
                return False
            oldest = member.check.oldest_missing
            fact = self.truth[oldest] if oldest is not None else None
            if fact is not None and fact.due_at <= moment:
                return False
        return True

    def look(self, now: float) -> None:
        """Call this about every tenth of a second."""
        self.truth.make_until(now + LEAD)
        took = self.ledger.look(now)
        if took is not None:
            self._note_whole(took)
        self._forget(now)
        if now - self._cpu_marks[-1][0] >= 1.0:
            self._measure_cpu(now)

    def _forget(self, now: float) -> None:
        positions = [
            member.check.position
            for member in self.clients()
            if member.check is not None
            and member.check.position is not None
            and (member.state is not State.DEAD or now - member.excused_until < REMEMBER_DEAD)
        ]
        if positions:
            self.truth.forget_before(min(positions))
        self.air.sweep(now)

    def _measure_cpu(self, now: float) -> None:
        used = time.process_time() + sum(member.cpu for member in self.members.values())
        self.cpu_seconds = used
        self._cpu_marks.append((now, used))
        while len(self._cpu_marks) > 2 and self._cpu_marks[0][0] < now - CPU_SECONDS - 1:
            self._cpu_marks.popleft()
        then, before = self._cpu_marks[0]
        self.cpu_cores = max(0.0, used - before) / (now - then)
