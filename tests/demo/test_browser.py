"""The page in a real browser: the mesh appears, flights move, a killed parent is repaired with nothing lost."""

from __future__ import annotations

import pytest

from tests.demo.command import wait_for
from tests.demo.pages import IN_A_BROWSER, click, events, newest, number, other_tab, peers, text, wait_whole

pytestmark = IN_A_BROWSER
PEERS = {"root-1", "root-2", "router-1", "router-2", "router-3", "client-1", "client-2", "dht-1"}


def test_the_mesh_appears_and_becomes_whole(window):
    wait_for(lambda: peers(window) == PEERS, "that all peers are drawn")
    wait_whole(window)
    wait_for(lambda: number(window, "t-delivered") > 100, "that packets are delivered")
    assert number(window, "t-lost") == 0


def test_flights_move(window):
    wait_for(lambda: number(window, "flights") > 500, "that 500 flights are in the air")
    window.execute_script("window.before = document.getElementById('map').toDataURL()")
    moved = "return document.getElementById('map').toDataURL() !== window.before"
    wait_for(lambda: window.execute_script(moved), "that the map changes")
    # Seconds of a busy test machine say nothing; what one frame costs the page's own script does, roughly.
    wait_for(lambda: window.execute_script("return document.getElementById('frames').dataset.cost"), "a frame's cost")
    assert float(window.execute_script("return document.getElementById('frames').dataset.cost")) < 100


def test_the_map_is_fed_by_the_gateways_own_client(window):
    loaded = window.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert any(name.endswith("/skymesh.js") for name in loaded)
    # Another client's map is there at once: its gateway remembers what it was handed.
    window.execute_script(
        "const box = document.getElementById('client'); box.value = 'client-2'; box.dispatchEvent(new Event('change'))"
    )
    wait_for(lambda: number(window, "flights") > 0, "that the flights of client-2 are drawn")
    click(window, "[data-peer='client-1']")
    wait_for(lambda: number(window, "flights") > 500, "that the flights of client-1 are drawn again")
    click(window, "#card-close")


@pytest.mark.parametrize(("text", "value"), [("4006N", 40.1), ("07651W", -76.85), ("", None), ("4006", None)])
def test_degrees_are_read_from_the_feeds_own_form(window, text, value):
    script = "const done = arguments[1]; import('/flights.js').then(module => done(module.degrees(arguments[0])))"
    assert window.execute_async_script(script, text) == pytest.approx(value)


def test_a_flight_is_found_by_its_callsign(window):
    window.execute_script(
        "const box = document.getElementById('search'); box.value = 'AAL'; box.dispatchEvent(new Event('input'))"
    )
    wait_for(lambda: text(window, "map-label").startswith("AAL"), "that a flight is labelled")


def test_killing_a_parent_through_the_page_shows_the_repair_with_nothing_lost(window):
    click(window, "[data-peer='client-1']")
    rows = "return [...document.querySelectorAll('#card tbody tr')].map(row => row.cells[0].textContent)"
    wait_for(lambda: len(window.execute_script(rows)) >= 2, "that the card shows both parents")
    parent = min(window.execute_script(rows), key=lambda name: name.startswith("root"))
    click(window, f"[data-peer='{parent}']")
    wait_for(lambda: text(window, "card-title") == parent, "that the parent's card is open")
    whole_before = newest(window, "whole")
    click(window, "#card-kill")
    wait_for(lambda: parent in peers(window, ".dead"), "that the parent is drawn as dead")
    assert any(f"{parent} killed" in event for event in events(window, "fault"))
    wait_for(lambda: any("client-1" in event for event in events(window, "degraded")), "that client-1 is short")
    if parent.startswith("root"):  # a lone root is one parent only: it must come back before n can be had
        wait_for(
            lambda: not window.execute_script("return document.getElementById('card-restart').disabled"), "a button"
        )
        click(window, "#card-restart")
    wait_for(lambda: newest(window, "whole") > whole_before, "that the mesh is whole again")
    assert any("client-1" in event for event in events(window, "restored"))
    assert number(window, "t-lost") == 0


def type_query(window, query):
    window.execute_script(
        "const box = document.getElementById('query'); box.focus(); box.value = arguments[0];"
        "box.dispatchEvent(new Event('input'))",
        query,
    )


def test_a_bad_query_shows_its_error_and_a_good_one_its_count(window):
    type_query(window, "/flight/flightleg[altitude >")
    wait_for(
        lambda: "bad" in window.execute_script("return document.getElementById('query-says').className"), "an error"
    )
    assert "at character" in text(window, "query-says")
    assert window.execute_script("return document.getElementById('apply').disabled")
    type_query(window, "/flight/flightleg/altitude > 300")
    wait_for(lambda: "matches" in text(window, "query-says"), "a count")
    assert not window.execute_script("return document.getElementById('apply').disabled")


def test_a_query_is_asked_for_and_switched_to(window):
    type_query(window, "/flight/flightleg/altitude > 290")
    wait_for(lambda: "matches" in text(window, "query-says"), "a count")
    click(window, "#apply")
    wait_for(lambda: any("switched to" in event for event in events(window, "info")), "that the query is in force")
    assert number(window, "t-lost") == 0


def test_every_control_is_reached_by_the_keyboard(window):
    script = """
      const reached = document.querySelectorAll('button, input, select, canvas[tabindex]');
      return [...reached].filter(item => item.tabIndex < 0 && !item.disabled).map(item => item.outerHTML)"""
    assert window.execute_script(script) == []
    unnamed = """
      return [...document.querySelectorAll('button, input, select')].filter(item => !(item.textContent.trim() ||
        item.getAttribute('aria-label') || item.labels?.length)).map(item => item.outerHTML)"""
    assert window.execute_script(unnamed) == []


@pytest.mark.parametrize(("width", "view"), [(1440, "mesh"), (390, "mesh"), (390, "air"), (390, "log")])
def test_nothing_is_wider_than_the_screen(window, width, view):
    window.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    click(window, f"[data-view='{view}']")
    assert window.execute_script("return document.documentElement.scrollWidth") <= width
    window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_the_key_the_page_says_what_to_do(page_demo, window):
    with other_tab(window):
        window.get(page_demo.url.split("#")[0])
        assert "Open the full address" in text(window, "caption")
