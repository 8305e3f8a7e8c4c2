"""`status`: the mesh as a tree, a graph or JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import trio

from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.running import no_dht, note, run
from peer.observe.crawl import Crawler, MeshView, PeerView, open_crawler
from peer.options import default_listen

LOOK_INTERVAL = 0.1
MAX_OWNERS_NAMED = 8
MAX_SHOWN = 200
"""Characters of a stranger's query in the tree; --json has all of it."""


def status(settings: Settings) -> int:
    async def command() -> int:
        listen = settings["listen"] or default_listen(settings["bootstrap"])
        async with open_crawler(listen, settings["bootstrap"], beacon=settings["beacon"]) as crawler:
            _choose_owner(crawler, settings)
            await _find(crawler, settings)
            while True:
                view = await crawler.look(settings["roots_key"])
                _show(view, settings)
                await _note_others(crawler, view, settings)
                if not settings["watch"]:
                    break
                await trio.sleep(settings["interval"])
        if not view.peers:
            raise CliError(f"the DHT knows no peer of {settings['roots_key']}", ExitCode.STREAM_UNAVAILABLE)
        return ExitCode.NOT_ALL if view.lacking or not view.has_root else ExitCode.OK

    return run(settings, command)


def _choose_owner(crawler: Crawler, settings: Settings) -> None:
    from dht import parse_id_text

    if settings["owner_id"] is not None:
        assert crawler.directory is not None
        try:
            crawler.directory.choose_owner(settings["roots_key"], parse_id_text(settings["owner_id"]))
        except ValueError as error:
            raise CliError(f"--owner-id: {error}", ExitCode.USAGE) from None


async def _note_others(crawler: Crawler, view: MeshView, settings: Settings) -> None:
    """Roots that are not shown because another owner vouches for them: an impostor must not go unnoticed."""
    from dht import DirectoryUnavailable, id_text

    assert crawler.directory is not None
    try:
        claimed = await crawler.directory.claimed_roots(settings["roots_key"])
    except DirectoryUnavailable:
        return
    owners = sorted({id_text(root.owner) for root in claimed if bytes(root.peer_id) not in view.peers})
    if owners and not settings["watch"]:
        note(f"not shown: roots of other owners ({', '.join(owners[:MAX_OWNERS_NAMED])})")


async def _find(crawler: Crawler, settings: Settings) -> None:
    """Until the DHT is found and lists somebody, for a bounded time."""
    from dht import DirectoryUnavailable

    assert crawler.directory is not None
    with trio.move_on_after(settings["find_timeout"]):
        while True:
            try:
                if crawler.directory.stats().contacts and await crawler.directory.roots(settings["roots_key"]):
                    return
            except DirectoryUnavailable:
                pass  # not yet
            await trio.sleep(LOOK_INTERVAL)
    if not crawler.directory.stats().contacts:
        raise CliError(no_dht(settings), ExitCode.NO_DHT)


def _show(view: MeshView, settings: Settings) -> None:
    if settings["json"]:
        print(json.dumps(as_dict(view)), flush=True)
    elif settings["dot"]:
        print(as_dot(view), flush=True)
    else:
        if settings["watch"] and sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        print(as_tree(view), flush=True)


def as_dict(view: MeshView) -> dict[str, Any]:
    return {
        "stream": view.stream,
        "whole": view.is_whole,
        "roots": len(view.roots()),
        "silent_roots": len(view.silent_roots),
        "lacking": len(view.lacking),
        "peers": [_peer_dict(peer) for peer in _ordered(view)],
    }


def _peer_dict(peer: PeerView) -> dict[str, Any]:
    from dht import id_text

    return {
        "peer": id_text(peer.peer_id),
        "address": _address(peer),
        "role": peer.role,
        "level": peer.level,
        "hops": peer.hops,
        "parents_held": peer.parents_held,
        "parents_wanted": 0 if peer.role == "root" else peer.parents_wanted,
        "children_held": peer.children_held,
        "capacity": peer.capacity,
        "load": _load(peer),
        "query": peer.query,
        "resilience": peer.resilience if peer.role != "root" else None,
        "rooted": peer.rooted,
        "age_s": round(peer.age, 1) if peer.age is not None else None,
        "answered": peer.answered,
        "parents": [id_text(other) for other in peer.parents],
        "children": [id_text(other) for other in peer.children],
    }


