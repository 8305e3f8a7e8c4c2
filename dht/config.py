"""Every limit and time of the package, by name, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """What one node keeps for others. A policy stands beside each bound; hitting it is counted by `Refusal`."""

    max_records_per_key: int = 64  # full: a crowded source gives way, else KEY_FULL; publishers go deeper
    max_per_source_per_key: int = 16  # one address (IPv6: one /64) under one key, handed on or not: SOURCE_QUOTA
    # One source in the whole store, what it hands on for others included: HOST_QUOTA. A host with 50 peers of a stream
    # needs 100 (candidate and root record), and twice that while levels change and withdrawn ones have not expired.
    max_per_source: int = 512
    max_handed_per_key: int = 32  # records handed on by other nodes; the first to give way
    max_keys_per_publisher: int = 16  # roots, candidates, and old level buckets that have not expired: PUBLISHER_QUOTA
    max_records: int = 8192  # in all, at most 4 MiB (512 bytes each): the largest source gives way, else STORE_FULL


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a node behaves. Times in seconds."""

    k: int = 16  # replicas of a key and size of a bucket
    alpha: int = 4  # requests in flight per lookup, not counting late ones
    max_lookup_queries: int = 96  # whatever liars answer, a lookup ends
    max_contacts_per_reply: int = 8
    max_per_source_in_lookup: int = 3  # sybils of one address near a key can't fill a shortlist
    max_per_source_in_table: int = 24
    max_per_source_in_bucket: int = 3

    max_datagram_bytes: int = 1400
    max_reply_ratio: int = 3  # an answer is at most this much larger than its request: no amplifier for spoofed sources
    max_outstanding: int = 1024

    request_rate: float = 200.0  # requests per second allowed from one source
    request_burst: float = 400.0
    max_sources: int = 4096  # rate-limited sources remembered; beyond that the longest silent is forgotten

    initial_timeout: float = 0.5  # nothing is known of the network yet
    min_timeout: float = 0.06  # below that a busy peer looks dead; above, each dead contact costs a lookup that much
    max_timeout: float = 1.5
    recheck_interval: float = 120.0  # a stranger that did not get into the table is not pinged again before that
    max_misses: int = 3  # a miss is a request and its retry unanswered
    token_lifetime: float = 300.0

    refresh_interval: float = 120.0  # of the own neighbourhood
    bucket_refresh_interval: float = 300.0  # of any bucket that no lookup went through for that long
    probe_interval: float = 20.0  # the contact heard least recently, and one that was given up (heals partitions)
    rejoin_min_delay: float = 1.0
    rejoin_max_delay: float = 30.0
    handoff_interval: float = 90.0  # records not refreshed for this long are stored again on the nodes nearest to them
    max_handoffs: int = 64  # records a round
    max_given_up: int = 128
    placement_lifetime: float = 45.0  # how long a publisher stores to the same replicas without a new lookup

    record_lifetime: float = 180.0  # a crashed peer is in the directory for that long at most
    republish_interval: float = 60.0  # a third of it: two may be lost
    save_interval: float = 120.0
    beacon_interval: float = 30.0


DEFAULT_CONFIG = NodeConfig()
DEFAULT_LIMITS = StoreLimits()
