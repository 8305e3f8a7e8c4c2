"""Who may be linked with, by the owner's policy and the grants that peers show: at every hop, in both directions.

A parent asks it about each child before the mesh does, and a child about each parent that has accepted it. Without a
policy everybody may take part. A peer adopts the policy with the highest version that the stream's owner has signed,
passes it on to all its links, and then looks again at the links that it has. This file is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dht.errors import DhtError
from dht.identity import id_text, peer_id_of
from dht.ids import PeerId
from dht.streams import GRANT_BYTES, Grant
from peer.trust.grants import (
    GRANT_ITEM,
    POLICY_ITEM,
    ROOT_GRANT_ITEM,
    ROOT_KEYS_ITEM,
    ROUTE,
    ROUTERS_NEED_GRANTS,
    SUBSCRIBE,
    SUBSCRIBERS_NEED_GRANTS,
    WITHHELD,
    WITHHELD_ITEM,
    JoinGrant,
    MalformedCredentials,
    Policy,
    decode_items_untrusted,
    encode_items,
)
from peer.trust.rootkeys import RootKeys

ALL_ROLES = SUBSCRIBE | ROUTE | WITHHELD
MAX_CREDENTIALS_BYTES = 3_600
"""With a join they fit dcp's limit for a hello. A long list of revoked peers leaves no room for keys of roots."""
MAX_PENDING = 4
"""Policies that wait until the stream's owner is known."""
CLOCK_MARGIN = 60.0
"""A peer gives up withheld packets this long before its grant expires: before others do it by clocks that differ."""
NOT_ENCRYPTED = "grants are needed for {stream}, and can be shown on encrypted links only: upgrade, without --cleartext"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the other end of a link has proved about itself."""

    peer_id: PeerId | None
    """None on a link without encryption."""
    roles: int = 0
    expires_at: float = 0.0
    has_withheld: bool = False
    """It says that it receives withheld packets: as a child it asks for them, as a parent it has them."""


class Gate:
    def __init__(
        self,
        stream: str,
        *,
        wall: Callable[[], float],
        own: JoinGrant | Grant | None = None,
        owner: PeerId | None = None,
        is_root: bool = False,
        withholds: bool = False,
    ) -> None:
        """`own`: this peer's grant. `owner`: the stream's, once it is known (`set_owner`). `withholds`: of a root."""
        self.policy: Policy | None = None
        self.denied = 0
        """Links that were refused or ended."""
        self._stream = stream
        self._wall = wall
        self._own = own
        self._owner = owner
        self._pending: list[Policy] = []
        self._is_root = is_root
        self.has_withheld = is_root or self._may_have_withheld()
        """This peer receives withheld packets, and has them for others. Once that is over it stays over: what came in
        between is missing in the log."""
        self.holds_withheld = withholds or (self.has_withheld and not is_root)
        """There may be withheld packets in its log: not all children may have them."""
        self.adopted: Callable[[Policy], None] = lambda policy: None
        """Called with each policy that comes into force."""
        self.root_keys: RootKeys | None = None
        """Keys of roots that sign, passed on with the credentials."""

    @property
    def needs_grants(self) -> bool:
        return self.policy is not None and self.policy.needs_grants

    @property
    def tree_degree(self) -> int | None:
        """The owner's word about the reference tree."""
        return self.policy.tree_degree if self.policy is not None else None

    def _may_have_withheld(self) -> bool:
        own = self._own
        if not isinstance(own, JoinGrant) or not own.roles & WITHHELD:
            return False
        is_revoked = self.policy is not None and own.peer_id in self.policy.revoked
        return not is_revoked and own.expires_at - CLOCK_MARGIN > self._wall()

    def loses_withheld(self) -> bool:
        """Whether this peer's grant for withheld packets is over, and was not when it was last asked."""
        if not self.has_withheld or self._is_root or self._may_have_withheld():
            return False
        self.has_withheld = False
        return True

    def set_owner(self, owner: PeerId) -> bool:
        """Whose word counts; whether a policy that had come before is in force now."""
        if self._owner is not None:
            return False
        self._owner = owner
        pending, self._pending = self._pending, []
        adopted = [self.adopt(policy) for policy in pending]
        return any(adopted)

    def adopt(self, policy: Policy) -> bool:
        """Whether it is newer than ours, and the owner's."""
        if policy.stream != self._stream or (self.policy is not None and policy.version <= self.policy.version):
            return False
        if self._owner is None:
            if len(self._pending) < MAX_PENDING and policy not in self._pending:
                self._pending.append(policy)
            return False
        if policy.owner != self._owner or not policy.is_genuine():
            return False
        self.policy = policy
        self.adopted(policy)
        return True

    def adopt_untrusted(self, data: bytes) -> bool:
        try:
            return self.adopt(Policy.decode_untrusted(data, stream=self._stream))
        except MalformedCredentials:
            return False

    def credentials(self) -> bytes:
        """What this peer shows when a link is opened."""
        items = []
        if isinstance(self._own, JoinGrant):
            items.append((GRANT_ITEM, self._own.encode()))
        elif self._own is not None:
            items.append((ROOT_GRANT_ITEM, self._own.encode()))
        if self.policy is not None:
            items.append((POLICY_ITEM, self.policy.encode()))
        if self.has_withheld:
            items.append((WITHHELD_ITEM, b""))
        found = encode_items(items)
        keys = encode_items([(ROOT_KEYS_ITEM, self.root_keys.encode())]) if self.root_keys else b""
        return found + keys if len(found) + len(keys) <= MAX_CREDENTIALS_BYTES else found

    def look_untrusted(self, public_key: bytes, credentials: bytes) -> tuple[Shown, bool]:
        """What the other end shows, and whether its policy is newer than ours and in force from now on."""
        if not public_key:
            return Shown(None), False
        try:
            items = decode_items_untrusted(credentials)
        except MalformedCredentials:
            items = {}
        is_news = POLICY_ITEM in items and self.adopt_untrusted(items[POLICY_ITEM])
        if self.root_keys is not None and ROOT_KEYS_ITEM in items and self._owner is not None:
            self.root_keys.learn_untrusted(items[ROOT_KEYS_ITEM], self._owner)
        peer_id = peer_id_of(public_key)
        has_withheld = WITHHELD_ITEM in items
        if peer_id == self._owner:
            return Shown(peer_id, ALL_ROLES, float("inf"), has_withheld), is_news
        try:
            if len(items.get(ROOT_GRANT_ITEM, b"")) == GRANT_BYTES:
                root = Grant.decode(items[ROOT_GRANT_ITEM], stream=self._stream, peer_id=peer_id)
                if root.owner == self._owner and root.is_genuine():
                    return Shown(peer_id, ALL_ROLES, root.expires_at, has_withheld), is_news
            if GRANT_ITEM in items:
                grant = JoinGrant.decode_untrusted(items[GRANT_ITEM], stream=self._stream, peer_id=peer_id)
                if grant.owner == self._owner and grant.is_genuine():
                    return Shown(peer_id, grant.roles, grant.expires_at, has_withheld), is_news
        except (MalformedCredentials, DhtError):
            pass
        return Shown(peer_id, has_withheld=has_withheld), is_news

    def why_not_child(self, shown: Shown) -> str | None:
        """Why this peer may not subscribe here, in a sentence for its operator."""
        why = self._why_not(shown, SUBSCRIBERS_NEED_GRANTS, SUBSCRIBE, "subscribe to", "subscriber")
        if why is None and shown.has_withheld and not self._may_receive_withheld(shown):
            why = (
                "no grant that is valid by the clock here lets this peer receive the withheld packets of "
                f"{self._stream}: ask the owner for a new one (`skymesh keys grant --withheld`)"
            )
        return why

    def _may_receive_withheld(self, shown: Shown) -> bool:
        is_revoked = self.policy is not None and shown.peer_id in self.policy.revoked
        return bool(shown.roles & WITHHELD) and not is_revoked and shown.expires_at > self._wall()

    def is_unfit_child(self, shown: Shown) -> bool:
        """Whether a child asks for withheld packets that this peer does not have: others do."""
        return shown.has_withheld and not self.has_withheld

    def is_unfit_parent(self, shown: Shown) -> bool:
        """Whether this peer receives withheld packets, and that one has none, or no right to have them."""
        return self.has_withheld and not (shown.has_withheld and self._may_receive_withheld(shown))

    def restricts(self, shown: Shown) -> bool:
        """Whether a child gets no withheld packets from here."""
        return self.holds_withheld and not shown.has_withheld

    def why_not_parent(self, shown: Shown) -> str | None:
        """Why this peer may not route the stream to us."""
        return self._why_not(shown, ROUTERS_NEED_GRANTS, ROUTE, "route", "router")

    def _why_not(self, shown: Shown, rule: int, role: int, verb: str, name: str) -> str | None:
        policy = self.policy
        if policy is None:
            return None
        if shown.peer_id is not None and shown.peer_id in policy.revoked:
            return f"the owner of {self._stream} has revoked the grants of {id_text(shown.peer_id)}: ask for a new one"
        if not policy.rules & rule:
            return None
        if shown.peer_id is None:
            return NOT_ENCRYPTED.format(stream=self._stream)
        if shown.roles & role and shown.expires_at > self._wall():
            return None
        has = "the grant of" if shown.roles & role else "no grant lets"
        end = "has expired" if shown.roles & role else f"{verb} {self._stream}"
        return (
            f"{has} {id_text(shown.peer_id)} {end}: ask the owner {id_text(policy.owner)} to run `skymesh keys grant "
            f"--stream {self._stream} --peer {id_text(shown.peer_id)} --role {name}`, and start with --grant FILE "
            "and the same --identity"
        )
