"""From counters to rates: what each link of a peer brought between two reports. Pure."""

from __future__ import annotations

from typing import Any


def link_rates(before: dict[str, Any], after: dict[str, Any], seconds: float) -> dict[str, dict[str, Any]]:
    """By parent: packets per second, share of first copies, share of datagrams that the network lost."""
    old = {link["address"]: link for link in before.get("up", [])}
    rates: dict[str, dict[str, Any]] = {}
    for link in after["up"]:
        was = old.get(link["address"])
        copies = link["copies"] - was["copies"] if was is not None else link["copies"]
        first = link["first"] - was["first"] if was is not None else link["first"]
        lost = link["lost"] - (was["lost"] if was is not None else 0)
        passed = link["passed"] - (was["passed"] if was is not None else 0)
        if copies < 0:  # the link was reopened and counts from zero
            copies, first = link["copies"], link["first"]
        rates[link["name"]] = {
            "rate": round(copies / seconds, 1) if seconds > 0 else 0.0,
            "won": round(first / copies, 3) if copies > 0 else 0.0,
            "loss": round(lost / (lost + passed), 3) if lost + passed > 0 else 0.0,
            "rtt": link["rtt"],
            "sound": link["sound"],
            "dispute": link.get("dispute"),
            "protection": link.get("protection"),
        }
    return rates
