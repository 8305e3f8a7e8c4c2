"""What a peer needs of a query, whatever language it is written in (`peer.languages`)."""

from __future__ import annotations

from typing import Protocol


class StandingQuery(Protocol):
    """Immutable and hashable. `xmlswitch.Query` is one."""

    @property
    def canonical(self) -> str:
        """The query as text; equal for equal queries."""

    @property
    def matches_everything(self) -> bool: ...

    @property
    def travels(self) -> bool:
        """Whether routers understand it as it is; if not, they get what it needs."""

    def need(self) -> StandingQuery:
        """A query that travels and matches at least as much."""

    def encode(self) -> bytes: ...
