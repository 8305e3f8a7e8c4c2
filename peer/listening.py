"""Where a peer listens when nobody has said."""

from __future__ import annotations

from collections.abc import Sequence

from peer.mesh.hostport import HostPort


def default_listen(bootstrap: Sequence[HostPort]) -> HostPort:
    """Loopback unless `bootstrap` names a peer elsewhere; IPv6 if it is named so."""
    from dcp.links.link import is_loopback

    families = {":" in host for host, _ in bootstrap}
    if all(is_loopback(endpoint) for endpoint in bootstrap) and len(families) < 2:
        return ("::1" if True in families else "127.0.0.1"), 0
    return ("::" if True in families else "0.0.0.0"), 0  # `::` takes IPv4 as well
