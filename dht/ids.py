"""The ids of peers and of DHT nodes, as types."""

from __future__ import annotations

from typing import NewType

PeerId = NewType("PeerId", bytes)
NodeId = NewType("NodeId", bytes)

ID_BYTES = 20
