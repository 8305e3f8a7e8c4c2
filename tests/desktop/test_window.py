"""The desktop example off the screen, on a real mesh."""

from __future__ import annotations

import functools
import subprocess
import threading
import time
from contextlib import suppress

import pytest

import peer
from peer import blocking
from tests.desktop.test_flights import report
from tests.peer.cli.command import REPOSITORY, STRICT, clean_environment
from tests.peer.display import qt_application
from tests.peer.meshthread import reach

# Of another thread: a signal does not reach Python inside a Qt loop, and a hang must end.
pytestmark = [pytest.mark.net, pytest.mark.xdist_group("processes"), pytest.mark.timeout(180, method="thread")]
PATIENCE = 60.0


@pytest.fixture
def feed():
    """A root that tells of two flights, one high and one low, on their way west."""
    with blocking.root("air", beacon=False) as root:
        is_over = threading.Event()

        def run() -> None:
            minute = 0
            while not (is_over.wait(0.01) or root.is_closed):
                minute += 1
                west = f"{74 + minute // 60 % 40:03}{minute % 60:02}W"
                with suppress(RuntimeError):  # closed meanwhile
                    root.send(report("HIGH1", lon=west, altitude="350"))
                    root.send(report("LOW2", lat="3500N", lon=west, altitude="50"))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield root
        finally:
            is_over.set()
            thread.join()


def turn_until(application, condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        application.processEvents()
        time.sleep(0.005)


def colours(widget) -> set[str]:
    picture = widget.grab().toImage()
    return {
        picture.pixelColor(x, y).name() for x in range(0, picture.width(), 1) for y in range(0, picture.height(), 1)
    }


def test_flights_move_queries_are_explained_and_the_lamp_tells(feed):
    application = qt_application()
    from demo.desktop.sky import ALTITUDES
    from demo.desktop.window import AMBER, GREEN, RED, Window

    join = functools.partial(peer.guest.join_qt, "air", **reach(feed))
    window = Window("air", join)
    window.resize(640, 420)
    window.show()
    assert window.lamp.colour == RED
    turn_until(application, lambda: len(window.flights.placed()) == 2)
    turn_until(application, lambda: window.lamp.colour == GREEN)
    assert window.words.text() == "1 of 1 parent"
    window.lamp.show_resilience(1, 2)
    assert window.lamp.colour == AMBER
    assert "losing another may stall the stream" in window.lamp.toolTip()
    window.lamp.show_resilience(1, 1)

    # It moves: later is farther west.
    high = window.flights.all["HIGH1"]
    turn_until(application, lambda: high.drift[1] < 0)
    first = window.sky.point(*high.at(window.sky.now)).x()
    turn_until(application, lambda: window.sky.point(*high.at(window.sky.now)).x() < first - 2)
    window.tick()
    seen = colours(window.sky)
    assert {ALTITUDES[0][1].name(), ALTITUDES[3][1].name()} <= seen, "both are painted, by altitude"
    assert "packets" in window.figures.text()
    assert "no gap" in window.figures.text()

    # A click tells more of it.
    window.sky.chosen = None
    found = window.sky.nearest(window.sky.point(*high.at(window.sky.now)))
    assert found is high
    window.sky.chosen = high.callsign
    assert colours(window.sky) - seen, "its details are painted"

    # A bad query is explained, with its place, and changes nothing.
    window.box.setText("/flight[")
    window.apply()
    assert window.problem.isVisible()
    assert window.problem.text().splitlines()[1:] == ["  /flight[", "  " + " " * 8 + "^"]
    # A good one holds from some packet on.
    window.box.setText("/flight/flightleg/altitude > 300")
    window.apply()
    assert not window.problem.isVisible()
    turn_until(application, lambda: list(window.flights.all) == ["HIGH1"] and window.stream.statistics().packets > 0)
    window.examples.setCurrentIndex(0)
    window.examples.activated.emit(0)
    turn_until(application, lambda: len(window.flights.all) == 2)

    # The last parent goes: the lamp says so; the window closes and the peer has left.
    feed.close()
    turn_until(application, lambda: window.lamp.colour == RED)
    window.close()
    window.stream.finish()
    assert window.stream.is_closed
    assert window.error is None


def test_an_error_that_ends_the_stream_is_shown(feed, tmp_path):
    application = qt_application()
    from demo.desktop.window import RED, Window
    from dht import Identity, Pins

    Pins(tmp_path / "pins.json").accept("air", Identity.generate().peer_id)
    window = Window("air", functools.partial(peer.guest.join_qt, "air", state=tmp_path, **reach(feed)))
    turn_until(application, lambda: window.error is not None)
    assert isinstance(window.error, peer.WrongOwner)
    assert window.lamp.colour == RED
    assert "another owner" in window.words.text()
    window.close()


def run(*arguments: str, block_qt: bool = False) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys\n"
        + ("sys.modules['PySide6'] = None\n" if block_qt else "")
        + "from demo.desktop.__main__ import main\n"
        + f"sys.exit(main({list(arguments)!r}))"
    )
    return subprocess.run(
        [*STRICT, "-c", program],
        cwd=REPOSITORY,
        env=clean_environment() | {"QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_without_qt_it_says_what_to_install():
    done = run(block_qt=True)
    assert done.returncode == 1
    assert done.stderr.startswith("skymesh: the desktop example needs PySide6: pip install 'skymesh[desktop]'")
    assert done.stderr.count("\n") == 1


def test_a_wrong_call_is_one_answer(capsys):
    qt_application()
    from demo.desktop.__main__ import main

    assert main(["--query", "/a["]) == 5
    assert "invalid query" in capsys.readouterr().err
    assert main(["--bootstrap", "nowhere"]) == 2
    assert capsys.readouterr().err == "skymesh: --bootstrap: expected HOST:PORT, got 'nowhere'\n"


@pytest.mark.slow
def test_the_whole_program_with_roots_of_its_own_takes_a_picture(tmp_path):
    qt_application()
    from PySide6.QtGui import QImage

    done = run("--demo", "--screenshot", str(tmp_path / "window.png"), "--after", "1")
    assert done.returncode == 0, done.stderr
    assert QImage(str(tmp_path / "window.png")).width() > 600
    assert "Traceback" not in done.stderr
