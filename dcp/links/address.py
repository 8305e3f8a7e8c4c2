"""Where a datagram comes from and goes to: a UDP address, or a connection that carries datagrams instead of UDP."""

from __future__ import annotations

# (host, port), or (host, port, flow, scope) for IPv6: whatever the socket gives. Only compared and handed back.
# (host, port, carrier): the same peer over a connection, by the carrier's name; see `dcp.carriers`.
SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[str, int, str]

UDP = "udp"
# What a connection that others opened to us adds to its carrier's name. Its port says nothing about where its peer can
# be reached, and must not be mistaken for a peer that we dialled.
_ACCEPTED = " in"


# What a multicast group's name begins with, after which comes a member of it: the way to that is the way to the group.
_GROUP = "group "


def is_loopback(address: SocketAddress) -> bool:
    host = address[0]
    return host.startswith(("127.", "::ffff:127.")) or host in ("::1", "localhost")


def over(carrier: str, address: SocketAddress) -> SocketAddress:
    """The same peer, to be reached over this carrier."""
    return address if carrier == UDP else (address[0], address[1], carrier)


def accepted_over(carrier: str, address: SocketAddress) -> SocketAddress:
    """A peer that opened a connection to us."""
    return address[0], address[1], carrier + _ACCEPTED


def carrier_of(address: SocketAddress) -> str:
    return address[2].removesuffix(_ACCEPTED) if len(address) == 3 else UDP


def to_group(host: str, port: int, near: str) -> SocketAddress:
    """A multicast group, on the network over which the peer `near` is reached."""
    return host, port, _GROUP + near


def is_group(address: SocketAddress) -> bool:
    return len(address) == 3 and address[2].startswith(_GROUP)


def near_of(address: SocketAddress) -> str:
    """The peer over whose network a group is reached."""
    return address[2].removeprefix(_GROUP) if len(address) == 3 else ""


def is_connection(address: SocketAddress) -> bool:
    return len(address) == 3


def is_accepted(address: SocketAddress) -> bool:
    """A connection that its peer opened: it can be answered, and never dialled."""
    return len(address) == 3 and address[2].endswith(_ACCEPTED)


def is_same(ours: SocketAddress, theirs: SocketAddress) -> bool:
    """Whether both are one place. IPv6's flow and scope say nothing about that; the carrier does."""
    if ours[:2] != theirs[:2] or is_connection(ours) != is_connection(theirs):
        return False
    return not is_connection(ours) or ours == theirs
