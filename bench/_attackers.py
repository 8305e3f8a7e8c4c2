"""Strangers and children that mean harm, each at a rate of its own, against a peer on loopback. Bounded in time.

Each attack is a function that sends one unit; `attack` calls it so many times per second. They speak the real protocol
where that is needed (a cookie, a sealed link), and say on it what an honest peer never would.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgpack

from dcp import Config, Hub, control, handshake, wire
from dcp.handshake import Start
from dcp.receiver import Receiver
from dht import Identity, PeerRecord
from dht import Role as DhtRole
from dht import wire as dht_wire
from dht.keys import keys_of
from dht.record import sign_record
from peer.mesh import encoding, messages

STREAM = "bench"
Victim = tuple[str, int]

# 3.5 KB each: what is refused must be refused cheaply, and what is admitted must stay within its bound.
HOSTILE_QUERIES = [
    "1" + "+1" * 850,
    "/".join(["//*"] * 300),
    "(" * 700 + "1" + ")" * 700,
    " or ".join(f"/f/a{i} = {i}" for i in range(250)),
    "concat(" + ",".join(["/"] * 1_200) + ") = 'x'",
    "/a[" * 250 + "1" + "]" * 250,
    "//*[count(.//*[count(following::*) > count(preceding::*)]) > count(ancestor::*//*)]",
    "round(5, -999999999) = 0 or exists(1 to 2)",
    "matches(string(/), '" + "a?" * 40 + "a" * 40 + "')",
    "x" * 3_400 + " = '\x01'",
    "translate(" * 60 + "string(/)" + ",'abc','abcabc')" * 60 + " = 'x'",
]


def token(text: str, version: str = "1.0") -> bytes:
    return bytes(msgpack.packb([1, version, text, {}]))


def hello(rng: random.Random, *, has_children: bool = False) -> bytes:
    peer_id = messages.PeerId(rng.randbytes(20))
    return encoding.encode_join(
        messages.Join(
            peer_id,
            rng.getrandbits(60),
            1,
            messages.UNPLACED,
            2,
            0,
            0,
            is_repair=has_children,
            has_children=has_children,
        )
    )


class Speaker:
    """A socket on loopback that knows how to get a cookie."""

    def __init__(self, victim: Victim, rng: random.Random, host: str = "127.0.0.1") -> None:
        self.victim, self.rng = victim, rng
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((host, 0))
        self.socket.setblocking(False)

    def send(self, data: bytes) -> None:
        with suppress(BlockingIOError):
            self.socket.sendto(data, self.victim)

    def received(self) -> Iterator[bytes]:
        while True:
            try:
                yield self.socket.recv(65_536)
            except (BlockingIOError, ConnectionError):
                return

    def cookie(self) -> bytes:
        """What an address must echo before anything it says costs the victim anything."""
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            self.send(opening(handshake.Inquire(self.rng.randbytes(16), handshake.NO_COOKIE, b"x")))
            time.sleep(0.02)
            for data in self.received():
                with suppress(Exception):
                    kind, body = wire.decode_open_untrusted(data)
                    answer = handshake.decode_opening_untrusted(kind, body)
                    if isinstance(answer, handshake.Challenge):
                        return answer.cookie
        raise RuntimeError("the victim sent no cookie within 5 s")


def opening(message: handshake.Opening) -> bytes:
    return wire.encode_open(*handshake.encode_opening(message))


class Child(Speaker):
    """A real child of the victim, over a real hub, until it turns bad."""

    def __init__(self, victim: Victim, rng: random.Random, *, query: bytes = b"", start: Start = Start.NEW) -> None:
        super().__init__(victim, rng)
        self.hub = Hub(Config(), rng=rng)
        self.receiver: Receiver = self.hub.subscribe(STREAM, query=query, start=start)
        self.hub.add_sender(STREAM, victim, hello(rng), now=time.monotonic())

    def pump(self) -> None:
        now = time.monotonic()
        for data in self.received():
            self.hub.receive_datagram(data, self.victim, now=now)
        self.hub.handle_timeout(now=now)
        while self.hub.next_event() is not None:
            pass
        while self.receiver.next_event() is not None:
            pass
        self.flush()

    def flush(self) -> None:
        for data, _ in self.hub.datagrams_to_send(now=time.monotonic()):
            self.send(data)

    def joined(self) -> bool:
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            self.pump()
            if self.receiver.position is not None and any(link.up for link in self.receiver.links.values()):
                return True
            time.sleep(0.005)
        return False

    def say(self, flags: int, an: int, prev: int, body: bytes) -> None:
        """On our sealed link, whatever we like."""
        for link in self.receiver.links.values():
            if link.up:
                self.send(link.encode(flags, an, prev, body))


Step = Callable[[int], None]


def garbage(victim: Victim, rng: random.Random) -> Step:
    """Random bytes, and random bytes that look like DCP or like the DHT at first sight."""
    speaker = Speaker(victim, rng)
    heads = [b"", b"\x10", b"\x10\x01", b"\x10\x40", b"\x00", b"\x01", b"\x1f\xff"]

    def step(number: int) -> None:
        speaker.send(heads[number % len(heads)] + rng.randbytes(rng.choice((0, 1, 12, 22, 60, 300, 1_400))))

    return step


def joins(victim: Victim, rng: random.Random) -> Step:
    """Openings with an echoed cookie and a hostile query of up to 3.5 KB."""
    speaker = Speaker(victim, rng)
    cookie = speaker.cookie()

    def step(number: int) -> None:
        if number % 500 == 499:
            nonlocal cookie
            cookie = speaker.cookie()
        text = HOSTILE_QUERIES[number % len(HOSTILE_QUERIES)]
        version = "3.1" if number % 3 == 0 else "1.0"
        speaker.send(
            opening(
                handshake.OpenRequest(
                    mode=0,
                    link=number + 1,
                    nonce=rng.randbytes(16),
                    cookie=cookie,
                    epoch=0,
                    start=Start.NEW,
                    position=0,
                    room=100,
                    clock=1,
                    stream=STREAM.encode(),
                    query=token(text, version),
                    hello=hello(rng, has_children=number % 2 == 0),
                )
            )
        )
        for _ in speaker.received():
            pass

    return step


def children(victim: Victim, rng: random.Random) -> Step:
    """Children(Q) with queries that were never seen before."""
    speaker = Speaker(victim, rng)
    cookie = speaker.cookie()

    def step(number: int) -> None:
        text = f"/flight[id = '{number}']/a{number}[b > {number} or c < -{number}] " + "or /x = 1 " * 60
        question = encoding.encode_request(messages.ChildrenRequest(token(text)[:1_024]))
        speaker.send(opening(handshake.Inquire(rng.randbytes(16), cookie, question)))
        for _ in speaker.received():
            pass

    return step


def nacks(victim: Victim, rng: random.Random) -> Step:
    """A child that asks for everything again and again, with clock echoes that make its round trip look like 0."""
    child = Child(victim, rng)
    if not child.joined():
        raise RuntimeError("the victim did not take the child")
    began = child.receiver.position or 0

    def step(number: int) -> None:
        if number % 50 == 0:
            child.pump()
        position = child.receiver.position or 0
        times = control.Times(clock=number & 0xFFFFFFFF, echo=(number * 7) & 0xFFFFFFFF, hold=0)
        ack = control.Acknowledgment(times, 0, began, 1 << 20)
        body = control.encode_nack(control.Nack(ack, began, [(began, position + 1_000_000)], []))
        child.say(wire.NACK, began, 0, body)

    return step


def churn(victim: Victim, rng: random.Random) -> Step:
    """A child that changes its query a thousand times per second."""
    child = Child(victim, rng)
    if not child.joined():
        raise RuntimeError("the victim did not take the child")

    def step(number: int) -> None:
        if number % 50 == 0:
            child.pump()
        query = token(f"/flight[id = 'X{number}']/flightleg[altitude > {number % 500}] or //a{number}/b{number % 77}")
        child.say(wire.CONTROL, 0, 0, control.encode_prepare(control.Prepare(number + 1, query)))

    return step


def oldest(victim: Victim, rng: random.Random) -> Step:
    """Joins that want the whole log matched against an expensive query, and stay for a second."""
    texts = [
        "//*[contains(concat(" + ",".join(["/"] * 60) + "), 'zz')]",
        "//*[. = //*]/following::*[. != //*]",
        "count(//*[count(preceding::*) > 0]) > 1000",
        "string-length(concat(" + ",".join(["/"] * 100) + ")) > 100000",
        "/flight/flightleg/altitude > 1000000",
    ]
    held: list[Child] = []

    def step(number: int) -> None:
        query = token(f"({texts[number % len(texts)]}) or /n{number}")
        held.append(Child(victim, rng, query=query, start=Start.OLDEST))
        if len(held) > 8:
            held.pop(0).socket.close()
        for _ in range(10):
            for child in held:
                child.pump()
            time.sleep(0.002)

    return step


def stores(victim: Victim, rng: random.Random) -> Step:
    """Signed records of invented peers, each under a key that it may lie under."""
    speaker = Speaker(victim, rng)
    found: list[bytes] = []

    def ask_token(key: bytes) -> bytes:
        message_id = rng.randbytes(20)
        request = dht_wire.FindNode(None, key)  # type: ignore[arg-type]
        speaker.send(dht_wire.encode_request(message_id, request, padded_to=467))
        time.sleep(0.02)
        for data in speaker.received():
            with suppress(Exception):
                answer = dht_wire.decode_answer_untrusted(data, kind=dht_wire.FindNode)
                if isinstance(answer, dht_wire.Found) and answer.token:
                    return answer.token
        return found[-1] if found else b""

    def step(number: int) -> None:
        if number % 200 == 0:
            found.append(ask_token(rng.randbytes(20)))
        identity = Identity.generate()
        record = PeerRecord(
            stream=f"s{number % 997}",
            peer_id=identity.peer_id,
            addresses=(("192.0.2.1", 4_600),),
            role=DhtRole.ROUTER,
            level=rng.randrange(1 << 20),
            capacity=6,
            free_slots=6,
            version=1,
            expires_at=int(time.time()) + 170,
        )
        signed = sign_record(record, identity).wire
        key = next(iter(keys_of(record)))
        request = dht_wire.Store(None, key, found[-1], number % 2 == 1, (signed,))
        speaker.send(dht_wire.encode_request(rng.randbytes(20), request))
        for _ in speaker.received():
            pass

    return step


ATTACKS: dict[str, tuple[Callable[[Victim, random.Random], Step], float]] = {
    "garbage datagrams": (garbage, 8_000),
    "hostile joins": (joins, 100),
    "NACK floods": (nacks, 500),
    "query churn": (churn, 1_000),
    "oldest joins": (oldest, 5),
    "DHT stores": (stores, 200),
    "children inquiries": (children, 200),
}
"""Name -> (what it does, times per second)."""


def attack(name: str, victim: Victim, seconds: float, seed: int) -> float:
    """Attack for this long, and return the attacks per second achieved."""
    prepare, rate = ATTACKS[name]
    step = prepare(victim, random.Random(seed))
    began = time.monotonic()
    done = 0
    while (elapsed := time.monotonic() - began) < seconds:
        due = min(int(elapsed * rate) + 1, done + 200)
        while done < due:
            step(done)
            done += 1
        time.sleep(max(0.0, min(0.01, began + (done + 1) / rate - time.monotonic())))
    return done / seconds
