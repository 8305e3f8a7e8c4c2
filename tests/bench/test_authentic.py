"""The figures of `authentic` that do not depend on the machine."""

from __future__ import annotations

import pytest

from bench import authentic


@pytest.mark.parametrize(("rate", "size"), [(10, 92), (1_000, 108), (10_000, 172)])
def test_bytes_and_waiting(rate, size):
    row = authentic._measure(rate, 200)
    assert row["bytes"] <= size + 1
    assert row["wait_p99_ms"] <= 2.5
    assert (row["wait_p99_ms"] == 0) == (rate < 500)
    assert row["forged_accepted"] == 0
