"""What the tests of the switch share."""

from __future__ import annotations

import pytest

import xmlswitch.index.budget


@pytest.fixture
def without_budget(monkeypatch):
    """Queries may cost what they like: for tests that compare answers with libxml2's own, query by query."""
    monkeypatch.setattr(xmlswitch.index.budget, "BUDGET_NS", 1 << 60)
