"""An address as people and records write it. A socket's own form, with IPv6's scope, is `dcp`'s `SocketAddress`."""

from __future__ import annotations

HostPort = tuple[str, int]
