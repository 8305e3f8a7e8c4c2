"""The built-in feed: real flights of 2013, flown again every day as ASDI messages."""

from asdi.flights.feed import MAX_COPIES, Feed, Line, Packet

__all__ = ["MAX_COPIES", "Feed", "Line", "Packet"]
