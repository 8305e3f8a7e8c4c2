"""Scenarios: timed faults and expected promises in a small TOML file. Read and checked whole before anything starts.

docs/demo.md is the specification.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from demo.run.faults import Weather
from demo.run.lying import LIES
from demo.scenarios.selectors import SELECTORS, is_selector
from xmlswitch import Query, QueryError

MAX_SECONDS: Final = 3600.0
MAX_FILE_BYTES: Final = 256 << 10
_WHO: Final = "who"
_FIELDS: Final[Mapping[str, tuple[set[str], set[str]]]] = {
    # action: (fields it must have, fields it may have)
    "say": (set(), set()),
    "kill": ({_WHO}, set()),
    "freeze": ({_WHO}, set()),
    "thaw": ({_WHO}, set()),
    "restart": ({_WHO}, set()),
    "partition": ({_WHO}, set()),
    "heal": (set(), set()),
    "weather": (set(), {"loss", "delay_ms", "rate_kB", "link"}),
    "storm": (set(), {"routers", "clients"}),
    "pace": ({_WHO}, {"rate"}),
    "query": ({_WHO, "text"}, set()),
    "lie": ({_WHO}, {"how"}),
    "put back": (set(), set()),
}


class ScenarioError(Exception):
    """What is wrong with a scenario file, in one sentence."""


@dataclass(frozen=True, slots=True)
class Step:
    at: float
    do: str
    who: tuple[str, ...] = ()
    say: str = ""
    weather: Weather | None = None
    link: tuple[str, str] | None = None
    routers: int = 0
    clients: int = 0
    rate: float | None = None
    text: str = ""
    how: str | None = None
    """Of a lie; None ends it."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What the run must show; `wrong` (repeated, reordered, altered or unwanted packets) is 0 always."""

    lost: int = 0
    gaps: int = 0
    stall_s: float | None = None
    """Longest that a packet may take to a client that is not itself stopped, slowed or cut off."""
    repaired_within_s: float | None = None
    """Maximum time from the last fault, or a peer's return, until every running peer has its parents."""
    settled_within_s: float = 60.0
    """After the last step: until everybody has its parents and everything that was due."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    about: str
    seconds: float
    steps: tuple[Step, ...]
    promise: Promise = field(default_factory=Promise)


def built_in() -> list[str]:
    """Names of the scenarios that come with the demo."""
    folder = files("demo") / "scenarios"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def load(name: str) -> Scenario:
    """A file by its path, or a built-in one by its name; ScenarioError."""
    if name in built_in():
        return parse((files("demo") / "scenarios" / f"{name}.toml").read_text(), name)
    path = Path(name)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ScenarioError(f"{name}: file is larger than {MAX_FILE_BYTES >> 10} KiB")
        return parse(path.read_text(), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ScenarioError(
            f"{name} is neither a readable file ({reason}) nor one of {', '.join(built_in())}"
        ) from None


def parse(text: str, name: str) -> Scenario:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: invalid TOML: {error}") from None
    try:
        return _scenario(table, name)
    except (ValueError, TypeError) as error:
        raise ScenarioError(f"{name}: {error}") from None


def _scenario(table: dict[str, Any], name: str) -> Scenario:
    _only(table, {"title", "about", "seconds", "step", "promise"}, "a scenario")
    steps = table.get("step", [])
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError("steps must be written as [[step]]")
    parsed = tuple(_step(step, number) for number, step in enumerate(steps, 1))
    if any(later.at < earlier.at for earlier, later in pairwise(parsed)):
        raise ValueError("steps must be in order of time")
    last = parsed[-1].at if parsed else 0.0
    seconds = _number(table.get("seconds", last + 2.0), "seconds", 0.1, MAX_SECONDS)
    if seconds < last:
        raise ValueError(f"it ends after {seconds:g} s, but its last step is at {last:g} s")
    promise = table.get("promise", {})
    if not isinstance(promise, dict):
        raise ValueError("promises must be written as [promise]")
    _only(promise, {"lost", "gaps", "stall_s", "repaired_within_s", "settled_within_s"}, "[promise]")
    for key, value in promise.items():
        _number(value, f"promise {key}", 0, 1e9)
    return Scenario(
        name,
        _text(table.get("title", name), "title"),
        _text(table.get("about", ""), "about"),
        seconds,
        parsed,
        Promise(**promise),
    )


def _step(table: dict[str, Any], number: int) -> Step:
    try:
        return _checked_step(table)
    except (ValueError, QueryError) as error:
        raise ValueError(f"step {number}: {error}") from None


def _checked_step(table: dict[str, Any]) -> Step:
    do = table.get("do", "say")
    if do not in _FIELDS:
        raise ValueError(f"do must be one of {', '.join(_FIELDS)}, got {do!r}")
    must, may = _FIELDS[do]
    _only(table, {"at", "do", "say"} | must | may, do)
    if missing := must - set(table):
        raise ValueError(f"{do} needs {' and '.join(sorted(missing))}")
    who = table.get("who", [])
    names = (who,) if isinstance(who, str) else tuple(who)
    link = tuple(table["link"]) if "link" in table else None
    for name in (*names, *(link or ())):
        if not isinstance(name, str) or not is_selector(name):
            raise ValueError(f"{name!r} does not name a peer; use {SELECTORS}")
    if link is not None and len(link) != 2:
        raise ValueError("a link has two ends")
    weather = None
    if do == "weather":
        weather = Weather(
            _number(table.get("loss", 0.0), "loss", 0, 1),
            _number(table.get("delay_ms", 0.0), "delay_ms", 0, 5_000) / 1e3,
            _number(table["rate_kB"], "rate_kB", 0.1, 1e6) * 1e3 if "rate_kB" in table else None,
        )
    text = _text(table.get("text", ""), "text")
    if do == "query":
        Query.parse(text)
    how = table.get("how")
    if how is not None and how not in LIES:
        raise ValueError(f"how must be one of {', '.join(LIES)}, got {how!r}")
    return Step(
        _number(table.get("at", 0.0), "at", 0, MAX_SECONDS),
        do,
        names,
        _text(table.get("say", ""), "say"),
        weather,
        link,
        int(_number(table.get("routers", 0), "routers", 0, 100)),
        int(_number(table.get("clients", 0), "clients", 0, 100)),
        _number(table["rate"], "rate", 0.1, 1e5) if "rate" in table else None,
        text,
        how,
    )


def _only(table: dict[str, Any], known: set[str], what: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{what} has no {', '.join(unknown)}; allowed: {', '.join(sorted(known))}")


def _number(value: Any, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, got {value!r}")
    return value if isinstance(value, int) and name.startswith("promise") else float(value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > 2_000:
        raise ValueError(f"{name} must be text of at most 2,000 characters")
    return value
