"""`status` and `streams`: the mesh as a table, a graph or JSON, and what there is to join."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import trio

from dht.addresses import endpoint_text
from peer.cli.config import Settings
from peer.cli.errors import CliError, ExitCode
from peer.cli.mesh_goal import as_dict as goal_as_dict
from peer.cli.mesh_goal import as_text, goal_of
from peer.cli.mesh_table import as_table, ordered, printable, short_id, shown
from peer.cli.running import note, run
from peer.cli.visiting import choose_owner, find, unknown, visitor
from peer.observe.crawl import Crawler, MeshView, PeerView
from peer.observe.goals import GoalView

MAX_OWNERS_NAMED = 8
MAX_PLACES = 4_096


def status(settings: Settings) -> int:
    async def command() -> int:
        async with visitor(settings) as crawler:
            choose_owner(crawler, settings)
            await find(crawler, settings)
            while True:
                view = await crawler.look(settings["roots_key"])
                if not view.peers and not settings["watch"]:
                    raise CliError(unknown(settings["roots_key"]), ExitCode.STREAM_UNAVAILABLE)
                if settings["tree"] or settings["expect"]:
                    if not await _show_tree(crawler, view, settings) and not settings["watch"]:
                        return ExitCode.NOT_ALL
                else:
                    _show(view, settings, await goal_of(crawler, view) if settings["goal"] else None)
                await _note_others(crawler, view, settings)
                if not settings["watch"]:
                    break
                await trio.sleep(settings["interval"])
        return ExitCode.NOT_ALL if view.lacking or not view.has_root else ExitCode.OK

    return run(settings, command)


def streams(settings: Settings) -> int:
    """What there is to join, by the peers that answer."""

    async def command() -> int:
        async with visitor(settings) as crawler:
            await find(crawler, settings)
            seen = await crawler.streams()
        if settings["json"]:
            print(json.dumps([asdict(stream) for stream in seen]))
        elif seen:
            width = max(len("STREAM"), *(len(stream.stream) for stream in seen))
            print(f"{'STREAM':<{width}}  ROOTS  PEERS  PACKETS/S")
            for stream in seen:
                print(
                    f"{printable(stream.stream):<{width}}  {stream.roots:5}  {stream.peers:5}  "
                    f"{stream.packets_per_second:9.1f}"
                )
        if not seen:
            raise CliError("no peer of any stream answers in this DHT", ExitCode.STREAM_UNAVAILABLE)
        return ExitCode.OK

    return run(settings, command)


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


def _show(view: MeshView, settings: Settings, goals: GoalView | None) -> None:
    if settings["json"]:
        print(
            json.dumps(as_dict(view) | ({"goal": goal_as_dict(view, goals)} if goals is not None else {})), flush=True
        )
    elif settings["dot"]:
        print(as_dot(view), flush=True)
    else:
        text = as_table(view, wide=settings["wide"]) + (f"\n{as_text(view, goals)}" if goals is not None else "")
        if settings["watch"] and sys.stdout.isatty():
            # Over the last look, line by line: clearing the screen first would flicker.
            text = "\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J"
        print(text, flush=True)


async def _show_tree(crawler: Crawler, view: MeshView, settings: Settings) -> bool:
    """Whether everybody is in its place."""
    from peer.cli import tree_view

    assert crawler.directory is not None
    listed = await crawler.directory.places(view.stream, 0, MAX_PLACES)
    ids = {bytes(record.peer_id) for record in listed}
    degree = settings["tree_degree"] or tree_view.degree_of(view, ids)
    found = tree_view.placed(view, ids, degree)
    if settings["json"]:
        print(json.dumps({"stream": view.stream, "degree": degree, "tree": tree_view.as_rows(found)}), flush=True)
    else:
        print(tree_view.as_text(view, found, only_expected=settings["expect"]), flush=True)
    return bool(found) and all(one.is_in_place for one in found)


def as_dict(view: MeshView) -> dict[str, Any]:
    return {
        "stream": view.stream,
        "whole": view.is_whole,
        "roots": len(view.roots()),
        "silent_roots": len(view.silent_roots),
        "lacking": len(view.lacking),
        "peers": [_peer_dict(peer) for peer in ordered(view)],
    }


def _peer_dict(peer: PeerView) -> dict[str, Any]:
    from dht import id_text

    return {
        "peer": id_text(peer.peer_id),
        "name": peer.name,
        "address": endpoint_text(peer.address),
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
        "version": peer.version or None,
        "packets_per_second": round(peer.packets_per_second, 3) if peer.packets_per_second is not None else None,
        "disputes": peer.disputes or None,
        "loss": round(peer.loss, 6) if peer.loss is not None else None,
        "protection": peer.protection or None,
        "parents": [id_text(other) for other in peer.parents],
        "children": [id_text(other) for other in peer.children],
    }


def as_dot(view: MeshView) -> str:
    lines = [f'digraph "{view.stream}" {{', "  rankdir=TB;"]
    shapes = {"root": "doubleoctagon", "router": "box"}
    for peer in ordered(view):
        colour = ' color="red"' if peer.lacks_parents else ' color="grey"' if not peer.answered else ""
        label = "\\n".join(filter(None, (_quoted(peer.name), endpoint_text(peer.address))))
        lines.append(
            f'  "{short_id(peer.peer_id)}" [label="{label}\\nlevel {shown(peer.level)}" '
            f'shape="{shapes.get(peer.role or "", "ellipse")}"{colour}];'
        )
    edges = {(parent, peer.peer_id) for peer in view.peers.values() for parent in peer.parents}
    lines += [f'  "{short_id(parent)}" -> "{short_id(child)}";' for parent, child in sorted(edges)]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    """A stranger's word inside the quotes of a graph."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _load(peer: PeerView) -> float | None:
    if not peer.capacity or peer.children_held is None:
        return None
    return round(peer.children_held / peer.capacity, 3)
