"""The outline of the country: the one that the page draws, read from its file, so that there is only one."""

from __future__ import annotations

import re
from importlib.resources import files

_POINT = re.compile(r"\[(-?[\d.]+),(-?[\d.]+)\]")


def outline() -> list[tuple[float, float]]:
    """Latitudes and longitudes, in degrees, around the contiguous United States."""
    script = files("demo.page").joinpath("static", "outline.js").read_text(encoding="utf-8")
    points = script.partition("OUTLINE = [")[2].partition("];")[0]
    return [(float(latitude), float(longitude)) for longitude, latitude in _POINT.findall(points)]
