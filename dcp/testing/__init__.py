"""Networks that misbehave on purpose, shipped for programs that build on dcp.

`VirtualClock` makes calls in virtual time. `Network` is one that carries machines, exactly repeatable from a seed: no
socket, no clock, no event loop.
`LossyProxy` (in `dcp.testing.proxy`) stands between real sockets.
"""

from dcp.testing.clock import VirtualClock
from dcp.testing.conditions import Conditions
from dcp.testing.network import Machine, Network

__all__ = ["Conditions", "Machine", "Network", "VirtualClock"]
