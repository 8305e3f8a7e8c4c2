"""Networks that misbehave on purpose, shipped for programs that build on dcp.

`VirtualClock` makes calls in virtual time. `Network` is one that carries machines, exactly repeatable from a seed: no
socket, no clock, no event loop.
`Truth` and `StreamCheck` compare what a client is handed with what the feed had.
`FaultySocket` (in `dcp.testing.faulty`) is a real socket with bad paths; `LossyProxy` (in `dcp.testing.proxy`) stands
between real sockets of others. All take `Conditions`.
"""

from dcp.testing.clock import VirtualClock
from dcp.testing.conditions import Conditions
from dcp.testing.network import Machine, Network
from dcp.testing.truth import LateStreamCheck, StreamBroken, StreamCheck, Truth

__all__ = [
    "Conditions",
    "LateStreamCheck",
    "Machine",
    "Network",
    "StreamBroken",
    "StreamCheck",
    "Truth",
    "VirtualClock",
]
