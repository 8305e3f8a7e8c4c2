"""The version of the installed package."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    from importlib import metadata

    try:
        return metadata.version("skymesh")
    except metadata.PackageNotFoundError:
        return "unknown"
