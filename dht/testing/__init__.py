"""A network and a clock to test against: asyncio in virtual time, exactly repeatable from a seed."""

from dht.testing.swarm import SimulatedNetwork, SimulatedTransport, Swarm, VirtualLoop, run_virtual

__all__ = ["SimulatedNetwork", "SimulatedTransport", "Swarm", "VirtualLoop", "run_virtual"]
