"""The Diversity Control Protocol: one ordered packet stream from n senders, the first copy of each packet wins.

For programs: `open_endpoint` under trio. To build on the pure machines: `Hub`, which has the five methods
(`receive_datagram`, `handle_timeout`, `datagrams_to_send`, `next_timeout`, `next_event`); drive it with `dcp.driver` on
a socket or with `dcp.testing.Network` in virtual time. Payloads and queries are opaque here.

The specification is docs/dcp.md.
"""

from dcp.bytestreams import receive_bytes, send_bytes
from dcp.config import Config
from dcp.control import Reason
from dcp.endpoint import Endpoint, Publisher, Subscription, open_endpoint
from dcp.errors import BytesLost, DcpError, LinkClosed, MalformedDatagram, PayloadRefused, StreamClosed
from dcp.events import Convicted, Disputed, Gap, Omitted, Packet, QuerySwitched, Started, Starved
from dcp.handshake import Start
from dcp.hub import Hub
from dcp.profile import Profile, profile_of
from dcp.queries import EVERYTHING, PredicatePolicy, QueryPolicy

__all__ = [
    "EVERYTHING",
    "BytesLost",
    "Config",
    "Convicted",
    "DcpError",
    "Disputed",
    "Endpoint",
    "Gap",
    "Hub",
    "LinkClosed",
    "MalformedDatagram",
    "Omitted",
    "Packet",
    "PayloadRefused",
    "PredicatePolicy",
    "Profile",
    "Publisher",
    "QueryPolicy",
    "QuerySwitched",
    "Reason",
    "Start",
    "Started",
    "Starved",
    "StreamClosed",
    "Subscription",
    "open_endpoint",
    "profile_of",
    "receive_bytes",
    "send_bytes",
]
