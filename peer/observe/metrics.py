"""Prometheus metrics of a peer: every family with its kind and help in one table, and the page made from it.

Names, and what an alarm on each means, are in docs/operations. Labels stay few: parents are at most 16, children are
summed up, reasons are words of the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple, Protocol

from dcp.guard import faults
from peer.node import Peer
from peer.observe.statistics import Internals, Statistics
from peer.trust.audits import ANSWERS
from peer.version import version

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
    "upstream_queries": Family("gauge", "Queries of a dynamic router: asked for, covered by these, widened to these"),
    "cut_off_total": Family("counter", "Packets passed to a child unmatched: its query would have taken too long"),
    "child_cut_off_total": Family("counter", "The same for each child that has such a query"),
    "feed_packets_total": Family("counter", "Packets that a root's feed brought and the root published"),
    "feed_holes_total": Family("counter", "ANs of a root's feed that could not be published: each becomes a gap"),
    "feed_errors_total": Family("counter", "What a root's feed brought that became no packet, by reason"),
    "feed_silence_seconds": Family("gauge", "Time since a root's feed last brought a packet, or since the start"),
    "feed_ended": Family("gauge", "1 when a root's feed has ended, and only history is served"),
    "dht_lookups_total": Family("counter", "Questions to the DHT for roots and candidates, by how they ended"),
    "dht_lookup_seconds_total": Family("counter", "Time that these questions took"),
    "dht_contacts": Family("gauge", "DHT nodes known"),
    "dht_records": Family("gauge", "Records of others held for the DHT"),
    "dht_requests_total": Family("counter", "Datagrams and requests of the DHT, by what became of them"),
    "dht_refused_total": Family("counter", "Records that this node would not store"),
    "omitted_total": Family("counter", "Packets that came late: a parent had said that they were not there"),
    "forged_total": Family("counter", "Copies of packets that no key of the stream has signed"),
    "disputed_total": Family("counter", "Times that a parent's word about the stream was contradicted"),
    "starved_total": Family("counter", "Times that parents reported packets and none brought any"),
    "audits_total": Family("counter", "Random audits of a signed stream at other peers, by how they ended"),
    "audit_visits_total": Family("counter", "Audits of others that were let in here, and those that were not"),
    "uncovered_total": Family("counter", "Packets that audits found and that all parents had left out"),
    "parent_disputed_total": Family("counter", "The disputes of each present parent that has any"),
    "parent_carrier": Family("gauge", "1, with what carries the link to each parent as a label"),
    "multicast_events_total": Family("counter", "What became of multicast groups here and at the parents, by name"),
    "connections": Family("gauge", "Connections that carry datagrams instead of UDP, by carrier and direction"),
    "connections_opened_total": Family("counter", "Connections accepted (in) and dialled (out)"),
    "connections_refused_total": Family("counter", "Connections not accepted, cut for newcomers or not opened"),
    "connections_ended_total": Family("counter", "Connections that ended, by why"),
    "rebuilt_total": Family("counter", "Packets that all parents lost and that were computed from repairs"),
    "expired_total": Family("counter", "Gaps that were declared because a deadline was over"),
    "loss_ratio": Family("gauge", "Share of packets that no parent brings by itself"),
    "protection_info": Family("gauge", "1, with what parents are asked to send unasked as a label"),
    "protection_changes_total": Family("counter", "Times that this protection was changed"),
    "parent_protection": Family("gauge", "1 for the parent that sends repairs, with their kind as a label"),
    "protection_bytes_total": Family("counter", "Bytes of repairs sent unasked to present children"),
    "latency_seconds": Family("gauge", "Mean from sending to handing over, where roots stamp packets"),
    "relate_seconds": Family("gauge", "ReLate: mean latency divided by the share of packets received"),
    "relate2_seconds": Family("gauge", "ReLate2: mean latency times (percent lost + 1)"),
    "cpu_seconds_total": Family("counter", "Processor time of this process"),
    "memory_bytes": Family("gauge", "Resident memory of this process"),
}

Sample = tuple[str, Mapping[str, str], float]


class Feed(Protocol):
    """What a root's feed counts (`peer.feeds.serve.RootFeed`)."""

    @property
    def published(self) -> int: ...
    @property
    def holes(self) -> int: ...
    @property
    def errors(self) -> Mapping[str, int]: ...
    @property
    def has_ended(self) -> bool: ...
    def silent_for(self) -> float: ...


