"""Hosts of a test's own on this machine: network namespaces, gone after it. Tests skip where none can be made."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest


def sh(*words: str, data: str | None = None) -> None:
    subprocess.run(words, input=data, text=True, capture_output=True, check=True, timeout=30)


class Hosts:
    """Namespaces by the names that a test gives them; `build` of a subclass connects them."""

    def __init__(self, mark: str, parts: Iterable[str | int]) -> None:
        self.names = {part: f"{mark}{os.getpid()}-{part}" for part in parts}

    def inside(self, part: str | int) -> tuple[str, ...]:
        """What to put before a command that is to run there."""
        return ("ip", "netns", "exec", self.names[part])

    def build(self) -> None:
        for name in self.names.values():
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


AnyHosts = TypeVar("AnyHosts", bound=Hosts)


@contextmanager
def built(hosts: AnyHosts) -> Iterator[AnyHosts]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            pytest.skip(f"this machine has no `{tool}`")
    try:
        try:
            hosts.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this kernel has no namespaces, firewall or bridge: {error.stderr.strip()}")
        yield hosts
    finally:
        hosts.remove()
