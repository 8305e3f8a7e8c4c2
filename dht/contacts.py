"""Contacts remembered between runs, in JSON: kademlia's pickle is a program that a file's writer runs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dht.addresses import canonical_host, is_usable_host

if TYPE_CHECKING:
    from dht.record import Address

MAX_REMEMBERED = 64
_MAX_FILE_BYTES = 64 * 1024
_FORMAT = "skymesh contacts v1"


def load_contacts(path: Path) -> list[Address]:
    """What was remembered; nothing when the file is missing or damaged, since it only saves time."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MAX_FILE_BYTES))
        if document["format"] != _FORMAT:
            return []
        pairs = [(canonical_host(str(host)), int(port)) for host, port in document["contacts"][:MAX_REMEMBERED]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return [(host, port) for host, port in pairs if 0 < port <= 0xFFFF and is_usable_host(host)]


def save_contacts(path: Path, contacts: Iterable[Address]) -> None:
    """Replace the file in one step; nothing is written when there is nothing to remember. OSError is the caller's."""
    remembered = [list(address) for address in contacts][:MAX_REMEMBERED]
    if not remembered:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps({"format": _FORMAT, "contacts": remembered}) + "\n")
        aside.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
