"""The child's side of protection: lost packets computed from repairs and from the packets that came (rules T2 to T4).

There is one decoder for each receiver, not for each link: ANs and payloads are equal on all links, so packets of one
parent complete repairs of another, and so does a packet that a NACK brought. What comes out is checked like any other
copy (`accepts`); a packet that was computed from a forged one is refused there, and held against nobody.

Bounded: `MAX_KNOWN` packets and bytes, `MAX_ROWS` repairs that wait, the oldest forgotten first.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dcp.claims import Claim, Packets
from dcp.coding import INVERSE, TIMES, coefficient, combined
from dcp.parent import Parent
from dcp.protection import Group, Repair, payloads_of, symbol_of

MAX_KNOWN = 256
MAX_KNOWN_BYTES = 1 << 20
MAX_ROWS = 12


class Row(NamedTuple):
    """A repair that waits: what is missing in it, and the sum of what is missing."""

    parent: Parent
    epoch: int
    starts: dict[Group, int]
    """Where the claim of each of its symbols begins, by the word of this parent."""
    unknown: dict[Group, int]
    body: bytes


Equation = tuple[dict[Group, int], bytes, Row]


class Decoder:
    def __init__(self) -> None:
        self.rebuilt = 0
        """Packets that were computed."""
        self.unneeded = 0
        """Repairs of which everything had come already."""
        self.unfit = 0
        """Repairs that do not fit what is known: damaged, forged, or computed from something forged."""
        self._known: dict[int, bytes] = {}
        self._known_bytes = 0
        self._rows: deque[Row] = deque(maxlen=MAX_ROWS)
        self._wanted: set[int] = set()

    def clear(self) -> None:
        """The numbering has changed, or nothing under way counts any longer."""
        self._known.clear()
        self._known_bytes = 0
        self.forget_repairs()

    def forget_repairs(self) -> None:
        """The query has changed: repairs from before make no claims under the new one."""
        self._rows.clear()
        self._wanted.clear()

    def __len__(self) -> int:
        return len(self._rows)

    # --- in -----------------------------------------------------------------------------------------------------------

    def hear(self, packets: Packets) -> list[Claim]:
        """Packets came. What can be computed with them."""
        is_useful = False
        wanted = self._wanted
        for an, payload in packets:
            self._keep(an, payload)
            is_useful = is_useful or an in wanted
        return self._solve() if is_useful else []

    def hear_repair(self, parent: Parent, epoch: int, prev: int, repair: Repair, position: int) -> list[Claim]:
        """A repair came. What can be computed with it; what lies at or before the position is not looked for."""
        known = self._known
        starts: dict[Group, int] = {}
        for group in repair.groups:
            starts[group] = prev
            prev = group[-1]
        unknown = [g for g in repair.groups if g[-1] > position and not all(an in known for an in g)]
        if not unknown:
            self.unneeded += 1
            return []
        unknown = [g for g in repair.groups if not all(an in known for an in g)]
        if len(repair.groups) == 1:  # a copy
            return self._rebuilt([({unknown[0]: 1}, repair.coded, Row(parent, epoch, starts, {}, b""))])
        factors = {group: coefficient(repair.key, group[-1]) for group in repair.groups}
        here = [group for group in repair.groups if group not in unknown]
        parts = [(factors[group], symbol_of([known[an] for an in group])) for group in here]
        body = combined([(1, repair.coded), *parts])
        if len(body) > len(repair.coded):
            self.unfit += 1
            return []
        self._rows.append(Row(parent, epoch, starts, {group: factors[group] for group in unknown}, body))
        return self._solve()

    def _keep(self, an: int, payload: bytes) -> None:
        known = self._known
        if an in known:
            return
        known[an] = payload
        self._known_bytes += len(payload)
        while len(known) > MAX_KNOWN or self._known_bytes > MAX_KNOWN_BYTES:
            self._known_bytes -= len(known.pop(next(iter(known))))

    def refuse(self, packets: Packets) -> None:
        """These were computed, and the owner does not accept them: something that went into them is forged."""
        self.unfit += 1
        for an, _ in packets:
            self._known_bytes -= len(self._known.pop(an, b""))
        self.forget_repairs()

    # --- out ----------------------------------------------------------------------------------------------------------

    def _solve(self) -> list[Claim]:
        """Eliminate what is known, then one unknown after the other; an equation with one unknown left is a symbol."""
        self._rows = deque((row for row in map(self._without_known, self._rows) if row.unknown), maxlen=MAX_ROWS)
        done: list[Equation] = []
        for row in self._rows:
            unknown, body = dict(row.unknown), row.body
            for other, base, _ in done:
                pivot = next(iter(other))
                if pivot in unknown:
                    unknown, body = _minus(unknown, body, other, base, unknown[pivot])
            if not unknown:
                continue  # says what the others said: or something else, which shows when it is used
            pivot = next(iter(unknown))
            scale = TIMES[INVERSE[unknown[pivot]]]
            unknown = {pivot: 1} | {group: scale[factor] for group, factor in unknown.items() if group != pivot}
            body = body.translate(scale)
            done = [(*_minus(o, b, unknown, body, o[pivot]), r) if pivot in o else (o, b, r) for o, b, r in done]
            done.append((unknown, body, row))
        claims = self._rebuilt([equation for equation in done if len(equation[0]) == 1])
        if claims:
            self._rows = deque((row for row in map(self._without_known, self._rows) if row.unknown), maxlen=MAX_ROWS)
        self._wanted = {an for row in self._rows for group in row.unknown for an in group}
        return claims

    def _without_known(self, row: Row) -> Row:
        known = self._known
        found = [group for group in row.unknown if all(an in known for an in group)]
        if not found:
            return row
        parts = [(row.unknown[group], symbol_of([known[an] for an in group])) for group in found]
        body = combined([(1, row.body), *parts])
        unknown = {group: factor for group, factor in row.unknown.items() if group not in found}
        if len(body) > len(row.body):
            self.unfit += 1
            unknown = {}
        return row._replace(unknown=unknown, body=body)

    def _rebuilt(self, solved: list[Equation]) -> list[Claim]:
        claims: list[Claim] = []
        for unknown, symbol, row in solved:
            (group,) = unknown
            payloads = payloads_of(symbol, len(group))
            if payloads is None:
                # Something in here is not what it says: nothing that depends on it can be trusted to be right.
                self.unfit += 1
                self.forget_repairs()
                return claims
            row = row if group in row.starts else self._listing(group)
            packets = list(zip(group, payloads, strict=True))
            fresh = [packet for packet in packets if packet[0] not in self._known]
            self.rebuilt += len(fresh)
            for an, payload in fresh:
                self._keep(an, payload)
            claims.append(Claim(row.parent, row.epoch, row.starts[group], group[-1], packets))
        return claims

    def _listing(self, group: Group) -> Row:
        """A repair that lists the group: by its parent's word it is claimed."""
        return next(row for row in self._rows if group in row.starts)


def _minus(
    unknown: dict[Group, int], body: bytes, other: dict[Group, int], base: bytes, factor: int
) -> tuple[dict[Group, int], bytes]:
    """One equation less a multiple of another."""
    times = TIMES[factor]
    left = dict(unknown)
    for group, value in other.items():
        if rest := left.get(group, 0) ^ times[value]:
            left[group] = rest
        else:
            left.pop(group, None)
    return left, combined([(1, body), (factor, base)])
