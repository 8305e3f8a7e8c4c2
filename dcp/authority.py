"""What the owner of a signed stream knows for certain, given to dcp from outside.

dcp does not know signatures. Whether a copy of a packet is authentic is asked through `accepts` (`dcp.acceptance`);
what else can be proved comes from here. Without an authority a stream is *unsigned*: a parent that forges a packet
could make an honest one look like a liar, so nobody is ever convicted, and contradictions are only reported (rule L9).
"""

from __future__ import annotations

from typing import Protocol


class Authority(Protocol):
    def head(self) -> int | None:
        """How far the stream goes, by the newest word that its owner has signed; None while there is none."""

    def proves(self, an: int, query: bytes) -> bool:
        """Whether it is certain that the packet `an` exists and matches the query: who denied it has lied."""

    def condemns(self, an: int) -> bool:
        """Whether a copy of `an` that was refused lately is a forgery, which nobody honest passes on."""
