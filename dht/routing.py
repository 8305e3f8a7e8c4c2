"""The table of contacts: kademlia's buckets, with what they lack.

- Nearest means nearest: kademlia stops at the first k it walks past, which are often others.
- A contact enters only after it answered (the caller sees to that), keeps its place while it is alive, and leaves after
  repeated misses, not after one. Misses are spread by silence: a contact that missed is not recommended to others.
- One source address holds few places, in a bucket and in the whole table, as soon as others want them: a crowded source
  takes only room that is free, and gives way. (A hard limit would break a mesh that runs behind one address.)
- No clock of its own, no pings of its own.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kademlia.node import Node
from kademlia.routing import KBucket, RoutingTable

from dht.addresses import neighbour_group
from dht.ids import ID_BYTES, NodeId

if TYPE_CHECKING:
    from dht.config import NodeConfig
    from dht.wire import Contact

_SPACE = 1 << (8 * ID_BYTES)


class TableNode(Node):  # type: ignore[misc]  # kademlia has no types
    """A contact with its history."""

    def __init__(self, contact: Contact, *, now: float) -> None:
        super().__init__(contact.id, *contact.address)
        self.contact = contact
        self.group = neighbour_group(contact.address)
        self.misses = 0
        self.heard_at = now


class ContactTable(RoutingTable):  # type: ignore[misc]  # kademlia has no types
    def __init__(self, node_id: NodeId, config: NodeConfig) -> None:
        self._config = config
        self._of_source: Counter[str] = Counter()
        self._used_at: dict[tuple[int, int], float] = {}
        self._flat: list[tuple[int, TableNode]] | None = None
        super().__init__(None, config.k, Node(node_id))

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self.buckets)

    def __iter__(self) -> Iterator[TableNode]:
        for bucket in self.buckets:
            yield from bucket.nodes.values()

    @property
    def contacts(self) -> list[Contact]:
        return [node.contact for node in self]

    def get_bucket_for(self, node: Node) -> int:
        """kademlia's puts an id on a border into another bucket than `KBucket.split` does."""
        return bisect_left(self.buckets, node.long_id, key=lambda bucket: bucket.range[1])

    def find(self, node_id: NodeId) -> TableNode | None:
        found: TableNode | None = self._bucket(node_id).nodes.get(node_id)
        return found

    def has_room_for(self, contact: Contact) -> bool:
        """Whether it is worth a ping to see if a stranger is alive."""
        if contact.id == self.node.id:
            return False
        bucket = self._bucket(contact.id)
        known = bucket.nodes.get(contact.id)
        if known is not None:
            return bool(known.misses)
        if len(bucket) < self.ksize:
            return True
        if self._is_crowded(bucket, neighbour_group(contact.address)):
            return False
        return (
            bucket.has_in_range(self.node)
            or self._one_of_a_crowd(bucket) is not None
            or any(node.misses for node in bucket.nodes.values())
        )

    def heard(self, contact: Contact, *, now: float) -> bool:
        """A contact answered. True when it is new in the table."""
        if contact.id == self.node.id:
            return False
        known = self.find(contact.id)
        if known is not None:
            if known.contact.address == contact.address:
                known.misses, known.heard_at = 0, now
                self._bucket(contact.id).nodes.move_to_end(contact.id)
                return False
            if not known.misses:
                return False  # somebody else with the id of a contact that is alive
            self._remove(known)
        return self._add(TableNode(contact, now=now))

    def missed(self, contact: Contact) -> bool:
        """A request and its retry went unanswered. True when the contact was given up for it."""
        known = self.find(contact.id)
        if known is None or known.contact.address != contact.address:
            return False
        known.misses += 1
        has_successor = bool(self._bucket(contact.id).replacement_nodes)
        if known.misses < self._config.max_misses and not (has_successor and known.misses >= 2):
            return False
        self._remove(known)
        return True

    def nearest(
        self, key: bytes, count: int, *, exclude: NodeId | None = None, only_sound: bool = False
    ) -> list[Contact]:
        """The contacts nearest to a key; `only_sound` leaves out those that missed last time."""
        target = int.from_bytes(key, "big")
        # The hottest line of a node: distances are distinct, so nodes are never compared.
        ranked = sorted([(long_id ^ target, node) for long_id, node in self._ranked_nodes()])
        chosen: list[Contact] = []
        for _, node in ranked:
            if node.id != exclude and not (only_sound and node.misses):
                chosen.append(node.contact)
                if len(chosen) >= count:
                    break
        return chosen

    def least_recently_heard(self) -> TableNode | None:
        return min(self, key=lambda n: (n.heard_at, n.long_id), default=None)

    def mark_used(self, key: bytes, *, now: float) -> None:
        self._used_at[self._bucket(key).range] = now

    def unused_targets(self, *, since: float, rng: random.Random) -> list[NodeId]:
        """A random id in every bucket that no lookup has gone through since then."""
        targets = []
        for bucket in self.buckets:
            if self._used_at.get(bucket.range, float("-inf")) < since:
                low, high = bucket.range
                targets.append(NodeId(rng.randint(low, min(high, _SPACE - 1)).to_bytes(ID_BYTES, "big")))
        return targets

    def _ranked_nodes(self) -> list[tuple[int, TableNode]]:
        """Every node with its id as a number, rebuilt only after the table has changed."""
        if self._flat is None:
            self._flat = [(node.long_id, node) for node in self]
        return self._flat

    def _bucket(self, node_id: bytes) -> KBucket:
        return self.buckets[self.get_bucket_for(Node(node_id))]

    def _is_crowded(self, bucket: KBucket, group: str) -> bool:
        """Whether one more of this source would be more than its share."""
        if self._of_source[group] >= self._config.max_per_source_in_table:
            return True
        same = sum(node.group == group for node in bucket.nodes.values())
        return bool(same >= self._config.max_per_source_in_bucket)

    def _one_of_a_crowd(self, bucket: KBucket) -> TableNode | None:
        """The newest node of the bucket's most crowded source, if that holds more than its share."""
        group, most = Counter(node.group for node in bucket.nodes.values()).most_common(1)[0]
        if most <= self._config.max_per_source_in_bucket:
            return None
        newest: TableNode = next(node for node in reversed(bucket.nodes.values()) if node.group == group)
        return newest

    def _add(self, node: TableNode) -> bool:
        while True:
            index = self.get_bucket_for(node)
            bucket = self.buckets[index]
            if len(bucket) >= self.ksize:
                if self._is_crowded(bucket, node.group):
                    return False
                surplus = self._one_of_a_crowd(bucket)
                if surplus is not None:
                    bucket.replacement_nodes.clear()  # or one of the same crowd would come up in its place
                    self._remove(surplus)
            if bucket.add_node(node):
                self._of_source[node.group] += 1
                self._flat = None
                return True
            # Full: now among the replacements. Only our own bucket splits, as in the paper's basic scheme.
            if not bucket.has_in_range(self.node) or len(self.buckets) >= 8 * ID_BYTES:
                return False
            self._split(index)

    def _split(self, index: int) -> None:
        used_at = self._used_at.pop(self.buckets[index].range, None)
        # kademlia's split also moves replacements up; what they were is forgotten, so that counts stay true.
        self.buckets[index].replacement_nodes.clear()
        self.split_bucket(index)
        if used_at is not None:
            for half in self.buckets[index : index + 2]:
                self._used_at[half.range] = used_at

    def _remove(self, node: TableNode) -> None:
        bucket = self._bucket(node.id)
        before = set(bucket.nodes)
        bucket.remove_node(node)
        self._flat = None
        self._of_source[node.group] -= 1
        if not self._of_source[node.group]:
            del self._of_source[node.group]
        for promoted in bucket.nodes.keys() - before:
            self._of_source[bucket.nodes[promoted].group] += 1

    def check_invariants(self) -> None:
        """For tests: counts are true, ids lie in their buckets, ranges cover the space."""
        assert Counter(n.group for n in self) == self._of_source
        for bucket in self.buckets:
            assert len(bucket) <= self.ksize
            assert all(bucket.has_in_range(node) for node in bucket.nodes.values())
        assert len({n.id for n in self}) == len(self)
        assert self._flat is None or {node.id for _, node in self._flat} == {node.id for node in self}
