"""Kernel TCP over a bad network that this process carries: network namespaces, joined by TUN devices.

A namespace here has no name: it lives as long as something holds it open, so it is gone with this process, however that
ends. What one TUN device sends is read, meets the same `Conditions` that the proxy uses for datagrams, and is written
to the other. It takes the right to make namespaces and /dev/net/tun, which is to say root on Linux.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio

from dcp.testing.conditions import Conditions, Path

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
SIOCSIFADDR = 0x8916
SIOCSIFNETMASK = 0x891C
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
MTU = 1_500
# `Path` counts the headers of a UDP datagram on top of what it is given; a packet from a TUN device has its own.
HEADER_BYTES = 28


class Unavailable(Exception):
    """This machine does not let us make namespaces or TUN devices."""


class Namespace:
    """A network namespace of our own. Only the calling thread enters it, and only inside `with entered()`."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            if self._libc.unshare(CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "unshare")
            self._fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            self._enter(home)
        except OSError as error:
            raise Unavailable(f"network namespaces are not available: {error}") from None
        finally:
            os.close(home)

    @contextmanager
    def entered(self) -> Iterator[None]:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            self._enter(self._fd)
            yield
        finally:
            self._enter(home)
            os.close(home)

    def _enter(self, fd: int) -> None:
        if self._libc.setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def tcp_socket(self) -> trio.socket.SocketType:
        """A socket stays in the namespace in which it was created."""
        with self.entered():
            sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def add_tun(self, name: str, address: str) -> int:
        """A TUN device with this address in a network of 256, as a file descriptor."""
        try:
            with self.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                label = name.encode()
                fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", label, IFF_TUN | IFF_NO_PI))
                for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
                    where = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
                    fcntl.ioctl(control, request, struct.pack("16s16s8x", label, where))
                answer = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH22x", label, 0))
                (flags,) = struct.unpack_from("=H", answer, 16)
                fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", label, flags | IFF_UP))
        except OSError as error:
            raise Unavailable(f"no TUN device here: {error}") from None
        return fd

    def close(self) -> None:
        os.close(self._fd)


class Cable:
    """Carries packets between two TUN devices, each direction under the same conditions with its own dice."""

    def __init__(self, one: int, two: int, conditions: Conditions, seed: int) -> None:
        rng = random.Random(seed)
        self._ends = {one: two, two: one}
        self._paths = {end: Path(conditions, random.Random(rng.getrandbits(64))) for end in (one, two)}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._number = 0
        self._timer = trio.CancelScope()

    def set_conditions(self, conditions: Conditions) -> None:
        for path in self._paths.values():
            path.conditions = conditions

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for end in self._ends:
                nursery.start_soon(self._read, end)
            while True:
                deadline = self._waiting[0][0] if self._waiting else float("inf")
                with trio.CancelScope(deadline=deadline) as self._timer:
                    await trio.sleep_forever()
                while self._waiting and self._waiting[0][0] <= trio.current_time():
                    _, _, to, packet = heapq.heappop(self._waiting)
                    with suppress(BlockingIOError):  # a full device drops it, as a full queue would
                        os.write(to, packet)

    async def _read(self, end: int) -> None:
        while True:
            await trio.lowlevel.wait_readable(end)
            try:
                packet = os.read(end, 65_535)
            except BlockingIOError:
                continue
            if packet[0] >> 4 != 4:
                continue  # IPv6 looking for neighbours: no part of this
            head, rest = packet[:HEADER_BYTES], packet[HEADER_BYTES:]
            for when, carried in self._paths[end].carry(rest, trio.current_time()):
                self._number += 1
                heapq.heappush(self._waiting, (when, self._number, self._ends[end], head + carried))
            if self._waiting:
                self._timer.deadline = self._waiting[0][0]

    def close(self) -> None:
        for end in self._ends:
            os.close(end)
