"""The public API under the product's name: `import skymesh` gives what `import peer` gives.

    async with skymesh.join("asdi", query="/flight/flightleg/altitude > 300") as stream:
        async for item in stream: ...

docs/api.md describes it. The packages `peer`, `dcp`, `dht` and `xmlswitch` stay importable by their own names.
"""

from __future__ import annotations

import peer

TYPE_CHECKING = False  # as in `peer`: importing `typing` for it takes longer than all of this
if TYPE_CHECKING:
    from peer import *  # noqa: F403

__all__ = list(peer.__all__)


def __getattr__(name: str) -> object:
    try:
        return getattr(peer, name)
    except AttributeError:
        raise AttributeError(f"module 'skymesh' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
