"""Loops of desktop programs for tests: a Qt application off the screen, and a display for Tk where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.peer.cli.command import clean_environment


def qt_application():
    """The one application of this process, with no screen. After a plain QCoreApplication there could be no window."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    widgets = pytest.importorskip(
        "PySide6.QtWidgets", reason="PySide6 is not installed, or a library that it needs", exc_type=ImportError
    )
    return widgets.QApplication.instance() or widgets.QApplication([])


@contextmanager
def tk_display() -> Iterator[dict[str, str]]:
    """The environment of a process with a display: the one there is, or an Xvfb of its own.

    Not for this process: Xlib ends a process whose server goes, and Tcl aborts one that collects a window elsewhere
    than in the thread that made it.
    """
    pytest.importorskip("tkinter", reason="this Python has no tkinter")
    if os.environ.get("DISPLAY"):
        yield clean_environment()
        return
    program = shutil.which("Xvfb")
    if program is None:
        pytest.skip("a Tk window needs a display: neither DISPLAY is set nor is Xvfb installed")
    ours, theirs = os.pipe()
    server = subprocess.Popen(
        [program, "-displayfd", str(theirs), "-screen", "0", "320x240x24", "-nolisten", "tcp"],
        pass_fds=[theirs],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        os.close(theirs)
        with os.fdopen(ours) as told:
            number = told.readline().strip()
        assert number, "Xvfb ended without a display"
        yield clean_environment() | {"DISPLAY": f":{number}"}
    finally:
        server.terminate()
        server.wait()
