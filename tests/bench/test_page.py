"""The benchmark of the page: made-up flights are told as the feed tells them, and without Chromium it says so."""

from __future__ import annotations

import json

import pytest

from bench import page
from bench.__main__ import main


def test_without_chromium_it_says_so_and_fails_nobody(monkeypatch, capsys):
    monkeypatch.setattr(page, "reason_for_none", lambda: "there is no Chromium here: apt install chromium")
    assert main(["page"]) == 0
    assert "there is no Chromium here" in capsys.readouterr().out


def test_every_flight_is_told_of_once_in_ten_seconds_and_moves():
    stub = page._Stub(50)
    first, second = list(stub._packets(100.0, 110.0)), list(stub._packets(110.0, 120.0))
    assert [packet.an for packet in first + second] == list(range(100))
    callsigns = [packet.payload.partition(b"</id>")[0] for packet in first]
    assert len(set(callsigns)) == 50
    assert callsigns == [packet.payload.partition(b"</id>")[0] for packet in second]
    assert all(one.payload != other.payload for one, other in zip(first, second, strict=True))


@pytest.mark.browser
@pytest.mark.net
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("demo-browser")
@pytest.mark.skipif(page.reason_for_none() is not None, reason=str(page.reason_for_none()))
def test_frames_are_timed_in_a_real_browser(capsys):
    main(["page", "--flights", "60", "--seconds", "0.5", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["frames"] > 2
    assert told["console_errors"] == []
    assert told["script_ms"]["p50"] <= told["script_ms"]["p95"] <= told["script_ms"]["max"]
