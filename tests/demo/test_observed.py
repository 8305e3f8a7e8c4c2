"""Ledger, weather, links and the picture of the air: small parts, no processes."""

from __future__ import annotations

import pytest

from asdi.flights import Packet
from demo.check.air import Air
from demo.check.ledger import Ledger
from demo.check.observed import ObservedMesh
from demo.check.truth import Fact
from demo.run.faults import Weather
from demo.run.member import Member, State
from demo.run.rates import link_rates
from demo.run.settings import DemoSettings
from tests.demo.feeds import truth
from xmlswitch import Query


def test_a_repair_is_counted_from_the_fault():
    ledger = Ledger(0.0)
    ledger.fault(10.0)
    ledger.parents("router-1", is_short=True, now=10.9)
    ledger.parents("client-1", is_short=True, now=11.0)
    assert ledger.parents("router-1", is_short=False, now=11.2) is None
    assert not ledger.is_settled(11.3)
    assert ledger.parents("client-1", is_short=False, now=12.0) == pytest.approx(2.0)
    assert ledger.is_settled(12.0)
    assert ledger.repairs == [pytest.approx(2.0)]


def test_a_recovery_is_counted_from_the_last_thing_that_was_done():
    """With one root of two dead nobody can have two parents: how long it stays dead is the scenario's doing."""
    ledger = Ledger(0.0)
    ledger.fault(10.0)
    ledger.parents("router-1", is_short=True, now=10.9)
    ledger.acted(14.0)  # the root comes back
    ledger.parents("router-1", is_short=False, now=15.5)
    assert (ledger.repairs, ledger.recoveries) == ([pytest.approx(5.5)], [pytest.approx(1.5)])
    ledger.parents("router-1", is_short=True, now=40.0)  # nobody did anything: it counts from when it showed
    ledger.parents("router-1", is_short=False, now=40.4)
    assert ledger.recoveries[1] == pytest.approx(0.4)


def test_a_pause_of_the_machine_is_told_but_not_one_that_we_made():
    observed = ObservedMesh(DemoSettings(), 100.0)
    observed.truth = truth()
    router = observed.members["router-1"] = Member("router-1", "router", {"parents": 2}, state=State.RUNNING)
    status = {"k": "stat", "at": 110.0, "up": [], "sound": 2, "cpu": 0.0}
    for pause, began in ((0.9, 99.0), (0.2, 105.0)):  # the first was before the run
        observed.heard(router, status | {"pause": [pause, began]})
    assert observed.totals()["machine_pause_ms"] == 200.0
    router.thawed_at = 120.0
    observed.heard(router, status | {"pause": [4.0, 116.0]})  # it was stopped
    assert observed.totals()["machine_pause_ms"] == 200.0


def test_a_fault_that_hurts_nobody_is_forgotten_after_a_while():
    ledger = Ledger(0.0)
    ledger.fault(10.0)
    assert not ledger.is_settled(12.0)
    assert ledger.is_settled(16.0)
    assert ledger.repairs == []


def test_cpu_is_measured_after_the_demo_itself_stood_still_for_long():
    """Found by the browser tests on a busy machine: the demo ended with a division by zero."""
    observed = ObservedMesh(DemoSettings(), 0.0)
    observed.truth = truth()
    for now in (1.0, 2.0, 60.0, 61.5):
        observed.look(now)
    assert observed.cpu_cores >= 0
    assert observed.cpu_seconds > 0


def test_excused_packets_are_delivered_but_not_timed():
    ledger = Ledger(0.0)
    ledger.took("client-1", 0.004, 1.0)
    ledger.took_excused()
    ledger.took("client-2", 0.250, 5.2)
    assert (ledger.delivered, ledger.longest_stall, ledger.stalled) == (3, 0.250, "client-2")
    assert ledger.latencies_ms() == {"p50": 250.0, "p95": 250.0, "p99": 250.0, "max": 250.0}
    assert ledger.timeline() == [[1, 1, 4.0, 4.0, 4.0, 4.0]]


