"""Shipped test tools: whole meshes of machines in one process, in virtual time, exactly repeatable from a seed."""

from __future__ import annotations

from peer.testing.directory import SimDirectory
from peer.testing.meshpeer import MeshPeer
from peer.testing.meshsim import LAN, MeshSimulation, hostile
from peer.testing.violations import MeshViolation

__all__ = ["LAN", "MeshPeer", "MeshSimulation", "MeshViolation", "SimDirectory", "hostile"]
