"""Prometheus metrics over HTTP: one page, made when it is asked for."""

from __future__ import annotations

from typing import Any

import trio

from peer.node import Peer
from peer.status import describe

MAX_REQUEST_BYTES = 8_192
MAX_SCRAPES = 16
"""Connections at once; further ones are closed at once."""
REQUEST_TIMEOUT = 5.0

# key of `describe` -> (kind, help)
_METRICS = {
    "level": ("gauge", "Level of the peer in the mesh"),
    "parents_wanted": ("gauge", "Parents that the peer wants"),
    "parents_sound": ("gauge", "Parents that are heard and fed from a root"),
    "children": ("gauge", "Children that the peer carries"),
    "position": ("gauge", "AN up to which everything was handed over"),
    "packets": ("counter", "Packets received, or at a root published"),
    "bytes": ("counter", "Payload bytes received"),
    "duplicates": ("counter", "Copies of packets that another parent had brought already"),
    "gaps": ("counter", "Gaps handed to the client"),
    "nacks": ("counter", "Requests for packets that were missing"),
    "recovered": ("counter", "Packets that came only after a request"),
    "waiting": ("gauge", "Packets in order that the client has not taken yet"),
}


def render(peer: Peer) -> str:
    """The exposition format."""
    state = describe(peer)
    label = f'{{stream="{state["stream"]}",role="{state["role"]}"}}'
    lines: list[str] = []
    for key, (kind, text) in _METRICS.items():
        value = state.get(key)
        if value is not None:
            name = f"skymesh_{key}" + ("_total" if kind == "counter" else "")
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{label} {value}"]
    lines += _parents(state)
    hub = peer.core.hub.statistics()
    lines += ["# HELP skymesh_datagrams_total Datagrams", "# TYPE skymesh_datagrams_total counter"]
    lines += [f'skymesh_datagrams_total{{direction="in"}} {hub.datagrams_in}']
    lines += [f'skymesh_datagrams_total{{direction="out"}} {hub.datagrams_out}']
    lines += ["# HELP skymesh_dropped_total Datagrams that changed nothing", "# TYPE skymesh_dropped_total counter"]
    lines += [f'skymesh_dropped_total{{reason="{reason}"}} {count}' for reason, count in sorted(hub.dropped.items())]
    if peer.directory is not None:
        directory = peer.directory.stats()
        lines += ["# HELP skymesh_dht_contacts DHT nodes known", "# TYPE skymesh_dht_contacts gauge"]
        lines += [f"skymesh_dht_contacts {directory.contacts}"]
        lines += ["# HELP skymesh_dht_refused_total Records refused", "# TYPE skymesh_dht_refused_total counter"]
        lines += [f'skymesh_dht_refused_total{{reason="{why}"}} {n}' for why, n in sorted(directory.refused.items())]
    return "\n".join(lines) + "\n"


def _parents(state: dict[str, Any]) -> list[str]:
    lines = ["# HELP skymesh_parent_round_trip_seconds Round trip to a parent"]
    lines += ["# TYPE skymesh_parent_round_trip_seconds gauge"]
    for parent in state["parents"]:
        if parent["round_trip_ms"] is not None:
            seconds = parent["round_trip_ms"] / 1_000
            lines.append(f'skymesh_parent_round_trip_seconds{{parent="{parent["address"]}"}} {seconds:.6f}')
    lines += ["# HELP skymesh_parent_copies_total Packets that a parent brought, first or not"]
    lines += ["# TYPE skymesh_parent_copies_total counter"]
    lines += [f'skymesh_parent_copies_total{{parent="{p["address"]}"}} {p["copies"]}' for p in state["parents"]]
    return lines


async def serve_metrics(
    peer: Peer,
    address: tuple[str, int],
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer GET /metrics until cancelled."""
    listeners = await trio.open_tcp_listeners(address[1], host=address[0])
    busy = 0

    async def answer(stream: trio.SocketStream) -> None:
        nonlocal busy
        async with stream:
            if busy >= MAX_SCRAPES:
                return
            busy += 1
            try:
                with trio.move_on_after(REQUEST_TIMEOUT):
                    await _answer(peer, stream)
            except trio.BrokenResourceError:
                pass  # whoever asked has gone
            finally:
                busy -= 1

    host, port = listeners[0].socket.getsockname()[:2]
    task_status.started((host, port))
    await trio.serve_listeners(answer, listeners)


async def _answer(peer: Peer, stream: trio.SocketStream) -> None:
    request = b""
    while b"\r\n\r\n" not in request and b"\n\n" not in request:
        more = await stream.receive_some(4_096)
        request += more
        if not more or len(request) > MAX_REQUEST_BYTES:
            return
    found = request.startswith((b"GET /metrics ", b"GET / "))
    body = render(peer).encode() if found else b"there is only /metrics\n"
    status = "200 OK" if found else "404 Not Found"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    await stream.send_all(head.encode() + body)
