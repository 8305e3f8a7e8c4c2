"""Sets of queries in the slots of a switch. Sets that differ little share what they have in common.

A child that changes one of its thousand queries has two sets for a while, the old one and the new one. Each query is
therefore kept once, in the *layer* of all slots that have it, and a layer is a link of the switch: a change costs what
it changes. `spread` gives the slots of a mask of layers.
"""

from __future__ import annotations

from xmlswitch.index.answers import bits_of
from xmlswitch.query.query import Query
from xmlswitch.query.query_set import QuerySet
from xmlswitch.switch import Switch

_SHARED = 0.5  # of a set must be in another one, to share with it


class _Layer:
    """The queries that exactly these slots have."""

    __slots__ = ("link", "queries", "slots")

    def __init__(self, link: int, slots: int) -> None:
        self.link = link  # name and slot in the switch
        self.slots = slots
        self.queries: set[Query] = set()


class MemberSlots:
    """The slots of a switch. Nobody else adds links to it, but for those in the slots below `first`."""

    def __init__(self, switch: Switch[Query], *, first: int = 0) -> None:
        self._switch = switch
        self._first = first
        self._sets: dict[int, QuerySet] = {}
        self._layers: dict[int, _Layer] = {}  # by the slots that have it
        self._spread: dict[int, int] = {}  # of the switch's slot: the slots that have the layer
        self._moved = 0  # layers that are not in the place of their slot

    def __contains__(self, slot: int) -> bool:
        return slot in self._sets

    def open(self, slot: int, queries: QuerySet) -> None:
        if slot in self._sets:
            raise ValueError(f"slot {slot} is already in use")
        bit = 1 << slot
        like = self._nearest(queries)
        self._sets[slot] = queries
        if like is None:
            self._add(bit, queries.queries)
            return
        base = self._sets[like]
        for layer in [layer for layer in self._layers.values() if layer.slots >> like & 1]:
            gone = layer.queries - queries.queries
            if gone == layer.queries:
                continue
            stays = layer.slots
            self._relabel(layer, layer.slots | bit)
            if gone:
                self._add(stays, gone)
                self._take(layer, gone)
        self._add(bit, queries.queries - base.queries)

    def close(self, slot: int) -> None:
        del self._sets[slot]
        bit = 1 << slot
        for layer in [layer for layer in self._layers.values() if layer.slots & bit]:
            left = layer.slots & ~bit
            other = self._layers.get(left)
            if not left:
                self._drop(layer)
            elif other is None:
                self._relabel(layer, left)
            else:  # of two that are one now, the smaller moves
                small, large = sorted((layer, other), key=lambda each: len(each.queries))
                self._drop(small, into=large)
                self._relabel(large, left)

    def spread(self, mask: int) -> int:
        """The slots whose sets have a query in one of the layers that matched."""
        if not self._moved:
            return mask >> self._first
        found = 0
        for bit in bits_of(mask >> self._first):
            found |= self._spread.get(bit + self._first, 0)
        return found

    def cut_off(self, slot: int) -> int:
        """How often a packet passed to the slot because a query would have cost too much to evaluate."""
        return sum(self._switch.cut_off(layer.link) for layer in self._layers.values() if layer.slots >> slot & 1)

    # --- layers ---

    def _nearest(self, queries: QuerySet) -> int | None:
        """The slot whose set has most in common with a new one, if that is enough to share."""
        if len(queries) < 2:
            return None
        best = max(self._sets, key=lambda slot: len(queries.queries & self._sets[slot].queries), default=None)
        if best is None:
            return None
        common = len(queries.queries & self._sets[best].queries)
        return best if common > _SHARED * max(len(queries), len(self._sets[best])) else None

    def _add(self, slots: int, queries: frozenset[Query] | set[Query]) -> None:
        if not queries:
            return
        layer = self._layers.get(slots)
        if layer is None:
            layer = self._new(slots)
        for query in queries:
            self._switch.subscribe(layer.link, query)
        layer.queries |= queries

    def _new(self, slots: int) -> _Layer:
        own = self._first + slots.bit_length() - 1
        link = own if own not in self._spread else next(n for n in range(self._first, 1 << 30) if n not in self._spread)
        layer = self._layers[slots] = _Layer(link, slots)
        self._switch.add_link(link, slot=link)
        self._spread[link] = slots
        self._moved += self._is_moved(layer)
        return layer

    def _relabel(self, layer: _Layer, slots: int) -> None:
        if self._layers.get(layer.slots) is layer:
            del self._layers[layer.slots]
        self._moved -= self._is_moved(layer)
        layer.slots = slots
        self._moved += self._is_moved(layer)
        self._layers[slots] = layer
        self._spread[layer.link] = slots

    def _is_moved(self, layer: _Layer) -> bool:
        return layer.slots != 1 << (layer.link - self._first)

    def _take(self, layer: _Layer, queries: set[Query]) -> None:
        for query in queries:
            self._switch.unsubscribe(layer.link, query)
        layer.queries -= queries

    def _drop(self, layer: _Layer, into: _Layer | None = None) -> None:
        if into is not None:
            for query in layer.queries:
                self._switch.subscribe(into.link, query)
            into.queries |= layer.queries
        if self._layers.get(layer.slots) is layer:
            del self._layers[layer.slots]
        self._moved -= self._is_moved(layer)
        del self._spread[layer.link]
        self._switch.remove_link(layer.link)
