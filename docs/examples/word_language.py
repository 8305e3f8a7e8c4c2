"""A query language of one's own: packets are lines of text, and a query is a list of words of which one must occur.

Registered by a package like this:

    [project.entry-points."skymesh.languages"]
    words = "word_language:WORDS"

and used with `skymesh join lines --language words --query "storm fog"`. A program calls `register_language(WORDS)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import trio

import peer
from peer.languages import register_language

Words = frozenset[str]
EVERYTHING: Words = frozenset({"*"})


class WordIndex:
    """Which links want a word: one look per word of a packet, however many links there are."""

    def __init__(self) -> None:
        self.cut_offs: Counter[int] = Counter()
        self._links: dict[str, int] = {}

    def add(self, query: Words, link: int) -> None:
        for word in query:
            self._links[word] = self._links.get(word, 0) | 1 << link

    def remove(self, query: Words, link: int) -> None:
        for word in query:
            self._links[word] &= ~(1 << link)
            if not self._links[word]:
                del self._links[word]

    def match(self, packet: bytes, wanted: int) -> int:
        found = 0
        for word in {"*", *packet.decode("utf-8", "replace").split()}:
            found |= self._links.get(word, 0)
        return found & wanted

    def forget(self, link: int) -> None:
        pass

    def snapshot(self) -> dict[str, int]:
        return {"words": len(self._links)}


class WordLanguage:
    name = "words"

    def parse(self, text: str) -> Words:
        return frozenset(text.split()[:64])

    def matches(self, packet: bytes, query: Words) -> bool:
        return "*" in query or not query.isdisjoint(packet.decode("utf-8", "replace").split())

    def matches_everything(self, query: Words) -> bool:
        return "*" in query

    def merge(self, queries: Iterable[Words]) -> Words:
        merged = frozenset[str]().union(*queries)
        return merged if len(merged) <= 64 else EVERYTHING

    def covers(self, general: Words, special: Words) -> bool:
        return "*" in general or special <= general

    def index(
        self, *, strict: bool = False, clock: Callable[[], float] | None = None, exact: bool = False
    ) -> WordIndex:
        return WordIndex()

    def encode(self, query: Words) -> bytes:
        return " ".join(sorted(query)).encode()

    def decode_untrusted(self, data: bytes) -> Words:
        return self.parse(data[:4_096].decode())


WORDS = WordLanguage()


async def main() -> list[str]:
    """A root and a client on this machine; what the client gets."""
    register_language(WORDS)
    got: list[str] = []
    async with (
        peer.root("lines", language="words", listen=("127.0.0.1", 0), beacon=False) as root,
        peer.join(
            "lines", language="words", query="storm fog", bootstrap=[root.address], beacon=False, parents=1
        ) as client,
    ):
        await client.wait_parents(1)
        for line in ("a clear night", "fog in the valley", "a storm is coming", "sunshine", "the fog lifts"):
            await root.send(line.encode())
        async for item in client:
            if isinstance(item, peer.Packet):
                got.append(item.payload.decode())
                if len(got) == 3:
                    break
    return got


if __name__ == "__main__":
    print("\n".join(trio.run(main)))
