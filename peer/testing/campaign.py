"""The standing campaign: small meshes, a hostile network and every fault, from a seed. Used by tests and by hand:

python -c "from peer.testing.campaign import run_campaign; print(run_campaign(187).measures)"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peer.mesh.config import MeshConfig
from peer.testing.meshsim import MeshSimulation, hostile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peer.mesh.levels import LevelRules


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of small mesh; small, because races need neighbours, not crowds."""

    roots: int
    peers: int
    capacity: int
    parents_wanted: int
    every: float
    loss: float


SHAPES = (
    Shape(roots=2, peers=7, capacity=3, parents_wanted=2, every=1.0, loss=0.15),
    Shape(roots=1, peers=12, capacity=3, parents_wanted=1, every=1.0, loss=0.15),
    Shape(roots=2, peers=12, capacity=3, parents_wanted=2, every=0.5, loss=0.15),
    Shape(roots=3, peers=9, capacity=4, parents_wanted=3, every=0.5, loss=0.25),
)
CHAOS = 60.0
CALM = 30.0
"""The bound for coming back to n parents: a record's renewal (15 s), one full back-off (4 s), and as much again for the
joins that the hostile network loses on the way."""


def run_campaign(
    seed: int,
    *,
    rules: Callable[[MeshConfig], LevelRules] | None = None,
    fresh_nonces: bool = True,
    knobs: Mapping[str, Any] | None = None,
    **options: Any,
) -> MeshSimulation:
    """A minute of chaos, then calm: raises MeshViolation if a promise breaks, or if somebody is not back in time.

    `knobs` are fields of the configuration, `options` arguments of the simulation.
    """
    shape = SHAPES[seed % len(SHAPES)]
    config = MeshConfig(capacity=shape.capacity, parents_wanted=shape.parents_wanted, **(knobs or {}))
    simulation = MeshSimulation(
        seed,
        config=config,
        network=hostile(shape.loss),
        rules=rules,
        fresh_nonces=fresh_nonces,
        **options,
    )
    simulation.populate(roots=shape.roots, peers=shape.peers, over=3.0, root_capacity=shape.capacity + 1)
    simulation.chaos(start=3.0, until=CHAOS, every=shape.every)
    simulation.run(CHAOS)
    simulation.calm()
    simulation.run(CHAOS + 20.0 + CALM)  # the longest freeze is 20 s
    simulation.check_settled()
    return simulation
