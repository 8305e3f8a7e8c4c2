"""Takes the pictures of the page again, `docs/figures/{air-map,demo-*}.png`: `python -m tests.demo.pictures [map]`."""

from __future__ import annotations

import sys

from bench._browser import browser
from bench.report import FIGURES, progress
from tests.demo.command import RunningDemo, wait_for
from tests.demo.pages import click, number, peers, put_back, wait_whole

FLIGHTS = 500


def main() -> None:
    demo = RunningDemo()
    try:
        demo.wait_page()
        with browser(1440, 900) as window:
            dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
            window.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
            window.get(demo.url)
            wait_for(lambda: len(peers(window)) == 16, "that all peers are drawn")
            wait_for(lambda: number(window, "flights") > FLIGHTS, f"that {FLIGHTS} flights are in the air")
            take_map(window)
            if sys.argv[1:] == ["map"]:
                return
            wait_whole(window)
            click(window, "[data-peer='client-1']")
            click(window, "#kill-half")
            wait_for(lambda: len(peers(window, ".dead")) == 4, "that half of the mesh is dead")
            wait_for(lambda: peers(window, ".short, .peer.none"), "that somebody has noticed")
            take(window, "demo-dark", 1440, 900)
            put_back(window)
            wait_whole(window)
            click(window, "#theme")
            take(window, "demo-light", 1440, 900)
            click(window, "#theme")
            take(window, "demo-phone", 390, 844)
    finally:
        demo.close()


def take_map(window) -> None:
    """Only the map, zoomed in, with trails of some reports and the callsigns of one airline."""
    click_map = "const map = document.getElementById('map');"
    window.execute_script(
        click_map + "for (let k = 0; k < 3; k++) map.dispatchEvent(new KeyboardEvent('keydown', {key: '+'}));"
        "const box = document.getElementById('search'); box.value = 'JBU'; box.dispatchEvent(new Event('input'))"
    )
    published = number(window, "t-published")
    wait_for(lambda: number(window, "t-published") > published + 2_000, "that flights have trails")
    map_panel = window.execute_script("return document.getElementById('air')")
    map_panel.screenshot(str(FIGURES / "air-map.png"))
    progress("air-map.png")
    window.execute_script(
        click_map + "map.dispatchEvent(new KeyboardEvent('keydown', {key: '0'}));"
        "const box = document.getElementById('search'); box.value = ''; box.dispatchEvent(new Event('input'))"
    )


def take(window, name: str, width: int, height: int) -> None:
    """Of a screen of this size, without what a window has around it."""
    window.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    if width < 500:  # on another size the peers glide to their places: from the next words of the demo on
        for _ in range(4):
            before = number(window, "t-published")
            wait_for(lambda before=before: number(window, "t-published") > before, "that the page is told more")
    window.save_screenshot(str(FIGURES / f"{name}.png"))
    window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    progress(f"{name}.png")


if __name__ == "__main__":
    main()
