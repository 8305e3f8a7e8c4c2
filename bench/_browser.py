"""Debian's Chromium, driven by Selenium; or the reason why there is none. For `bench page` and the tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def reason_for_none() -> str | None:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "Chromium is not installed: apt install chromium chromium-driver"
    try:
        import selenium  # noqa: F401
    except ModuleNotFoundError:
        return "Selenium is not installed: pip install selenium"
    return None


@contextmanager
def browser(width: int = 1200, height: int = 800) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if os.getuid() == 0:
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            driver.set_script_timeout(60)
            yield driver
        finally:
            driver.quit()
