"""What the failover benchmark calls silence."""

from __future__ import annotations

import pytest

from bench.failover import longest_silence, summary


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([10.1, 10.2, 10.9], 3.1),  # it stopped for good: once taken for no silence at all
        ([13.0, 13.5], 3.0),
        ([10.5, 12.5, 13.5], 2.0),
        ([9.0, 9.9, 10.5, 12.0, 13.5, 14.5], 1.5),  # arrivals before and after the watch say nothing of it
        ([], 4.0),
    ],
)
def test_a_stream_that_stops_is_silent_until_the_end_of_the_watch(times, expected):
    assert longest_silence(times, 10.0, 14.0)[0] == pytest.approx(expected)


def test_one_hiccup_is_not_the_faults_but_every_loss_and_the_slowest_repair_count():
    rounds = [
        {
            "parents": 2,
            "fault": "kill",
            "lost": lost,
            "longest_silence_ms": silence,
            "silent_from_s": 0.5,
            "restored_s": restored,
        }
        for lost, silence, restored in [(0, 9.0, 0.9), (1, 95.0, 0.8), (2, 11.0, 1.5)]
    ]
    found = summary(rounds)
    assert (found["lost"], found["longest_silence_ms"], found["restored_s"]) == (3, 11.0, 1.5)
    assert found["silences_ms"] == [9.0, 95.0, 11.0]
    assert summary([{**one, "fault": "none", "restored_s": None} for one in rounds])["restored_s"] is None