def as_dot(view: MeshView) -> str:
    lines = [f'digraph "{view.stream}" {{', "  rankdir=TB;"]
    shapes = {"root": "doubleoctagon", "router": "box"}
    for peer in _ordered(view):
        colour = ' color="red"' if peer.lacks_parents else ' color="grey"' if not peer.answered else ""
        lines.append(
            f'  "{_name(peer.peer_id)}" [label="{_address(peer)}\\nlevel {_shown(peer.level)}" '
            f'shape="{shapes.get(peer.role or "", "ellipse")}"{colour}];'
        )
    edges = {(parent, peer.peer_id) for peer in view.peers.values() for parent in peer.parents}
    lines += [f'  "{_name(parent)}" -> "{_name(child)}";' for parent, child in sorted(edges)]
    return "\n".join([*lines, "}"])


def as_tree(view: MeshView) -> str:
    """Each peer once, below its lowest parent, with the others named."""
    below: dict[bytes | None, list[PeerView]] = {}
    for peer in _ordered(view):
        known = [view.peers[parent] for parent in peer.parents if parent in view.peers]
        nearest = min(known, key=lambda parent: (parent.level or 0, parent.peer_id), default=None)
        below.setdefault(nearest.peer_id if nearest is not None and peer.role != "root" else None, []).append(peer)
    lacking = len(view.lacking)
    roots, dead = len(view.roots()), len(view.silent_roots)
    silent = sum(not peer.answered for peer in view.peers.values())
    lines = [
        f"{view.stream}: {_count(len(view.peers), 'peer')}, {_count(roots, 'root')}"
        + (f" of which {dead} {'does' if dead == 1 else 'do'} not answer, " if dead else ", ")
        + (f"{lacking} with fewer parents than wanted" if lacking else "every peer has the parents it wants")
        + (f", {silent} not answering" if silent else "")
    ]
    placed: set[bytes] = set()

    def draw(peer: PeerView, indent: str, is_last: bool) -> None:
        if peer.peer_id in placed:
            return
        placed.add(peer.peer_id)
        lines.append(f"{indent}{'└─' if is_last else '├─'} {_line(peer)}")
        children = below.get(peer.peer_id, [])
        for place, child in enumerate(children, 1):
            draw(child, indent + ("   " if is_last else "│  "), place == len(children))

    tops = below.get(None, [])
    for place, peer in enumerate(tops, 1):
        draw(peer, "", place == len(tops))
    return "\n".join(lines)


def _line(peer: PeerView) -> str:
    words = [peer.role or "?", _address(peer), _name(peer.peer_id), f"level {_shown(peer.level)}"]
    if peer.role != "root":
        held = f"parents {_shown(peer.parents_held)}/{_shown(peer.parents_wanted)}"
        words.append(held + ("!" if peer.lacks_parents else ""))
        if len(peer.parents) > 1:
            words.append("of " + ", ".join(_name(parent) for parent in peer.parents))
    if peer.capacity:
        words.append(f"children {_shown(peer.children_held)}/{peer.capacity}")
    if peer.query:
        words.append(f"query {_printable(peer.query)}")
    if peer.age is not None:
        words.append(f"{peer.age:.0f} s old")
    if not peer.answered:
        words.append("(does not answer)")
    return "  ".join(words)


def _printable(text: str) -> str:
    """What a stranger wrote, for a terminal: no control characters, and not without end."""
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:MAX_SHOWN])
    return shown + ("..." if len(text) > MAX_SHOWN else "")


def _ordered(view: MeshView) -> list[PeerView]:
    return sorted(
        view.peers.values(), key=lambda peer: (peer.level if peer.level is not None else 1 << 40, peer.peer_id)
    )


def _load(peer: PeerView) -> float | None:
    if not peer.capacity or peer.children_held is None:
        return None
    return round(peer.children_held / peer.capacity, 3)


def _address(peer: PeerView) -> str:
    return endpoint_text(peer.address)


def _name(peer_id: bytes) -> str:
    from dht import id_text

    return id_text(peer_id)[:8]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(value: int | None) -> str:
    return "?" if value is None else str(value)
