"""The map: flights on a plain projection, painted by hand. It knows nothing of the network."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from asdi.flights.table import load
from demo.desktop.coast import outline
from demo.desktop.flights import Flight, Flights

# The contiguous United States with the ocean off New York.
WEST, EAST, SOUTH, NORTH = -126.0, -62.0, 22.0, 51.0
MIDDLE = math.cos(math.radians((SOUTH + NORTH) / 2))

SKY, GRID, GRID_TEXT = QColor("#0b1722"), QColor("#173042"), QColor("#3f6076")
LAND, COAST = QColor("#102130"), QColor("#2c5268")
FIELD, FIELD_TEXT = QColor("#4d7186"), QColor("#6f95ab")
LABEL, CHOSEN = QColor("#dbe9f1"), QColor("#ffffff")
# Low is warm, high is cold: altitude in hundreds of feet.
ALTITUDES = [(0, QColor("#ff9f43")), (100, QColor("#feca57")), (200, QColor("#7bed9f")), (300, QColor("#48dbfb")),
             (380, QColor("#c8a2ff"))]  # fmt: skip
LABELS_UP_TO = 45
"""More callsigns than this can't be read; then only the one that was clicked is shown."""
CLICK_DISTANCE = 14.0


def colour_of(altitude: int | None) -> QColor:
    if altitude is None:
        return ALTITUDES[0][1]
    return next(colour for least, colour in reversed(ALTITUDES) if altitude >= least)


