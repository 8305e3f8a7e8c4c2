"""Units and dimensions, so that nobody compares milliseconds with kilobytes.

Inside, everything is in seconds and bytes. A dimension is a pair of exponents, of time and of data: a rate is data per
time, a variance of latencies is time squared.
"""

from __future__ import annotations

from typing import NamedTuple


class Dimension(NamedTuple):
    """Exponents; `is_open` for a product over a whole mesh, whose exponent depends on its size."""

    time: int
    data: int
    is_open: bool = False

    def times(self, other: Dimension) -> Dimension:
        return Dimension(self.time + other.time, self.data + other.data, self.is_open or other.is_open)

    def per(self, other: Dimension) -> Dimension:
        return Dimension(self.time - other.time, self.data - other.data, self.is_open or other.is_open)

    def squared(self) -> Dimension:
        return self.times(self)


NUMBER = Dimension(0, 0)
TIME = Dimension(1, 0)
DATA = Dimension(0, 1)
RATE = Dimension(-1, 1)
OPEN = Dimension(0, 0, True)

UNITS: dict[str, tuple[float, Dimension]] = {
    "us": (1e-6, TIME),
    "ms": (1e-3, TIME),
    "s": (1.0, TIME),
    "min": (60.0, TIME),
    "B": (1.0, DATA),
    "KB": (1e3, DATA),
    "MB": (1e6, DATA),
    "GB": (1e9, DATA),
    "B/s": (1.0, RATE),
    "KB/s": (1e3, RATE),
    "MB/s": (1e6, RATE),
    "bit/s": (0.125, RATE),
    "kbit/s": (125.0, RATE),
    "Mbit/s": (125e3, RATE),
    "Gbit/s": (125e6, RATE),
    "%": (0.01, NUMBER),
}
SQUARED = "^2"


def unit_named(name: str) -> tuple[float, Dimension]:
    """Factor and dimension; a KeyError for one that does not exist."""
    base, squared, rest = name.partition(SQUARED)
    if rest:
        raise KeyError(name)
    factor, dimension = UNITS[base]
    return (factor**2, dimension.squared()) if squared else (factor, dimension)


def units_of(dimension: Dimension) -> tuple[str, ...]:
    """The units in which something of this dimension may be written, by name."""
    plain = tuple(name for name, (_, of) in UNITS.items() if of == dimension and name != "%")
    return plain or tuple(name + SQUARED for name, (_, of) in UNITS.items() if of.squared() == dimension != NUMBER)


def shown(value: float, dimension: Dimension) -> str:
    """A value for people, in a unit that suits its size."""
    names = [(unit_named(name)[0], name) for name in units_of(dimension) if "bit" not in name and name != "min"]
    if not names:
        return f"{value:.4g}"
    factor, name = max((n for n in names if abs(value) >= n[0]), default=min(names))
    return f"{value / factor:.4g} {name}"
