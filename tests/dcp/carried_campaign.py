"""The campaign, with carriers drawn at random: UDP blocked between two peers and free again, connections reset."""

from __future__ import annotations

import random
from dataclasses import replace

from dcp.hub import Hub
from tests.dcp.campaign import CONFIG, Campaign, Node

CARRIERS = (("udp", "tcp"), ("udp", "tcp"), ("tcp", "udp"), ("tcp",))


class CarriedNode(Node):
    def new_hub(self, rng: random.Random) -> Hub:
        return Hub(replace(CONFIG, transports=rng.choice(CARRIERS), open_timeout=1.2), rng=rng)


class CarriedCampaign(Campaign):
    node_class = CarriedNode

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.over_connections = 0
        """Links that were seen on a connection."""

    @property
    def repeat(self) -> str:
        return f"CarriedCampaign({self.seed}).run()"

    def _fault(self, storm_ends: float) -> None:
        super()._fault(storm_ends)
        net, rng = self.net, self.rng
        self.over_connections += len(net.tubes.open)
        if rng.random() < 0.02:
            one, other = rng.sample(list(self.nodes.values()), 2)
            net.cut(one.address, other.address)
        if rng.random() < 0.01:
            net.heal()
        if rng.random() < 0.02 and (tubes := net.tubes.open):
            net.tubes.reset(rng.choice(tubes))

    def _calm_down(self) -> None:
        super()._calm_down()
        self.net.heal()
