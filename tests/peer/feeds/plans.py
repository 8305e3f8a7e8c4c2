"""Plans for the tests of feeds."""

from __future__ import annotations

from peer.feeds.plan import FeedOptions, Plan, plan_feed

PATIENCE = 40.0
"""Bound on waits for a condition: far above what it takes, even on a busy machine."""


def plan(source: str, **options: object) -> Plan:
    return plan_feed(FeedOptions(source=source, **options))  # type: ignore[arg-type]
