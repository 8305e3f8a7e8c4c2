"""How often strangers may ask for something expensive: token buckets, one for each host and one for all together.

Only addresses proved by a cookie are charged, so nobody can use up another host's share. The table of hosts
is bounded: when it is full, the hosts that were quiet for longest are forgotten, and those have full buckets anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address

# Hosts that are remembered. More than this many active at once share the bucket for all together.
MAX_HOSTS = 4_096

# Reading a query takes its owner about 10 us per byte: this many bytes cost one token.
QUERY_BYTES_PER_TOKEN = 512


def query_cost(query: bytes) -> float:
    """What reading a query costs, in tokens."""
    return 1 + len(query) / QUERY_BYTES_PER_TOKEN


class Bucket:
    """`rate` per second, and `burst` at once after a pause."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at: float | None = None

    def has(self, now: float) -> bool:
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens >= 1

    def take(self, cost: float = 1) -> None:
        """May leave a debt: something large is allowed once, and then waited for."""
        self._tokens -= cost

    def allows(self, now: float, cost: float = 1) -> bool:
        if not self.has(now):
            return False
        self.take(cost)
        return True


class HostBuckets:
    """At most `rate` per second in all and `rate_per_host` for one host; as many at once after a pause."""

    def __init__(self, rate: float, rate_per_host: float, *, max_hosts: int = MAX_HOSTS) -> None:
        self._all = Bucket(rate, rate)
        self._rate_per_host = rate_per_host
        self._max_hosts = max_hosts
        self._hosts: OrderedDict[bytes, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._hosts)

    def allows(self, now: float, host: str, cost: float = 1) -> bool:
        """One more, from this host? A host that is refused uses up nothing of what others have."""
        key = network_of(host)
        bucket = self._hosts.get(key)
        if bucket is None:
            bucket = self._hosts[key] = Bucket(self._rate_per_host, self._rate_per_host)
            if len(self._hosts) > self._max_hosts:
                self._hosts.popitem(last=False)
        else:
            self._hosts.move_to_end(key)
        if not bucket.has(now) or not self._all.allows(now, cost):
            return False
        bucket.take(cost)
        return True


def network_of(host: str) -> bytes:
    """What one owner has to itself: an IPv4 address, or the 64 bits of an IPv6 network."""
    if ":" not in host:
        return host.encode()
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host.encode()
    mapped = address.ipv4_mapped  # how a socket of both families shows IPv4
    return str(mapped).encode() if mapped is not None else address.packed[:8]