def test_the_timeline_is_in_order_when_clients_report_in_turns():
    """Found by looking at the page: the curves ran back and forth."""
    ledger = Ledger(0.0)
    for now in (10.1, 11.5, 10.9, 12.2, 11.9, 15.0, 10.2, 19.0):
        ledger.took("client-1", 0.001, now)
    seconds = [row[0] for row in ledger.timeline()]
    assert seconds == sorted(set(seconds))
    assert sum(row[1] for row in ledger.timeline()) == 7


def test_two_kinds_of_bad_weather_add_up():
    both = Weather(0.5, 0.1, 1_000.0).worse(Weather(0.5, 0.2, 500.0))
    assert (both.loss, both.delay, both.rate) == (0.75, pytest.approx(0.3), 500.0)


@pytest.mark.parametrize(
    "fields",
    [{"loss": 2}, {"delay": -1}, {"rate": 1}, {"loss": "much"}, {"loss": True}, {"x": 1}, {"loss": float("nan")}],
)
def test_bad_weather_is_refused(fields):
    with pytest.raises(ValueError, match=r"loss|delay|rate"):
        Weather.from_json(fields)


def test_rates_of_a_link_come_from_two_reports_and_survive_a_new_link():
    def report(copies, first, lost=0, passed=0):
        link = {"address": "a", "name": "root-1", "copies": copies, "first": first, "lost": lost, "passed": passed}
        return {"up": [link | {"rtt": 1.0, "sound": True}]}

    rates = link_rates(report(100, 50), report(150, 90, 20, 80), 0.5)["root-1"]
    assert (rates["rate"], rates["won"], rates["loss"]) == (100.0, 0.8, 0.2)
    assert link_rates(report(100, 50), report(10, 5), 0.5)["root-1"]["rate"] == 20.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"roots": 0},
        {"clients": 0},
        {"routers": 200},
        {"parents": 3},
        {"clients": 60},
        {"capacity": 0},
        {"log_packets": 2},
    ],
)
def test_sizes_that_can_not_work_are_refused_with_a_sentence(wrong):
    with pytest.raises(ValueError, match=r"\w+ \w+ .*"):
        DemoSettings(**wrong)


def _fact(body: str, an: int = 1) -> Fact:
    return Fact(Packet(an, 0, f"<flight><id>UAL1</id><flightleg {body}</flightleg></flight>".encode()), 1.0)


def test_the_air_follows_a_flight_until_it_lands():
    air = Air(10.0)
    air.saw("client-1", _fact('status="departed"><departure>KJFK</departure><destination>KLAX</destination>'))
    assert air.count("client-1") == 0  # nobody knows where it is
    air.saw("client-1", _fact('status="active"><coordinate><lat>4006N</lat><lon>07651W</lon></coordinate>'))
    assert (air.count("client-1"), air.count("client-2")) == (1, 0)
    air.saw("client-1", _fact('status="arrived">'))
    assert air.count("client-1") == 0


def test_a_new_query_takes_what_it_would_not_have_brought_from_the_picture():
    air = Air(10.0)
    place = "<coordinate><lat>4006N</lat><lon>07651W</lon></coordinate>"
    air.saw("client-1", _fact(f'status="active"><altitude>310</altitude>{place}'))
    air.switched("client-1", Query.parse("/flight/flightleg/altitude > 300"))
    assert air.count("client-1") == 1
    air.switched("client-1", Query.parse("/flight/flightleg/altitude < 300"))
    assert air.count("client-1") == 0


def test_flights_that_are_silent_for_long_go_from_the_picture():
    air = Air(10.0)
    air.saw("client-1", _fact('status="active"><coordinate><lat>4006N</lat><lon>07651W</lon></coordinate>'))
    air.sweep(30.0)
    assert air.count("client-1") == 1
    air.sweep(32.0)
    assert air.count("client-1") == 0
