"""What tests ask of the page, and how they press its buttons."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from bench._browser import reason_for_none
from tests.demo.command import wait_for

REASON = reason_for_none()
IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.net,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("demo-browser"),
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


def text(window, identity):
    return window.execute_script("return document.getElementById(arguments[0]).textContent", identity)


def number(window, identity):
    return int(text(window, identity).replace(",", ""))


def click(window, selector):
    window.execute_script("document.querySelector(arguments[0]).click()", selector)


def peers(window, classes=""):
    script = f"return [...document.querySelectorAll('.peer{classes}')].map(peer => peer.dataset.peer)"
    return set(window.execute_script(script))


def events(window, kind):
    script = "return [...document.querySelectorAll('#events .' + arguments[0])].map(event => event.textContent)"
    return window.execute_script(script, kind)


def newest(window, kind):
    """The number of the newest event of this kind: how many the list has says nothing once it is full."""
    script = "return document.querySelector('#events .' + arguments[0])?.parentNode.dataset.event ?? 0"
    return int(window.execute_script(script, kind))


def open_card(window, name):
    click(window, f"[data-peer='{name}']")
    wait_for(lambda: text(window, "card-title") == name, f"that the card of {name} is open")


@contextmanager
def other_tab(window):
    """Another page, in front; then the first one is in front again: what is behind is drawn and run seldom."""
    page = window.current_window_handle
    window.switch_to.new_window("tab")
    try:
        yield
    finally:
        window.close()
        window.switch_to.window(page)
        window.execute_cdp_cmd("Page.bringToFront", {})


def put_back(window):
    """Until everybody is there again and the weather is fair; not until all have all their parents, which is slower."""
    click(window, "#put-back")
    click(window, "#put-back")  # it asks: the totals go to zero
    hurt = ".dead, .peer.frozen, .peer.starting, .peer.cut"
    wait_for(lambda: not peers(window, hurt) and not guests(window), "that everybody is put back")
    wait_for(lambda: text(window, "all-loss-out") == "0 %", "that the weather is fair")


def guests(window):
    return {name for name in peers(window) if name.startswith("guest")}


def wait_whole(window):
    wait_for(lambda: not peers(window, ".short, .peer.none, .peer.starting"), "that everybody has its parents")
