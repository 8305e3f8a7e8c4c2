"""The core's questions for candidates, answered: from the directory's cache at once, from the DHT beside it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

import trio

from peer.directory import candidate_of, query_of
from peer.ownership import owner_problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dht import CandidateQuery, PeerRecord
    from dht.shell.trio_directory import TrioDirectory
    from peer.mesh.candidates import CandidateRecord
    from peer.mesh.events import CandidatesWanted

log = logging.getLogger(__name__)

FIRST_CONTACT_PATIENCE = 1.0
CONTACT_LOOK_INTERVAL = 0.01
PLACES_EACH_SIDE = 32
KEY_LOOK_INTERVAL = 0.25
"""Between two look-ups for keys: anybody can send packets that claim an unknown key."""


class Lookups:
    """Only the newest question counts: the mesh asks again when it needs more."""

    def __init__(
        self,
        stream: str,
        *,
        found: Callable[[list[CandidateRecord]], None],
        roots_found: Callable[[Sequence[PeerRecord]], None],
        failed: Callable[[Exception], None],
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        """`found` takes candidates, `roots_found` the roots of the owner, `failed` an error that ends the peer;
        `turn` waits for the peer's next input."""
        self._stream = stream
        self._found, self._failed, self._turn = found, failed, turn
        self._roots_found = roots_found
        self._keys_wanted = False
        self._wanted: CandidatesWanted | None = None
        self._asked = trio.Event()
        self.ended: Counter[str] = Counter()
        """Questions by how they ended: found, nothing, unavailable, other_owner."""
        self.seconds = 0.0

    def ask(self, wanted: CandidatesWanted) -> None:
        self._wanted = wanted
        self._asked.set()

    def ask_keys(self) -> None:
        """A packet came whose key is not known: look at the roots' records."""
        if not self._keys_wanted:
            self._keys_wanted = True
            self._asked.set()

    async def run(self, directory: TrioDirectory) -> None:
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            if self._keys_wanted:
                await self._answer(directory, None)
                await trio.sleep(KEY_LOOK_INTERVAL)
                self._keys_wanted = False
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                await self._answer(directory, query_of(wanted), wanted.places)

    async def _answer(self, directory: TrioDirectory, query: CandidateQuery | None, places: Sequence[int] = ()) -> None:
        """Without a query only the roots are looked up."""
        from dht import DhtError, OwnerError

        stream = self._stream
        began, ended = time.perf_counter(), "unavailable"
        try:
            if query is not None:
                self._tell([*directory.cached_roots(stream), *directory.cached_candidates(stream, query)])
            await self._meet_somebody(directory)
            began = time.perf_counter()
            roots = await directory.roots(stream)
            self._roots_found(roots)
            self._tell(roots)
            others = await directory.candidates(stream, query) if query is not None else []
            self._tell(others)
            await self._look_at_places(directory, places)
            ended = "found" if roots or others else "nothing"
        except OwnerError as error:
            ended = "other_owner"
            self._failed(owner_problem(error))
        except DhtError as error:
            log.info("directory: %s", error)
        self.ended[ended] += 1
        self.seconds += time.perf_counter() - began

    async def _look_at_places(self, directory: TrioDirectory, places: Sequence[int]) -> None:
        """One answer covers a stretch of the line, in a small mesh all of it: what lies inside is not asked again."""
        from dht.places import PLACES, place_of

        covered: list[tuple[int, int]] = []
        for near in places:
            if any(low <= near <= high for low, high in covered):
                continue
            found = await directory.places(self._stream, near, PLACES_EACH_SIDE)
            at = [place_of(self._stream, record.peer_id) for record in found]
            below, above = sum(place < near for place in at), sum(place >= near for place in at)
            low = at[0] if below >= PLACES_EACH_SIDE else 0
            high = at[-1] if above >= PLACES_EACH_SIDE else PLACES - 1
            covered.append((low, high))
            if found:
                self._found([candidate_of(record, is_placed=True) for record in found])

    async def _meet_somebody(self, directory: TrioDirectory) -> None:
        """The first question comes before the DHT has its first contact: asked then it fails, and costs a retry."""
        with trio.move_on_after(FIRST_CONTACT_PATIENCE):
            while directory.stats().contacts == 0:
                with trio.move_on_after(CONTACT_LOOK_INTERVAL):
                    await self._turn()

    def _tell(self, records: Sequence[PeerRecord]) -> None:
        if records:
            self._found([candidate_of(record) for record in records])
