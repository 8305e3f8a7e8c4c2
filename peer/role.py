"""What a peer is in its mesh."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    ROOT = "root"
    ROUTER = "router"
    LEAF = "leaf"
