"""Two roots of one open stream need one owner: a root looks who else serves the stream before it says that it does.

A root that is refused must leave nothing behind, so its record waits for the first look. Whoever is seen by that look
was there before, and this root stops. Whoever comes later is only reported: otherwise any stranger could stop a root by
calling itself one. A root that met nobody in time has to go by what the first records that it sees say of their age.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import trio

from peer.errors import SeveralOwners, WrongOwner
from peer.role import Role

if TYPE_CHECKING:
    from dht import OwnerError, PeerId, PeerRecord
    from dht.shell.trio_directory import TrioDirectory
    from peer.options import PeerOptions

log = logging.getLogger(__name__)

FIRST_CONTACT_PATIENCE = 1.0
"""How long the record waits for a first contact. Longer, and a root that starts before everybody else is found late."""
FIRST_LOOK_PATIENCE = 3.0
"""How long the record waits for the first look: dead bootstrap addresses must not keep a root from serving."""
CHECK_PERIOD = 15.0
"""How long a root looks for others after its start: by then the DHT is found, or there is none."""
LOOK_INTERVAL = 1.0
CONTACT_LOOK_INTERVAL = 0.02


class OwnerCheck:
    """`run` beside a root; `may_publish` is set when its record may go to the directory."""

    def __init__(
        self, directory: TrioDirectory, stream: str, owner: PeerId, *, can_meet: bool, is_sure: bool = False
    ) -> None:
        self.may_publish = trio.Event()
        self.others: set[bytes] = set()
        """Roots of other owners that were seen."""
        self._directory, self._stream, self._owner = directory, stream, owner
        self._can_meet = can_meet
        self._is_sure = is_sure
        """The operator named the owner: others are only reported, whenever they came."""
        self._looked = False
        self._begun = time.time()

    async def run(self) -> None:
        """WrongOwner when a root of another owner was there first."""
        with trio.move_on_after(CHECK_PERIOD):
            if self._can_meet:
                with trio.move_on_after(FIRST_CONTACT_PATIENCE):
                    await self._meet()
                with trio.move_on_after(FIRST_LOOK_PATIENCE):
                    await self._look()
            self.may_publish.set()
            while True:
                await trio.sleep(LOOK_INTERVAL)
                await self._look()

    async def _meet(self) -> None:
        while not self._directory.stats().contacts:  # noqa: ASYNC110 - becoming known has no event
            await trio.sleep(CONTACT_LOOK_INTERVAL)

    async def _look(self) -> None:
        from dht import DhtError

        if not self._directory.stats().contacts:
            return
        try:
            roots = await self._directory.claimed_roots(self._stream)
        except DhtError:
            return
        is_first, self._looked = not self._looked, True
        for root in roots:
            if root.owner != self._owner and bytes(root.peer_id) not in self.others:
                # A version is the clock's milliseconds when the record was signed: see docs/dht.md.
                was_there = not self.may_publish.is_set() or (self._can_meet and root.version < self._begun * 1_000)
                self._refuse(root, was_there=is_first and was_there)

    def _refuse(self, root: PeerRecord, *, was_there: bool) -> None:
        from dht import id_text

        self.others.add(bytes(root.peer_id))
        if was_there and not self._is_sure:
            raise WrongOwner(
                f"{self._stream} is already served by roots of the owner {id_text(root.owner)}, and this root's owner "
                f"is {id_text(self._owner)}: clients would not follow it. Start it with the owner's key (--owner FILE) "
                f"or a grant (--grant FILE). If the other one is the impostor, start this root with --owner-id "
                f"{id_text(self._owner)}, and tell clients to use the same flag"
            )
        log.warning(
            "%s: another owner's root is there too (owner %s): clients that have not pinned an owner yet must choose "
            "one with --owner-id",
            self._stream,
            id_text(root.owner),
        )


def owner_problem(error: OwnerError) -> WrongOwner:
    """The directory's error in the words of this package."""
    from dht import SeveralOwners as SeveralInDirectory
    from dht import id_text

    if isinstance(error, SeveralInDirectory):
        return SeveralOwners(str(error), tuple(map(id_text, error.owners)))
    return WrongOwner(str(error))


def checked_owner(options: PeerOptions, own: PeerId) -> PeerId | None:
    """The owner that was named. A root can't name another one than its own: WrongOwner."""
    from dht import id_text

    owner = options.chosen_owner()
    if options.role is Role.ROOT and owner is not None and owner != own:
        raise WrongOwner(
            f"this root's owner is {id_text(own)}, and {options.owner_id} was named: start it with that owner's key "
            "(--owner FILE) or a grant (--grant FILE)"
        )
    return owner


def owner_check(options: PeerOptions, owner: PeerId, directory: TrioDirectory) -> OwnerCheck | None:
    """None for peers that are not roots."""
    if options.role is not Role.ROOT:
        return None
    return OwnerCheck(
        directory,
        options.stream,
        owner,
        can_meet=bool(options.bootstrap) or options.beacon or options.state is not None,
        is_sure=options.owner_id is not None,
    )
