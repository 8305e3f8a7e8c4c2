"""Scenarios: timed faults and the promises that must hold, in small TOML files, and what plays them."""
