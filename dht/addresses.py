"""Addresses as data: one canonical form, a compact encoding, and which of them count as one source."""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dht.record import Address

IPV4_CONTACT_BYTES, IPV6_CONTACT_BYTES = 6, 18
_PORT = struct.Struct(">H")


@lru_cache(maxsize=8192)
def canonical_host(host: str) -> str:
    """One spelling a host: IPv4 mapped into IPv6 is IPv4, no scope, lower case. ValueError when it is no IP address."""
    ip = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip)


def canonical(address: Any) -> Address:
    """What a socket says of a sender, IPv6's four items included, as (host, port)."""
    return canonical_host(address[0]), int(address[1])


def is_ip_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=8192)
def _host_group(host: str) -> str | None:
    ip = ipaddress.ip_address(host)
    if ip.is_loopback:
        return None
    if ip.version == 6:
        # A home gets a whole /64: its 2^64 addresses are one source.
        return str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))
    return host


def source_group(address: Address) -> str:
    """Addresses that one party can have for nothing are one source; on loopback every port is its own."""
    return _host_group(address[0]) or f"{address[0]}:{address[1]}"


@lru_cache(maxsize=8192)
def _is_private(host: str) -> bool:
    return ipaddress.ip_address(host).is_private


def neighbour_group(address: Address) -> str:
    """The same for places in tables and lookups, where a private address counts by port too.

    A whole mesh may run on one machine of a LAN; an attacker on that LAN can do worse than crowd its DHT.
    """
    if _is_private(address[0]):
        return f"{address[0]}:{address[1]}"
    return source_group(address)


@lru_cache(maxsize=8192)
def is_usable_host(host: str) -> bool:
    """Whether a datagram may be sent there at a stranger's word."""
    ip = ipaddress.ip_address(host)
    return not (ip.is_multicast or ip.is_unspecified or (ip.version == 4 and int(ip) == 0xFFFFFFFF))


@lru_cache(maxsize=8192)
def _packed_host(host: str) -> bytes:
    return ipaddress.ip_address(host).packed


def encode_address(address: Address) -> bytes:
    return _packed_host(address[0]) + _PORT.pack(address[1])


@lru_cache(maxsize=8192)
def _unpacked_host(packed: bytes) -> str:
    return canonical_host(str(ipaddress.ip_address(packed)))


def decode_address_untrusted(data: bytes) -> Address:
    """6 or 18 bytes; ValueError for anything else, and for addresses that no one should send to."""
    if len(data) not in (IPV4_CONTACT_BYTES, IPV6_CONTACT_BYTES):
        raise ValueError(f"address has {len(data)} bytes")
    host = _unpacked_host(data[:-2])
    (port,) = _PORT.unpack(data[-2:])
    if not port or not is_usable_host(host):
        raise ValueError("unusable address")
    return host, port


def parse_endpoint(text: str, *, default_host: str | None = None) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT`, with a `default_host` also `:PORT`. ValueError says what was expected.

    Everybody who reads an address from a person uses this, and `endpoint_text` to show one.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ipv6(host):
            raise ValueError(f"{text!r}: brackets are for IPv6 addresses, as in [::1]:4700")
    elif ":" in host or "[" in host or "]" in host:
        raise ValueError(f"{text!r}: put an IPv6 address in brackets, as in [::1]:4700")
    if not host and default_host is not None:
        host = default_host
    elif not host:
        raise ValueError(f"expected HOST:PORT, got {text!r}")
    if not colon or not (port.isascii() and port.isdecimal()) or len(port) > 5 or int(port) > 0xFFFF:
        raise ValueError(f"expected HOST:PORT, got {text!r}")
    return host, int(port)


def endpoint_text(address: Any) -> str:
    """What `parse_endpoint` reads: HOST:PORT, with brackets around an IPv6 host. IPv6's further items are left out."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
