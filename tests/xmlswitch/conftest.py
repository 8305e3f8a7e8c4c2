"""Every switch of these tests is strict: an exception that nobody expected fails the test."""

from __future__ import annotations

import pytest

import xmlswitch.budget
import xmlswitch.switch


@pytest.fixture(autouse=True)
def strict_switches(monkeypatch):
    monkeypatch.setattr(xmlswitch.switch, "STRICT", True)


@pytest.fixture
def without_budget(monkeypatch):
    """Queries may cost what they like: for tests that compare answers with libxml2's own, query by query."""
    monkeypatch.setattr(xmlswitch.budget, "BUDGET_NS", 1 << 60)
