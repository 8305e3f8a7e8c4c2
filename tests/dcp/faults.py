"""What goes wrong in one run of a campaign, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    loss: float
    duplicate: float
    reorder: float
    corrupt: float
    big_delay: bool
    die: bool
    freeze: bool
    restart: bool
    topology: bool
    queries: bool
    feed_holes: bool
    idle: bool
    client_restart: bool

    @classmethod
    def random(cls, rng: random.Random) -> Faults:
        return cls(
            loss=rng.choice([0, 0.02, 0.1, 0.25, 0.5]),
            duplicate=rng.choice([0, 0.05, 0.2]),
            reorder=rng.choice([0, 0.2, 0.5]),
            corrupt=rng.choice([0, 0, 0.02]),
            big_delay=rng.random() < 0.5,
            die=rng.random() < 0.4,
            freeze=rng.random() < 0.5,
            restart=rng.random() < 0.5,
            topology=rng.random() < 0.5,
            queries=rng.random() < 0.7,
            feed_holes=rng.random() < 0.3,
            idle=rng.random() < 0.4,
            client_restart=rng.random() < 0.3,
        )
