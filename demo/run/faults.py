"""The weather that the demo lets one make: a part of what dcp's `Conditions` describe, with words for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dcp.testing import Conditions

MAX_DELAY = 5.0


@dataclass(frozen=True, slots=True)
class Weather:
    """What a path does: the part of `Conditions` that the demo lets one change."""

    loss: float = 0.0
    delay: float = 0.0
    rate: float | None = None
    """Bytes per second."""

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss must be in 0..1, got {self.loss!r}")
        if not 0 <= self.delay <= MAX_DELAY:
            raise ValueError(f"delay must be 0 to {MAX_DELAY:g} seconds, got {self.delay!r}")
        if self.rate is not None and not 100 <= self.rate <= 1e9:
            raise ValueError(f"rate must be 100 to 1e9 bytes/s, got {self.rate!r}")

    @property
    def is_fair(self) -> bool:
        return not self.loss and not self.delay and self.rate is None

    def worse(self, other: Weather) -> Weather:
        """Both at once."""
        rates = [rate for rate in (self.rate, other.rate) if rate is not None]
        return Weather(
            1 - (1 - self.loss) * (1 - other.loss),
            min(MAX_DELAY, self.delay + other.delay),
            min(rates) if rates else None,
        )

    def conditions(self) -> Conditions:
        # A little jitter, so that a delay does not keep datagrams in better order than a network would.
        return Conditions(delay=self.delay, jitter=self.delay / 20, loss=self.loss, rate=self.rate)

    def words(self) -> str:
        if self.is_fair:
            return "no faults"
        words = []
        if self.loss:
            words.append(f"{self.loss:.0%} loss")
        if self.delay:
            words.append(f"{self.delay * 1e3:.0f} ms delay")
        if self.rate is not None:
            words.append(f"{self.rate / 1e3:.0f} kB/s")
        return ", ".join(words) + " each way"

    def as_json(self) -> dict[str, Any]:
        return {"loss": self.loss, "delay": self.delay, "rate": self.rate}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Weather:
        """Raise ValueError for anything that is not a valid setting."""
        unknown = set(fields) - {"loss", "delay", "rate"}
        if unknown:
            raise ValueError(f"only loss, delay and rate can be set, got {', '.join(sorted(map(str, unknown)))}")
        numbers = {name: value for name, value in fields.items() if value is not None}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise ValueError(f"{name} must be a number, got {value!r}")
        return cls(**{name: float(value) for name, value in numbers.items()})


FAIR = Weather()
