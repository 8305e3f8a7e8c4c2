"""Every door through which a query from elsewhere comes in, as functions: for the test of the corpus and its benchmark.

Each takes a query's text and namespaces, does all that a peer does with it there, and returns; a refusal is an answer.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace

import msgpack
import trio

from demo.check.truth import Fact
from demo.page import session
from demo.run.feed import FeedPlan
from dht.record import MAX_QUERY_TEXT_BYTES
from peer import directory as records
from peer.cli import query as cli_query
from peer.cli.errors import CliError
from peer.mesh.encoding import encode_request
from peer.mesh.messages import MAX_QUERY_BYTES, ChildrenRequest
from peer.queries import XPathPolicy, token_of
from peer.testing.peersim import PeerSimulation
from xmlswitch import Interest, Query, QuerySet

Entrance = Callable[[str, dict[str, str]], None]

SMALL = b"<a><b x='1'>1</b><c>x</c></a>"
ROWS = [b"<b%d><c>%d</c><d>text %d</d></b%d>" % (n % 40, n, n, n % 40) for n in range(2_500)]
LARGE = b"<a>" + b"".join(ROWS) + b"</a>"


def token(text: str, namespaces: dict[str, str]) -> bytes:
    return bytes(msgpack.packb([1, "1.0", text, namespaces], unicode_errors="surrogatepass"))


def joins() -> Entrance:
    """As a parent does with a child's query: read it, hold it, and let it go."""
    policy = XPathPolicy()

    def join(text: str, namespaces: dict[str, str]) -> None:
        query = token(text, namespaces)
        if policy.check(query) is None:
            policy.open_slot(0, query)
            policy.close_slot(0)

    return join


def packets() -> Entrance:
    """One small packet and one of 90 kB, matched by a parent for a child that has the query: live, and in history."""
    policy = XPathPolicy()

    def route(text: str, namespaces: dict[str, str]) -> None:
        query = token(text, namespaces)
        if policy.check(query) is not None:
            return
        policy.open_slot(0, query)
        for payload in (SMALL, LARGE):
            policy.route(b"\0" + payload)
            policy.matches(query, b"\0" + payload)
        policy.close_slot(0)

    return route


def unions() -> Entrance:
    """What a router asks upstream for, on behalf of this child and an honest one."""
    policy = XPathPolicy()
    honest, interest = token_of(Query.parse("/a/b > 3 or //c = 'x'")), Interest()
    interest.add(Query.parse("/a/b > 3 or //c = 'x'"))

    def unite(text: str, namespaces: dict[str, str]) -> None:
        query = token(text, namespaces)
        if policy.check(query) is None:
            for member in policy.set_of(query).queries:
                interest.add(member)
                policy.token_of_set(QuerySet(interest.members))
                interest.remove(member)
            policy.covers(honest, query)
            policy.covers(query, honest)

    return unite


def children() -> Entrance:
    """An inquiry, which anybody may send who has a cookie."""
    sim = PeerSimulation(5)
    sim.add_root("R")
    sim.run_until(0.5)
    sim.add_leaf("C", query="/a/b > 3 or //c = 'x'", parents=1)
    sim.run_until(3.0)
    mesh = sim.peers["R"].core.mesh
    now = sim.network.now

    def ask(text: str, namespaces: dict[str, str]) -> None:
        nonlocal now
        query = token(text, namespaces)
        if len(query) > MAX_QUERY_BYTES:
            return  # refused by its size
        now += 0.05  # not so fast that it is refused for that
        mesh.handle_timeout(now=now)
        mesh.take_effects()
        assert mesh.answer_inquiry(encode_request(ChildrenRequest(query)), ("192.0.2.1", 9), now=now) is not None

    return ask


def directory() -> Entrance:
    """A record's query is compared with our own."""
    policy = XPathPolicy()
    own = token_of(Query.parse("/a/b > 3 or //c = 'x'"))

    def read(text: str, namespaces: dict[str, str]) -> None:
        records._carried.cache_clear()
        if len(text.encode("utf-8", "replace")) > MAX_QUERY_TEXT_BYTES:
            return  # no record has it
        policy.covers_untrusted(records._carried(text), own)

    return read


def command_line() -> Entrance:
    """`query check`, with a sample."""

    def check(text: str, namespaces: dict[str, str]) -> None:
        settings = {"namespace": list(namespaces.items()), "namespaces": None, "json": True, "sample": None}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(CliError):
            cli_query.check(settings, text)  # type: ignore[arg-type]

    return check


def page() -> Entrance:
    """A query that is tried on the demo's page, among the packets of the last seconds."""
    flights = islice(FeedPlan(0.0, copies=1).packets_after(0.0), 400)
    facts = [Fact(flight, float(n)) for n, flight in enumerate(flights)]
    for fact in facts:
        fact.document()
    mesh = SimpleNamespace(truth=SimpleNamespace(recent=lambda count, before: facts), listeners=[])
    posted: list[dict[str, object]] = []
    one = session.Session(SimpleNamespace(mesh=mesh), SimpleNamespace(post=posted.append))  # type: ignore[arg-type]

    def attempt(text: str, namespaces: dict[str, str]) -> None:
        posted.clear()
        one._allowance = 40.0
        trio.run(one._take, {"do": "try", "text": text, "id": 1})
        assert len(posted) == 1

    return attempt


ENTRANCES: dict[str, Callable[[], Entrance]] = {
    "join": joins,
    "packets": packets,
    "union": unions,
    "children": children,
    "record": directory,
    "command line": command_line,
    "page": page,
}
