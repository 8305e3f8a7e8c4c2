"""The window: query box, lamp and map around a stream that runs in Qt's own loop (`peer.guest`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QCloseEvent, QColor, QPainter, QPaintEvent, QRadialGradient
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMainWindow,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

import peer
from demo.desktop.flights import Flights
from demo.desktop.sky import Sky
from peer.guest import GuestStream

FRAME_MS = 100
FORGET_AFTER = 300.0
"""Seconds after which a flight that nothing is heard of is no longer drawn."""
RED, AMBER, GREEN = QColor("#ff5252"), QColor("#ffb142"), QColor("#33d17a")

EXAMPLES = {
    "everything": "",
    "above 30,000 feet": "/flight/flightleg/altitude > 300",
    "climbing and descending": "/flight/flightleg[coordinate]/altitude < 180",
    "JetBlue": "starts-with(/flight/id, 'JBU')",
    "west of 100°": "/flight/flightleg/coordinate/lon > '10000W'",
}


class Lamp(QWidget):
    """Green: as many parents as were wanted. Amber: fewer, and the stream goes on. Red: none."""

    def __init__(self) -> None:
        super().__init__()
        self.sound, self.wanted = 0, 0
        self.setFixedSize(22, 22)
        self.show_resilience(0, 1)

    @property
    def colour(self) -> QColor:
        return GREEN if self.sound >= self.wanted else AMBER if self.sound else RED

    @property
    def words(self) -> str:
        if not self.sound:
            return "no parent yet: waiting for packets"
        if self.sound < self.wanted:
            return f"{self.sound} of {self.wanted} parents: losing another may stall the stream"
        spare = self.sound - 1
        return f"{self.sound} of {self.wanted} parents: {spare} can fail without a stall" if spare else "1 of 1 parent"

    def show_resilience(self, sound: int, wanted: int) -> None:
        self.sound, self.wanted = sound, wanted
        self.setToolTip(self.words)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        glow = QRadialGradient(9, 8, 12)
        glow.setColorAt(0.0, self.colour.lighter(150))
        glow.setColorAt(1.0, self.colour.darker(130))
        painter.setPen(self.colour.darker(180))
        painter.setBrush(glow)
        painter.drawEllipse(3, 3, 16, 16)
        painter.end()


class Window(QMainWindow):
    """`join` is called once, with the callbacks and the first query, and gives the stream."""

    def __init__(
        self,
        stream: str,
        join: Callable[..., GuestStream],
        *,
        query: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.flights = Flights()
        self.sky = Sky(self.flights)
        self.lamp = Lamp()
        self.packets = 0
        self.gaps = 0
        self.error: BaseException | None = None
        self._clock = clock
        self._rate_from = (clock(), 0)
        self._rate = 0.0
        self.setWindowTitle(f"skymesh: {stream}")
        self._build(query)
        self.stream = join(
            on_packet=self._take, on_event=self._tell, on_end=self._ended, statistics_every=1.0, query=query or None
        )
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.tick)
        self._timer.start(FRAME_MS)

    def _build(self, query: str) -> None:
        self.setStyleSheet(
            "QMainWindow, QWidget { background: #101f2c; color: #dbe9f1; font-size: 10pt }"
            "QLineEdit, QComboBox { background: #0b1722; border: 1px solid #2b4a5e; border-radius: 4px; padding: 4px }"
            "QLineEdit { font-family: monospace }"
            "QPushButton { background: #1f6feb; border: 0; border-radius: 4px; padding: 5px 14px; color: white }"
            "QToolTip { background: #0b1722; color: #dbe9f1 }"
        )
        self.box = QLineEdit(query)
        self.box.setPlaceholderText("XPath query; empty for all packets")
        self.box.returnPressed.connect(self.apply)
        self.box.textEdited.connect(self.check)
        button = QPushButton("Apply")
        button.clicked.connect(self.apply)
        examples = QComboBox()
        for name, text in EXAMPLES.items():
            examples.addItem(name, text)
        examples.setPlaceholderText("examples")
        examples.setCurrentIndex(-1)
        examples.activated.connect(lambda index: self._choose(examples.itemData(index)))
        self.examples = examples
        self.problem = QLabel()
        self.problem.setStyleSheet("color: #ff8a80; font-family: monospace; font-size: 9pt")
        self.problem.setTextFormat(Qt.TextFormat.PlainText)  # user input must not be treated as markup
        self.problem.setVisible(False)
        self.words = QLabel(self.lamp.words)
        self.figures = QLabel("waiting for the first packet")
        self.figures.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.figures.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        asking, below = QHBoxLayout(), QHBoxLayout()
        asking.addWidget(self.box, stretch=1)
        asking.addWidget(examples)
        asking.addWidget(button)
        below.addWidget(self.lamp)
        below.addWidget(self.words)
        below.addWidget(self.figures)
        page = QWidget()
        rows = QVBoxLayout(page)
        rows.setContentsMargins(10, 10, 10, 8)
        rows.addLayout(asking)
        rows.addWidget(self.problem)
        rows.addWidget(self.sky, stretch=1)
        rows.addLayout(below)
        self.setCentralWidget(page)
        self.resize(1040, 640)

    # --- what the user does ---

    def _choose(self, text: str) -> None:
        self.box.setText(text)
        self.apply()

    def check(self) -> bool:
        """Say while it is typed what is wrong with the query, and where."""
        text = self.box.text().strip()
        problem = explained(text) if text else ""
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        return not problem

    def apply(self) -> None:
        """Ask the mesh for something else. A bad query changes nothing."""
        if not self.check():
            return
        text = self.box.text().strip()
        self.stream.change_query(text or None)

    # --- what the stream says ---

    def _take(self, packet: peer.Packet) -> None:
        self.packets += 1
        self.flights.take(packet.payload, self._clock())

    def _tell(self, event: object) -> None:
        match event:
            case peer.ResilienceChanged(sound, wanted):
                self.lamp.show_resilience(sound, wanted)
                self.words.setText(self.lamp.words)
            case peer.Gap():
                self.gaps += 1
            case peer.QuerySwitched():
                self.flights.clear()  # from here on only what the new query matches is known
            case peer.Statistics(packets=packets):
                then, before = self._rate_from
                now = self._clock()
                if now > then:
                    self._rate = max(0, packets - before) / (now - then)
                self._rate_from = now, packets

    def _ended(self, error: BaseException | None) -> None:
        self.error = error
        if error is not None:
            self.lamp.show_resilience(0, 1)
            self.words.setText(str(error))

    # --- time ---

    def tick(self) -> None:
        now = self._clock()
        self.flights.forget(now - FORGET_AFTER)
        self.sky.show_at(now)
        if self.packets:
            gaps = f", {self.gaps} gap{'s' if self.gaps != 1 else ''}" if self.gaps else ", no gap"
            self.figures.setText(f"{self.packets:,} packets, {self._rate:.0f}/s{gaps}")

    def closeEvent(self, event: QCloseEvent) -> None:
        self._timer.stop()
        self.stream.close()  # it leaves the mesh while the window goes
        super().closeEvent(event)


def explained(text: str) -> str:
    """What is wrong with a query, with a mark under the place; empty for a good one."""
    from xmlswitch import Query

    try:
        Query.parse(text)
    except peer.QueryError as error:
        return f"{error.reason}\n  {text}\n  {' ' * error.position}^"
    return ""
