"""One demo and one browser for all tests of a file: both take seconds to start, and a core while they run."""

from __future__ import annotations

import pytest

from bench._browser import browser
from tests.demo.command import RunningDemo

SIZE = ["--roots", "2", "--routers", "3", "--clients", "2", "--dht-nodes", "1", "--copies", "5"]


@pytest.fixture(scope="module")
def page_demo():
    running = RunningDemo(*SIZE)
    try:
        running.wait_page()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def browser_window(page_demo):
    with browser() as driver:
        driver.get(page_demo.url)
        yield driver


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    window = getattr(item, "funcargs", {}).get("browser_window")
    if report.failed and report.when == "call" and window is not None:
        told = window.execute_script("return document.getElementById('events').innerText")
        report.sections.append(("what the page told, the newest first", told[:8000]))
    return report


@pytest.fixture
def window(browser_window):
    """The page. Whatever a test does with it, it writes nothing to the console."""
    yield browser_window
    bad = [entry for entry in browser_window.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert bad == []
