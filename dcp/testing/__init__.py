"""Networks that misbehave on purpose, shipped for whoever builds on dcp.

`Network` carries machines in virtual time, exactly repeatable from a seed: no socket, no clock, no event loop.
`LossyProxy` (in `dcp.testing.proxy`) stands between real sockets.
"""

from dcp.testing.conditions import Conditions
from dcp.testing.network import Machine, Network

__all__ = ["Conditions", "Machine", "Network"]
