"""The gateway on a TCP port: hypercorn speaks HTTP/1.1, HTTP/2, WebSocket and TLS; this file chooses its limits."""

from __future__ import annotations

import logging
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from peer.errors import PeerError

if TYPE_CHECKING:
    from peer.gateway.app import Gateway
    from peer.mesh.hostport import HostPort

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 16 << 10
MAX_MESSAGE_BYTES = 64 << 10
PING_SECONDS = 20.0
GOODBYE_SECONDS = 1.0


def bind(address: HostPort) -> socket.socket:
    """A listening socket; OSError. `::` takes IPv4 as well."""
    host, port = address
    if host == "::" and socket.has_dualstack_ipv6():
        return socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=256)


async def serve(
    gateway: Gateway, listening: socket.socket, *, certificate: Path | None = None, key: Path | None = None
) -> None:
    """Until cancelled. PeerError if the certificate and its key can't be used."""
    from hypercorn.config import Config
    from hypercorn.trio import serve as serve_asgi

    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.accesslog = None  # its lines would hold the tokens of the addresses
    config.errorlog = logging.getLogger("peer.gateway.http")
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.h11_max_incomplete_size = MAX_REQUEST_BYTES
    config.websocket_max_message_size = MAX_MESSAGE_BYTES
    config.websocket_ping_interval = PING_SECONDS
    config.graceful_timeout = GOODBYE_SECONDS
    config.ssl_handshake_timeout = 10
    if certificate is not None:
        config.certfile, config.keyfile = str(certificate), str(key or certificate)
        check_certificate(certificate, key)
    await serve_asgi(gateway, config, mode="asgi")  # type: ignore[arg-type]


def check_certificate(certificate: Path, key: Path | None) -> None:
    """PeerError with the file that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except FileNotFoundError as error:
        raise PeerError(f"{error.filename or certificate}: no such file") from None
    except (OSError, ssl.SSLError) as error:
        raise PeerError(f"{certificate} and {key or certificate} are not a certificate and its key: {error}") from None


def client_script() -> bytes:
    """The JavaScript client: in a wheel it lies beside this file, in a checkout in `clients/js`."""
    here = Path(__file__).parent
    shipped = here / "skymesh.js"
    return (shipped if shipped.exists() else here.parents[1] / "clients" / "js" / "skymesh.js").read_bytes()
