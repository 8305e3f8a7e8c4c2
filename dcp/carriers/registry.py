"""Transports by their names: the built-in one, and those that others register in the group `skymesh.transports`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dcp.links.address import UDP

if TYPE_CHECKING:
    from dcp.carriers.transport import Transport

GROUP = "skymesh.transports"
AUTO = "auto"


def carriers_named(text: str) -> tuple[str, ...]:
    """`auto`, or names separated by commas, the one to try first at the beginning. ValueError for unknown names."""
    names = (UDP, "tcp") if text == AUTO else tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in (UDP, "tcp") and name not in known():
            choices = ", ".join([AUTO, UDP, *sorted(known())])
            raise ValueError(f"unknown transport {name!r}: expected {choices}, or several separated by commas")
    if len(set(names)) != len(names):
        raise ValueError(f"a transport may be named once, got {text!r}")
    return names


def known() -> set[str]:
    """The carriers beside UDP that are installed."""
    from importlib import metadata

    return {"tcp"} | {entry.name for entry in metadata.entry_points(group=GROUP)}


def load(name: str) -> Transport:
    """ValueError when there is no such transport, or it can't be loaded."""
    if name == "tcp":
        from dcp.carriers.tcp import Tcp

        return Tcp()
    from importlib import metadata

    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            transport: Transport = entry.load()()
        except ImportError as error:
            raise ValueError(f"transport {name!r} can't be loaded: {error}") from None
        return transport
    raise ValueError(f"unknown transport {name!r}")
