"""What the mesh machine is told about links, the client and this peer (`peer.mesh.surroundings.LinkObserver`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from peer.disputes import held_in_words

if TYPE_CHECKING:
    from peer.content import Subscription
    from peer.link_map import LinkMap
    from peer.mesh.events import LinkId
    from peer.mesh.messages import About
    from peer.mesh.parents import Parent
    from peer.mesh.placement.neighbourhood import LinkQuality
    from peer.presence import Presence
    from peer.queries import XPathPolicy


class Observer:
    def __init__(self, links: LinkMap, presence: Presence, client: Subscription | None, policy: XPathPolicy) -> None:
        self._links, self._presence, self._client, self._policy = links, presence, client, policy
        self.parents: Callable[[], Iterable[Parent]] = tuple
        """Those that the mesh holds."""
        self.tree_degree: Callable[[], int | None] = lambda: None
        """Of the reference tree, if this peer follows one."""

    def heard_at(self, link: LinkId) -> float | None:
        """When dcp last heard anything valid on a link."""
        return self._links.heard_at(link)

    def qualities(self, now: float) -> dict[LinkId, LinkQuality]:
        """What dcp measured on the links to parents and children."""
        return self._links.qualities(now, self._presence.link_rates())

    def measures(self) -> Mapping[str, float]:
        """What this peer measures of itself, by the names of the metrics in goals."""
        return {"cpu": self._policy.seconds_per_packet, **self._presence.rates()}

    @property
    def has_client(self) -> bool:
        return self._client is not None

    def wanted(self) -> bytes | None:
        """What the client here asks for now, as it goes to parents; None when there is none."""
        return None if self._client is None else self._client.token

    def about(self) -> About:
        """What people may know about this peer."""
        disputes = held_in_words(self.parents())
        return replace(self._presence.about(), disputes=disputes, tree_degree=self.tree_degree())
