"""What packets say, as tables of plain columns: positions, plans, departures, arrivals, flights. docs/tables.md."""
