"""What a simulation raises when a promise is broken: the seed, the instant, and the story that led there."""

from __future__ import annotations

from collections.abc import Iterable


class MeshViolation(AssertionError):
    """A promise of the mesh did not hold. The message is enough to run it again and to read what happened."""

    def __init__(self, what: str, *, seed: int, at: float, trace: Iterable[str]) -> None:
        lines = list(trace)
        super().__init__(
            f"{what} (seed {seed}, at {at:.3f} s)\n"
            + "".join(f"  {line}\n" for line in lines)
            + f"run it again with seed {seed}"
        )
        self.what = what
        self.seed = seed
        self.at = at
