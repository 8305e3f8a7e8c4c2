"""Who takes part in a DHT, as far as look-ups in many directions show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dht.ids import ID_BYTES

if TYPE_CHECKING:
    from dht.record import Address
    from dht.shell.node import Node

MAX_DIRECTIONS = 64
"""Look-ups of one round; each costs a handful of questions."""


async def explore(node: Node, most: int) -> list[Address]:
    """The addresses of up to `most` nodes. Twice as many directions each round, until a round finds nobody new."""
    found: dict[Address, None] = {}
    directions = 1
    while directions <= MAX_DIRECTIONS:
        before = len(found)
        for number in range(directions):
            key = ((2 * number + 1) << (8 * ID_BYTES - 1)) // directions
            result = await node.find_nodes(key.to_bytes(ID_BYTES, "big"))
            found |= dict.fromkeys(contact.address for contact, _ in result.holders)
        found |= dict.fromkeys(contact.address for contact in node.contacts)
        if len(found) >= most or (len(found) == before and directions > 2):
            break
        directions *= 2
    return list(found)[:most]