def render(peer: Peer, feed: Feed | None = None) -> str:
    """The text exposition format, version 0.0.4."""
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    stream = {"stream": peer.options.stream}
    for name, labels, value in chain(samples(peer), _feed(feed) if feed is not None else ()):
        found[name].append(f"{PREFIX}{name}{_labels(stream | dict(labels))} {_number(value)}")
    lines: list[str] = []
    for name, family in FAMILIES.items():
        lines += [f"# HELP {PREFIX}{name} {family.help}", f"# TYPE {PREFIX}{name} {family.kind}", *found[name]]
    return "\n".join(lines) + "\n"


def samples(peer: Peer) -> Iterator[Sample]:
    """Every value there is now, by the name of its family."""
    now, inside = peer.statistics(), peer.internals()
    yield from _own(now, inside, peer.identity.fingerprint, peer.options.name)
    yield from _protection(now, inside)
    yield from _limits(inside)
    yield from _links(now)
    yield from _queues(now, inside)
    yield from _mesh(inside)
    yield from _carriers(inside)
    yield from _directory(peer)
    from dht.faults import counts as dht_faults

    for kind, count in sorted((faults + dht_faults).items()):
        yield "faults_total", {"kind": kind}, count
    yield "cpu_seconds_total", {}, sum(os.times()[:2])
    yield "memory_bytes", {}, _resident_bytes()


def _feed(feed: Feed) -> Iterator[Sample]:
    yield "feed_packets_total", {}, feed.published
    yield "feed_holes_total", {}, feed.holes
    for reason, count in sorted(feed.errors.items()):
        yield "feed_errors_total", {"reason": reason}, count
    yield "feed_silence_seconds", {}, feed.silent_for()
    yield "feed_ended", {}, int(feed.has_ended)


def _own(now: Statistics, inside: Internals, fingerprint: str, name: str) -> Iterator[Sample]:
    sent = inside.sender
    yield "info", {"role": now.role, "peer": fingerprint, "state": now.state, "version": version(), "name": name}, 1
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
    yield "omitted_total", {}, now.omitted
    yield "forged_total", {}, now.forged
    yield "disputed_total", {}, now.disputed
    yield "starved_total", {}, now.starved
    yield "uncovered_total", {}, now.uncovered
    for how in ANSWERS if now.role != "root" else ():
        yield "audits_total", {"result": how}, inside.audits[how]
    for what, count in inside.visits.items():
        yield "audit_visits_total", {"result": what}, count
    if sent is not None:
        yield "nacks_total", {"direction": "received"}, sent.nacks
        yield "sent_packets_total", {}, sent.packets
        yield "sent_bytes_total", {}, sent.bytes
        yield "retransmissions_total", {}, sent.retransmitted
        yield "log_bytes", {}, sent.log_bytes
        yield "log_evicted_total", {}, sent.evicted


def _protection(now: Statistics, inside: Internals) -> Iterator[Sample]:
    if inside.receiver is not None:
        yield "rebuilt_total", {}, now.rebuilt
        yield "expired_total", {}, now.expired
        yield "loss_ratio", {}, now.loss
        yield "protection_info", {"protection": now.protection, "profile": now.profile or ""}, 1
        yield "protection_changes_total", {}, now.protection_changes
        for parent in now.parents:
            if parent.protection is not None:
                yield "parent_protection", {"parent": parent.address, "protection": parent.protection}, 1
    if inside.sender is not None:
        yield "protection_bytes_total", {}, sum(link.protection_bytes for link in inside.sender.links)
    for name, value in (("latency", now.latency), ("relate", now.relate), ("relate2", now.relate2)):
        if value is not None:
            yield f"{name}_seconds", {}, value


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
        yield "parent_carrier", {**label, "carrier": parent.carrier}, 1
        if parent.disputed:
            yield "parent_disputed_total", label, parent.disputed
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
    for kind, number in inside.asked.items():
        yield "upstream_queries", {"kind": kind}, number
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


def _carriers(inside: Internals) -> Iterator[Sample]:
    for event, count in sorted(inside.groups.items()):
        yield "multicast_events_total", {"event": event}, count
    counts = inside.carriers
    if counts is None:
        return
    for (carrier, direction), count in sorted(counts.open.items()):
        yield "connections", {"carrier": carrier, "direction": direction}, count
    yield "connections_opened_total", {"direction": "in"}, counts.accepted
    yield "connections_opened_total", {"direction": "out"}, counts.dialled
    yield "connections_refused_total", {"why": "full"}, counts.refused
    yield "connections_refused_total", {"why": "cut"}, counts.cut
    yield "connections_refused_total", {"why": "unreachable"}, counts.failed
    for why, count in sorted(counts.ended.items()):
        yield "connections_ended_total", {"why": why}, count


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
