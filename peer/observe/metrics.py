"""Prometheus metrics of a peer: every family with its kind and help in one table, and the page made from it.

Names, and what an alarm on each means, are in docs/operations. Labels stay few: parents are at most 16, children are
summed up, reasons are words of the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dcp.guard import faults
from peer.node import Peer
from peer.observe.statistics import Internals, Statistics

PREFIX = "skymesh_"
JOIN_REFUSED = "refused_"


class Family(NamedTuple):
    kind: str
    help: str


# Append only: renaming one breaks somebody's alarms.
FAMILIES: dict[str, Family] = {
    "info": Family("gauge", "1, with what the peer is as labels"),
    "level": Family("gauge", "Level of the peer in the mesh"),
    "parents_wanted": Family("gauge", "Parents that the peer wants"),
    "parents_sound": Family("gauge", "Parents that are heard and fed from a root"),
    "children": Family("gauge", "Children that the peer carries"),
    "capacity": Family("gauge", "Children that the peer may carry"),
    "position": Family("gauge", "AN up to which everything was taken in or declared a gap"),
    "packets_total": Family("counter", "Packets received, or at a root published"),
    "bytes_total": Family("counter", "Payload bytes received, or at a root published"),
    "duplicates_total": Family("counter", "Copies of packets that another parent had brought already"),
    "gaps_total": Family("counter", "Gaps: packets that could not be had from anybody"),
    "nacks_total": Family("counter", "Requests for missing packets, sent to parents and received from children"),
    "recovered_total": Family("counter", "Packets that came only after a request"),
    "unreadable_total": Family("counter", "Packets whose envelope could not be opened"),
    "sent_packets_total": Family("counter", "Packets sent to children, those sent again included"),
    "sent_bytes_total": Family("counter", "Payload bytes sent to children"),
    "retransmissions_total": Family("counter", "Packets sent to a child again"),
    "parent_round_trip_seconds": Family("gauge", "Round trip to a parent"),
    "parent_loss_ratio": Family("gauge", "Share of packets that a parent did not bring by itself: lost or late"),
    "parent_copies_total": Family("counter", "Packets that a parent brought, first or not"),
    "parent_first_copies_total": Family("counter", "Packets of which a parent's copy was the first"),
    "child_round_trip_max_seconds": Family("gauge", "Round trip to the farthest child"),
    "child_lag_max_packets": Family("gauge", "Packets that were not sent yet to the child farthest behind"),
    "queue_depth": Family("gauge", "What waits: ready for the program, buffered for an earlier packet, in the log"),
    "log_bytes": Family("gauge", "Payload bytes kept for children that ask again"),
    "log_evicted_total": Family("counter", "Packets that were evicted from the log"),
    "switched_packets_total": Family("counter", "Packets that were matched against the children's queries"),
    "switch_seconds_total": Family("counter", "Time spent matching"),
    "switch_queries": Family("gauge", "Queries of children in the switch"),
    "joins_refused_total": Family("counter", "Joins of others that this peer refused"),
    "mesh_events_total": Family("counter", "What happened in the mesh around this peer, by name (docs/mesh.md)"),
    "datagrams_total": Family("counter", "DCP datagrams"),
    "datagram_bytes_total": Family("counter", "Bytes of DCP datagrams"),
    "dropped_total": Family("counter", "Datagrams that changed nothing"),
    "limits_reached_total": Family("counter", "Claims and requests of others that were refused for a bound, by which"),
    "faults_total": Family("counter", "Unexpected errors in handling input, dropped with it: each kind is a bug"),
    "cut_off_total": Family("counter", "Packets passed to a child unmatched: its query would have taken too long"),
    "child_cut_off_total": Family("counter", "The same for each child that has such a query"),
    "dht_lookups_total": Family("counter", "Questions to the DHT for roots and candidates, by how they ended"),
    "dht_lookup_seconds_total": Family("counter", "Time that these questions took"),
    "dht_contacts": Family("gauge", "DHT nodes known"),
    "dht_records": Family("gauge", "Records of others held for the DHT"),
    "dht_requests_total": Family("counter", "Datagrams and requests of the DHT, by what became of them"),
    "dht_refused_total": Family("counter", "Records that this node would not store"),
    "cpu_seconds_total": Family("counter", "Processor time of this process"),
    "memory_bytes": Family("gauge", "Resident memory of this process"),
}

Sample = tuple[str, Mapping[str, str], float]


def render(peer: Peer) -> str:
    """The text exposition format, version 0.0.4."""
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    stream = {"stream": peer.options.stream}
    for name, labels, value in samples(peer):
        found[name].append(f"{PREFIX}{name}{_labels(stream | dict(labels))} {_number(value)}")
    lines: list[str] = []
    for name, family in FAMILIES.items():
        lines += [f"# HELP {PREFIX}{name} {family.help}", f"# TYPE {PREFIX}{name} {family.kind}", *found[name]]
    return "\n".join(lines) + "\n"


def samples(peer: Peer) -> Iterator[Sample]:
    """Every value there is now, by the name of its family."""
    now, inside = peer.statistics(), peer.internals()
    yield from _own(now, inside, peer.identity.fingerprint)
    yield from _limits(inside)
    yield from _links(now)
    yield from _queues(now, inside)
    yield from _mesh(inside)
    yield from _directory(peer)
    from dht.faults import counts as dht_faults

    for kind, count in sorted((faults + dht_faults).items()):
        yield "faults_total", {"kind": kind}, count
    yield "cpu_seconds_total", {}, sum(os.times()[:2])
    yield "memory_bytes", {}, _resident_bytes()


def _own(now: Statistics, inside: Internals, fingerprint: str) -> Iterator[Sample]:
    sent = inside.sender
    yield "info", {"role": now.role, "peer": fingerprint, "state": now.state}, 1
    yield "level", {}, now.level
    yield "parents_wanted", {}, now.parents_wanted
    yield "parents_sound", {}, now.parents_sound
    yield "children", {}, len(now.children)
    yield "capacity", {}, inside.capacity
    if now.position is not None:
        yield "position", {}, now.position
    yield "packets_total", {}, now.packets
    yield "bytes_total", {}, now.bytes
    yield "duplicates_total", {}, now.duplicates
    yield "gaps_total", {}, now.gaps
    yield "nacks_total", {"direction": "sent"}, now.nacks
    yield "recovered_total", {}, now.recovered
    yield "unreadable_total", {}, now.unreadable + inside.unreadable
    if sent is not None:
        yield "nacks_total", {"direction": "received"}, sent.nacks
        yield "sent_packets_total", {}, sent.packets
        yield "sent_bytes_total", {}, sent.bytes
        yield "retransmissions_total", {}, sent.retransmitted
        yield "log_bytes", {}, sent.log_bytes
        yield "log_evicted_total", {}, sent.evicted


def _limits(inside: Internals) -> Iterator[Sample]:
    """What others claimed or asked for beyond what one peer may; docs/security.md says what each means."""
    if (got := inside.receiver) is not None:
        for name in ("beyond_reach", "too_wide", "buffer_dropped", "overrun", "unsent", "refused"):
            yield "limits_reached_total", {"limit": name}, getattr(got, name)
    if (sent := inside.sender) is not None:
        for name in ("repairs_refused", "query_changes_refused", "openings_dropped", "unrouted"):
            yield "limits_reached_total", {"limit": name}, getattr(sent, name)


def _links(now: Statistics) -> Iterator[Sample]:
    for parent in now.parents:
        label = {"parent": parent.address}
        if parent.round_trip is not None:
            yield "parent_round_trip_seconds", label, parent.round_trip
        if parent.loss is not None:
            yield "parent_loss_ratio", label, parent.loss
        yield "parent_copies_total", label, parent.copies
        yield "parent_first_copies_total", label, parent.first_copies
    if now.role != "leaf":
        yield "child_round_trip_max_seconds", {}, max((child.round_trip for child in now.children), default=0.0)
        yield "child_lag_max_packets", {}, max((child.lag for child in now.children), default=0)


def _queues(now: Statistics, inside: Internals) -> Iterator[Sample]:
    yield "queue_depth", {"queue": "ready"}, now.waiting
    yield "queue_depth", {"queue": "buffered"}, now.buffered
    if inside.sender is not None:
        yield "queue_depth", {"queue": "log"}, inside.sender.log_packets
    yield "switched_packets_total", {}, inside.routed
    yield "switch_seconds_total", {}, inside.route_seconds
    switch = inside.switch
    yield "switch_queries", {}, switch.queries
    yield "cut_off_total", {}, switch.cut_off
    for child in now.children:
        if child.cut_off:
            yield "child_cut_off_total", {"child": child.address}, child.cut_off
    if switch.failures:
        yield "faults_total", {"kind": "switch"}, switch.failures


def _mesh(inside: Internals) -> Iterator[Sample]:
    for name, count in sorted(inside.mesh.items()):
        if name.startswith(JOIN_REFUSED):
            yield "joins_refused_total", {"reason": name.removeprefix(JOIN_REFUSED)}, count
        else:
            yield "mesh_events_total", {"event": name}, count
    hub = inside.hub
    yield "datagrams_total", {"direction": "in"}, hub.datagrams_in
    yield "datagrams_total", {"direction": "out"}, hub.datagrams_out
    yield "datagram_bytes_total", {"direction": "in"}, hub.bytes_in
    yield "datagram_bytes_total", {"direction": "out"}, hub.bytes_out
    for reason, count in sorted(inside.dropped.items()):
        yield "dropped_total", {"reason": reason}, count


def _directory(peer: Peer) -> Iterator[Sample]:
    for result in sorted({"found", "nothing", "unavailable", *peer.lookups.ended}):
        yield "dht_lookups_total", {"result": result}, peer.lookups.ended[result]
    yield "dht_lookup_seconds_total", {}, peer.lookups.seconds
    if peer.directory is None:
        return
    directory = peer.directory.stats()
    yield "dht_contacts", {}, directory.contacts
    yield "dht_records", {}, directory.records_held
    for outcome, count in sorted(directory.counters.items()):
        yield "dht_requests_total", {"outcome": outcome}, count
    for reason, count in sorted(directory.refused.items()):
        yield "dht_refused_total", {"reason": reason}, count


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _resident_bytes() -> int:
    import resource

    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the most that it ever was
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1_024
