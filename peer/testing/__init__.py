"""Shipped test tools: whole meshes of machines in one process, in virtual time, exactly repeatable from a seed."""

from __future__ import annotations

from peer.testing.directory import SimDirectory
from peer.testing.meshpeer import MeshPeer
from peer.testing.meshsim import MeshSimulation
from peer.testing.network import NetworkModel, SimNetwork
from peer.testing.violations import MeshViolation

__all__ = ["MeshPeer", "MeshSimulation", "MeshViolation", "NetworkModel", "SimDirectory", "SimNetwork"]
