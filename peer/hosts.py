"""Which addresses belong to one host: what a limit per host counts by.

An IPv6 host is given a whole /64 and can pick any address in it, so the prefix is the host. IPv4 addresses as a
dual-stack socket shows them (`::ffff:192.0.2.1`) count as IPv4.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(maxsize=4_096)
def host_key(host: str) -> str:
    """Equal for addresses that one host can send from."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host  # a name: only simulations and tests use them
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> 64 << 64))
    return str(address)
