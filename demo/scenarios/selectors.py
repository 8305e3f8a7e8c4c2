"""Who is meant by `a parent of client-1` or `half of the mesh`, at the moment when it is asked."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from demo.run.localmesh import LocalMesh
    from demo.run.member import Member

SELECTORS: Final = (
    "a name such as router-1; a root, a router, a client; the roots, the routers, the clients, the dead; "
    "half of the routers, half of the clients, half of the mesh; a parent of NAME, the parents of NAME; the same"
)
_NAME: Final = r"(?:root|router|client|guest)-\d+"
_PATTERN: Final = re.compile(
    rf"{_NAME}|the same|the dead|an? (?:root|router|client)|the (?:roots|routers|clients)"
    rf"|half of the (?:routers|clients|mesh)|(?:a parent|the parents) of {_NAME}"
)
_ROLES: Final = {"root": "root", "router": "router", "client": "leaf"}


def is_selector(text: str) -> bool:
    return _PATTERN.fullmatch(text) is not None


def names_in(selectors: Iterable[str]) -> list[str]:
    """The peers that are called by name and must have been there from the start: not those that a storm brings."""
    return [name for text in selectors for name in re.findall(_NAME, text) if not name.startswith("guest-")]


def resolve(mesh: LocalMesh, selectors: Iterable[str], dice: random.Random, last: Sequence[str]) -> list[str]:
    """Return names, each once; ValueError if no peer matches. `last` is the previous selection."""
    found: dict[str, None] = {}
    for selector in selectors:
        names = _resolve(mesh, selector, dice, last)
        if not names:
            raise ValueError(f"no peer matches {selector!r} now")
        found |= dict.fromkeys(names)
    return list(found)


def _resolve(mesh: LocalMesh, selector: str, dice: random.Random, last: Sequence[str]) -> list[str]:
    if selector == "the same":
        return [name for name in last if name in mesh.members]
    if selector == "the dead":
        return [m.name for m in mesh.members.values() if m.state.value == "dead" and not m.is_guest]
    words = selector.split()
    if selector.startswith("a parent of "):
        return mesh.parents_of(words[-1])[:1]
    if selector.startswith("the parents of "):
        return mesh.parents_of(words[-1])
    if selector == "half of the mesh":
        roots, routers = _running(mesh, "root"), _running(mesh, "router")
        return _half(roots, dice, most=len(roots) - 1) + _half(routers, dice)
    if selector.startswith("half of the "):
        return _half(_running(mesh, _ROLES[words[-1].removesuffix("s")]), dice)
    if words[0] == "the":
        return [m.name for m in _running(mesh, _ROLES[words[1].removesuffix("s")])]
    if words[0] in ("a", "an"):
        running = _running(mesh, _ROLES[words[1]])
        return [dice.choice(running).name] if running else []
    return [selector] if selector in mesh.members else []


def _running(mesh: LocalMesh, role: str) -> list[Member]:
    return [m for m in mesh.members.values() if m.role == role and m.runs]


def _half(members: Sequence[Member], dice: random.Random, most: int | None = None) -> list[str]:
    """Half of them, rounded up."""
    count = (len(members) + 1) // 2
    if most is not None:
        count = max(0, min(count, most))
    return [member.name for member in dice.sample(list(members), count)]
