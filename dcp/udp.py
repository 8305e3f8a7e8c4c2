"""A UDP socket that moves datagrams in batches: the only file that knows the system calls.

Linux can take many equal-sized datagrams to one address in one call (UDP_SEGMENT, "GSO") and hand over many that came
together (UDP_GRO). Where the kernel lacks either the socket falls back, silently, to one call per datagram.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import sys

import trio

from dcp.links.link import SocketAddress

# From linux/udp.h; the socket module does not name them.
SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
MAX_SEGMENTS = 64
MAX_SEND_BYTES = 65_000
RECEIVE_BYTES = 65_535
# Asked for; the kernel gives what its limit allows. Bursts wait here while Python is busy.
BUFFER_BYTES = 4 << 20

# What a peer that is gone makes our socket say. None of it is about the socket.
NOISE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EPERM}


class UdpSocket:
    """Bound, non-blocking, for one task that reads and any code that sends."""

    def __init__(self, sock: socket.socket, *, segmentation: bool = True) -> None:
        sock.setblocking(False)
        self._raw = sock
        self._gso = segmentation and _supports_gso(self._raw)
        self._gro = segmentation and _enable_gro(self._raw)
        self.send_errors = 0
        """Datagrams that the system would not send: no route, too large, not permitted."""
        self.truncated = 0
        """Datagrams that came and were longer than any that we take."""

    @classmethod
    async def bind(cls, address: tuple[str, int], *, segmentation: bool = True) -> UdpSocket:
        """Bind to a host and port (0: any free one). A name is looked up; IPv6 addresses are fine."""
        info = await trio.socket.getaddrinfo(address[0], address[1], type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, target = info[0]
        # Plain, not trio's: we wait once for the socket, then drain it without a checkpoint per datagram.
        sock = socket.socket(family, kind, protocol)
        try:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            sock.bind(target)
        except OSError:
            sock.close()
            raise
        return cls(sock, segmentation=segmentation)

    @property
    def address(self) -> SocketAddress:
        address: SocketAddress = self._raw.getsockname()
        return address

    def canonical(self, address: SocketAddress) -> SocketAddress:
        """The address as `receive_now` gives it when a datagram comes from there: so the two can be compared.

        Only IP addresses: a name would be looked up, blocking, with every datagram, and would never equal what comes.
        """
        host, port = address[0], address[1]
        if not 0 < port < 65_536:
            raise ValueError(f"port must be in 1..65535, got {port}")
        plain, _, scope = host.partition("%")
        try:
            ip = ipaddress.ip_address(plain)
        except ValueError:
            raise ValueError(f"{host!r} is not an IP address: resolve the name first") from None
        if self._raw.family == socket.AF_INET:
            if ip.version != 4:
                raise ValueError(f"{host!r} can't be reached from an IPv4 socket")
            return str(ip), port
        if ip.version == 4:
            return f"::ffff:{ip}", port, 0, 0
        mapped = ip.ipv4_mapped
        if mapped is not None:
            return f"::ffff:{mapped}", port, 0, 0
        scope_id = address[3] if len(address) > 3 else int(scope) if scope.isdigit() else 0
        if scope and not scope_id:
            scope_id = socket.if_nametoindex(scope)
        # A scope means something for link-local addresses only, and the kernel reports 0 for all others.
        return str(ip), port, 0, scope_id if ip.is_link_local else 0

    def close(self) -> None:
        if self._raw.fileno() >= 0:
            trio.lowlevel.notify_closing(self._raw)
            self._raw.close()

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._raw)

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._raw)

    def receive_now(self, most: int) -> list[tuple[bytes, SocketAddress]]:
        """What lies in the socket now, at most about `most` datagrams; empty when there is nothing."""
        batch: list[tuple[bytes, SocketAddress]] = []
        while len(batch) < most:
            try:
                if not self._gro:
                    batch.append(self._raw.recvfrom(RECEIVE_BYTES))
                    continue
                data, ancillary, flags, address = self._raw.recvmsg(RECEIVE_BYTES, 64)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in NOISE:
                    continue
                raise
            if flags & socket.MSG_TRUNC:
                self.truncated += 1
                continue
            size = _segment_size(ancillary)
            if size and size < len(data):
                batch += [(data[at : at + size], address) for at in range(0, len(data), size)]
            else:
                batch.append((data, address))
        return batch

    def send_now(self, batch: list[tuple[bytes, SocketAddress]]) -> int:
        """Send as many of `batch` as the socket takes now; how many that were. Errors of one target skip that one."""
        index = 0
        raw = self._raw
        while index < len(batch):
            data, address = batch[index]
            run = self._run_length(batch, index) if self._gso else 1
            try:
                if run > 1:
                    parts = [batch[i][0] for i in range(index, index + run)]
                    raw.sendmsg(parts, [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", len(data)))], 0, address)
                else:
                    raw.sendto(data, address)
            except BlockingIOError:
                return index
            except OSError as error:
                if run > 1 and error.errno in (errno.EIO, errno.EINVAL, errno.EMSGSIZE):
                    self._gso = False  # a device in the way can't segment: go on without, for good
                    continue
                if error.errno == errno.ENOBUFS:
                    return index
                self.send_errors += 1
            index += run
        return index

    def _run_length(self, batch: list[tuple[bytes, SocketAddress]], index: int) -> int:
        """How many datagrams from `index` on go to one address with one size; the last may be shorter."""
        data, address = batch[index]
        size = total = len(data)
        run = 1
        while index + run < len(batch) and run < MAX_SEGMENTS:
            following, to = batch[index + run]
            total += len(following)
            if to != address or len(following) > size or total > MAX_SEND_BYTES:
                break
            run += 1
            if len(following) < size:
                break
        return run


def _supports_gso(raw: socket.socket) -> bool:
    try:
        raw.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


def _enable_gro(raw: socket.socket) -> bool:
    try:
        raw.setsockopt(SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


def _segment_size(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == SOL_UDP and kind == UDP_GRO and len(data) >= 2:
            return int.from_bytes(data[:4], sys.byteorder)
    return None
