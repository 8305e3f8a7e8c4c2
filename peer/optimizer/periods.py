"""The root decides (the paper's mode), between real peers: proposals go up, the root's choice comes down.

Every peer passes the best proposals of those below it to its parents, with its attributes. About every 30 s a root
takes the best one and all that are independent of those taken (definition 5 of the paper: they share no peer whose
parents or children change), and says whose they were; peers pass that down. Whoever is named measures again and moves,
with the same locks and trials as if it had decided itself. So a lying root or parent gains nothing: nobody moves but to
its own advantage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from peer.mesh.messages import PeerId

PERIOD = 30.0
PROPOSED_FOR = 45.0
"""Seconds that a proposal counts; it is renewed about every `PERIOD`."""
MAX_BIDS = 6
"""Proposals that a peer passes on: as many as fit one attribute."""
MAX_ROOTS = 4
NAME_BYTES = 8


class Bid(NamedTuple):
    """A proposal: what it gains, weighted, and the short names of the peers that it touches, its own first."""

    gain: float
    peers: tuple[bytes, ...]


class Choice(NamedTuple):
    root: bytes
    number: int
    """Of the period."""
    worst: float
    """The highest cost of any peer."""
    names: tuple[bytes, ...]


def short_name(peer: PeerId) -> bytes:
    return bytes(peer[:NAME_BYTES]).ljust(NAME_BYTES, b"\0")


def independent(bids: Iterable[Bid]) -> list[Bid]:
    """The best one, and the best of the others that touch none of its peers, and so on."""
    found: list[Bid] = []
    touched: set[bytes] = set()
    for bid in sorted(bids, key=lambda b: (-b.gain, b.peers)):
        if len(found) < MAX_BIDS and not touched.intersection(bid.peers):
            found.append(bid)
            touched.update(bid.peers)
    return found


def newest(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """The last choice of each root."""
    found: dict[bytes, Choice] = {}
    for choice in choices:
        if choice.root not in found or choice.number > found[choice.root].number:
            found[choice.root] = choice
    return tuple(found[root] for root in sorted(found)[:MAX_ROOTS])


class Periods:
    """One peer's part: its own proposal, and what roots chose."""

    def __init__(self) -> None:
        self._own: tuple[Bid, float] | None = None
        self._chosen: dict[bytes, Choice] = {}
        self._done: dict[bytes, int] = {}
        self._news: dict[bytes, int] = {}
        self._choice: Choice | None = None
        self._chose_at = float("-inf")

    def propose(self, bid: Bid, now: float) -> None:
        self._own = bid, now

    def proposed(self, now: float) -> list[Bid]:
        return [self._own[0]] if self._own is not None and now - self._own[1] <= PROPOSED_FOR else []

    def choose(self, own: PeerId, bids: Sequence[Bid], worst: float, now: float) -> Choice:
        """At a root: the choice of this period, made once."""
        if self._choice is None or now - self._chose_at >= PERIOD:
            number = self._choice.number + 1 if self._choice is not None else 1
            names = tuple(bid.peers[0] for bid in independent(bids))
            self._choice, self._chose_at = Choice(short_name(own), number, worst, names), now
        return self._choice

    def hear(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            if choice.root in self._chosen or len(self._chosen) < MAX_ROOTS:
                self._chosen[choice.root] = choice

    def _naming(self, own: PeerId, known: dict[bytes, int]) -> list[Choice]:
        name = short_name(own)
        return [c for c in self._chosen.values() if name in c.names and known.get(c.root) != c.number]

    def is_chosen(self, own: PeerId) -> bool:
        return bool(self._naming(own, self._done))

    def done(self, own: PeerId) -> None:
        """Our turn is over: one move per choice, whoever of the roots made it."""
        self._done = {root: choice.number for root, choice in self._chosen.items()}
        self._own = None

    def is_news(self, own: PeerId) -> bool:
        news = self._naming(own, self._news)
        self._news.update((choice.root, choice.number) for choice in news)
        return bool(news) and self.is_chosen(own)
