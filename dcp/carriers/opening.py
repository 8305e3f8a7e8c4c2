"""A UDP socket and, under the same port number, the carriers beside it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from dcp.carriers.pool import Pool
from dcp.carriers.registry import load
from dcp.links.address import UDP
from dcp.udp import UdpSocket

log = logging.getLogger(__name__)

# A free UDP port may be taken for TCP: how many further ones are tried.
PORT_TRIES = 16


async def open_carriers(
    address: tuple[str, int],
    carriers: tuple[str, ...],
    bind: Callable[[tuple[str, int]], Awaitable[UdpSocket]] = UdpSocket.bind,
) -> tuple[UdpSocket, Pool | None]:
    """Bind; OSError when that fails, ValueError for a carrier that is not there. No pool for UDP alone.

    Addresses name one port, so the carriers listen under the number of the UDP port. When that is taken, any other
    number is tried if none was asked for; else we go without a listener if UDP is one of the carriers: we can still
    dial others.
    """
    transports = {name: load(name) for name in carriers if name != UDP}
    if not transports:
        return await bind(address), None
    for tries_left in reversed(range(PORT_TRIES)):
        udp = await bind(address)
        pool = Pool(transports)
        host, port = udp.address[:2]
        try:
            await pool.listen(host, port)
        except OSError as error:
            pool.close()
            if address[1] == 0 and tries_left:
                udp.close()
                continue
            if UDP not in carriers:
                udp.close()
                raise
            names = ", ".join(transports)
            log.warning(
                "can't listen on port %d for %s (%s): peers that UDP does not reach can't join", port, names, error
            )
        except BaseException:
            udp.close()
            pool.close()
            raise
        return udp, pool
    raise AssertionError("the last try returns or raises")