class Sky(QWidget):
    def __init__(self, flights: Flights) -> None:
        super().__init__()
        self.flights = flights
        self.now = 0.0
        self.chosen: str | None = None
        self._coast = outline()
        self._airports = [(a.icao, a.latitude, a.longitude) for a in load().airports]
        self.setMinimumSize(480, 300)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def show_at(self, now: float) -> None:
        """Paint the flights where they are at this time."""
        self.now = now
        self.update()

    def point(self, latitude: float, longitude: float) -> QPointF:
        """Where a place is in the widget: the whole country, as large as it fits."""
        wide, high = (EAST - WEST) * MIDDLE, NORTH - SOUTH
        scale = min(self.width() / wide, self.height() / high)
        left, top = (self.width() - wide * scale) / 2, (self.height() - high * scale) / 2
        return QPointF(left + (longitude - WEST) * MIDDLE * scale, top + (NORTH - latitude) * scale)

    def nearest(self, place: QPointF) -> Flight | None:
        """The flight under the mouse."""
        best, best_distance = None, CLICK_DISTANCE
        for flight in self.flights.placed():
            away = self.point(*flight.at(self.now)) - place
            distance = math.hypot(away.x(), away.y())
            if distance < best_distance:
                best, best_distance = flight, distance
        return best

    def mousePressEvent(self, event: QMouseEvent) -> None:
        found = self.nearest(event.position())
        self.chosen = found.callsign if found is not None else None
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), SKY)
        small = QFont(self.font())
        small.setPointSizeF(7.5)
        painter.setFont(small)
        self._paint_land(painter)
        self._paint_grid(painter)
        self._paint_airports(painter)
        placed = self.flights.placed()
        for flight in placed:
            self._paint_flight(painter, flight, with_label=len(placed) <= LABELS_UP_TO)
        self._paint_legend(painter, len(placed))
        if self.chosen in self.flights.all:
            self._paint_details(painter, self.flights.all[self.chosen])
        painter.end()

    def _paint_land(self, painter: QPainter) -> None:
        painter.setPen(QPen(COAST, 1.2))
        painter.setBrush(LAND)
        painter.drawPolygon(QPolygonF([self.point(*place) for place in self._coast]))

    def _paint_grid(self, painter: QPainter) -> None:
        for longitude in range(-120, -60, 10):
            painter.setPen(QPen(GRID, 1))
            painter.drawLine(self.point(NORTH, longitude), self.point(SOUTH, longitude))
            painter.setPen(GRID_TEXT)
            painter.drawText(self.point(SOUTH, longitude) + QPointF(3, -4), f"{-longitude}° W")
        for latitude in range(25, 51, 5):
            painter.setPen(QPen(GRID, 1))
            painter.drawLine(self.point(latitude, WEST), self.point(latitude, EAST))
            painter.setPen(GRID_TEXT)
            painter.drawText(self.point(latitude, WEST) + QPointF(4, -3), f"{latitude}° N")

    def _paint_airports(self, painter: QPainter) -> None:
        taken: list[QRectF] = []
        for name, latitude, longitude in self._airports:
            if not (SOUTH < latitude < NORTH and WEST < longitude < EAST):
                continue
            place = self.point(latitude, longitude)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(FIELD)
            painter.drawRect(QRectF(place.x() - 1.5, place.y() - 1.5, 3, 3))
            box = QRectF(place.x() + 4, place.y() - 5, 26, 10)
            if not any(box.intersects(other) for other in taken):  # a name that would cover another is left out
                taken.append(box)
                painter.setPen(FIELD_TEXT)
                painter.drawText(place + QPointF(5, 3.5), name.removeprefix("K"))

    def _paint_flight(self, painter: QPainter, flight: Flight, *, with_label: bool) -> None:
        colour = colour_of(flight.altitude)
        place = self.point(*flight.at(self.now))
        faint = QColor(colour)
        faint.setAlpha(90)
        painter.setPen(QPen(faint, 1))
        painter.drawPolyline(QPolygonF([*(self.point(*spot) for spot in flight.trail), place]))
        is_chosen = flight.callsign == self.chosen
        painter.save()
        painter.translate(place)
        painter.setPen(QPen(CHOSEN, 1.2) if is_chosen else Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        if flight.heading is None:
            painter.drawEllipse(QPointF(0, 0), 3, 3)  # an arrow would point somewhere
        else:
            painter.rotate(flight.heading)
            # Seen from above, nose up.
            painter.drawPolygon(QPolygonF([QPointF(0, -6), QPointF(4, 4.5), QPointF(0, 2.5), QPointF(-4, 4.5)]))
        painter.restore()
        if with_label or is_chosen:
            painter.setPen(LABEL)
            painter.drawText(place + QPointF(7, -4), flight.callsign)

    def _paint_legend(self, painter: QPainter, count: int) -> None:
        x, y = 14.0, self.height() - 30.0 - 15 * len(ALTITUDES)  # off California, where there is nothing else
        painter.setPen(LABEL)
        painter.drawText(QPointF(x, y), f"{count} flights")
        for least, colour in ALTITUDES:
            y += 15
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour)
            painter.drawEllipse(QPointF(x + 4, y - 3.5), 3.5, 3.5)
            painter.setPen(LABEL)
            painter.drawText(QPointF(x + 13, y), f"{least * 100:,} ft and above" if least else "below 10,000 ft")

    def _paint_details(self, painter: QPainter, flight: Flight) -> None:
        lines = [
            f"{flight.callsign}  {flight.aircraft}".rstrip(),
            f"{flight.origin or '?'} to {flight.destination or '?'}",
            f"{flight.altitude * 100:,} ft" if flight.altitude is not None else "altitude unknown",
            (f"{flight.knots} kn" if flight.knots is not None else "speed unknown")
            + (f", heading {flight.heading:.0f}°" if flight.heading is not None else ""),
        ]
        box = QRectF(self.width() - 172, 10, 160, 16 + 15 * len(lines))
        painter.setPen(QPen(FIELD, 1))
        painter.setBrush(QColor(11, 23, 34, 230))
        painter.drawRoundedRect(box, 5, 5)
        painter.setPen(LABEL)
        for number, line in enumerate(lines):
            painter.drawText(QPointF(box.x() + 10, box.y() + 19 + 15 * number), line)
