"""The mesh as a table for a terminal: a tree in the first column, and what each peer says about itself beside it."""

from __future__ import annotations

from collections.abc import Iterator

from dht.addresses import endpoint_text
from peer.observe.crawl import MeshView, PeerView

WIDTH = 100
"""Columns that a line has at most, unless everything was asked for."""
MAX_SHOWN = 200
"""Characters of a stranger's query; --json has all of it."""
MAX_INDENT = 12
"""Beyond this depth the tree no longer moves to the right."""


def as_table(view: MeshView, *, wide: bool = False) -> str:
    """Each peer once, below its lowest parent. `wide` adds what operators seldom need, and cuts nothing off."""
    head = ["PEER", "ROLE", "ADDRESS", "PARENTS", "CHILDREN", "PACKETS/S", "LOSS", "PROTECTION"]
    if wide:
        head += ["LEVEL", "HOPS", "AGE", "VERSION", "ALL PARENTS"]
    rows = [[*head, "QUERY"], *([indent + _name(peer), *_cells(peer, view, wide)] for indent, peer in _tree(view))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if not wide:
        lines = [line if len(line) <= WIDTH else line[: WIDTH - 1] + "…" for line in lines]
    disputes = [f"{_name(peer)} contradicts {printable(peer.disputes)}" for peer in ordered(view) if peer.disputes]
    return "\n".join([verdict(view), *lines, *disputes])


def verdict(view: MeshView) -> str:
    """One line: how many there are, and what is wrong."""
    dead = len(view.silent_roots)
    silent = sum(not peer.answered for peer in view.peers.values()) - dead
    roots = len(view.roots()) - dead
    faults = []
    if not view.has_root:
        faults.append("no root answers")
    if dead:
        faults.append(f"{_count(dead, 'dead root')} still listed")
    if view.lacking:
        faults.append(f"{len(view.lacking)} with fewer parents than wanted")
    if silent:
        faults.append(f"{silent} not answering")
    if not view.is_whole:
        faults.append("more peers than were visited")
    state = ", ".join(faults) if faults else "every peer has the parents it wants"
    return f"{view.stream}: {_count(len(view.peers) - dead, 'peer')}, {_count(roots, 'root')}; {state}"


def _tree(view: MeshView) -> Iterator[tuple[str, PeerView]]:
    """Each peer with its indent, parents before children. A peer whose parents name each other comes at the end."""
    below: dict[bytes | None, list[PeerView]] = {}
    for peer in ordered(view):
        known = [view.peers[parent] for parent in peer.parents if parent in view.peers]
        nearest = min(known, key=lambda parent: (parent.level or 0, parent.peer_id), default=None)
        below.setdefault(nearest.peer_id if nearest is not None and peer.role != "root" else None, []).append(peer)
    placed: set[bytes] = set()
    waiting = [("", "", peer) for peer in reversed(below.get(None, []))]
    left = ordered(view)
    while waiting or left:
        own, inner, peer = waiting.pop() if waiting else ("", "", left.pop(0))
        if peer.peer_id in placed:
            continue
        placed.add(peer.peer_id)
        yield own, peer
        children = below.get(peer.peer_id, [])
        if len(inner) >= MAX_INDENT:
            inner = inner[:-2]
        for place in range(len(children), 0, -1):
            is_last = place == len(children)
            waiting.append(
                (inner + ("└ " if is_last else "├ "), inner + ("  " if is_last else "│ "), children[place - 1])
            )


def _cells(peer: PeerView, view: MeshView, wide: bool) -> Iterator[str]:
    is_dead_root = peer.role == "root" and not peer.answered
    yield "dead root" if is_dead_root else peer.role or "?"
    yield endpoint_text(peer.address)
    if not peer.answered:
        yield "no answer"
    elif peer.role == "root":
        yield "-"
    else:
        yield f"{shown(peer.parents_held)}/{shown(peer.parents_wanted)}" + ("!" if peer.lacks_parents else "")
    yield f"{shown(peer.children_held)}/{peer.capacity}" if peer.capacity else "-"
    yield "-" if peer.packets_per_second is None else f"{peer.packets_per_second:.1f}"
    yield "-" if peer.loss is None else f"{peer.loss:.1%}"
    yield printable(peer.protection) or "-"
    if wide:
        yield shown(peer.level)
        yield shown(peer.hops)
        yield "-" if peer.age is None else f"{peer.age:.0f} s"
        yield peer.version or "-"
        yield ", ".join(_name(view.peers[other]) if other in view.peers else other.hex()[:8] for other in peer.parents)
    yield printable(peer.query or "")


def ordered(view: MeshView) -> list[PeerView]:
    return sorted(
        view.peers.values(), key=lambda peer: (peer.level if peer.level is not None else 1 << 40, peer.peer_id)
    )


def printable(text: str) -> str:
    """What a stranger wrote, for a terminal: no control characters, and not without end."""
    legible = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:MAX_SHOWN])
    return legible + ("..." if len(text) > MAX_SHOWN else "")


def _name(peer: PeerView) -> str:
    return printable(peer.name) or short_id(peer.peer_id)


def short_id(peer_id: bytes) -> str:
    from dht import id_text

    return id_text(peer_id)[:8]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(value: int | None) -> str:
    return "?" if value is None else str(value)
