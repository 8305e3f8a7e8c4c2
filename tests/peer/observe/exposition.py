"""A strict reader of Prometheus' text format (0.0.4), for tests: what it does not allow is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)?\}})? ([0-9.eE+-]+|NaN|[+-]Inf)")


@dataclass
class Family:
    kind: str = ""
    help: str = ""
    samples: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.samples.values())

    def of(self, **labels: str) -> float:
        """The sum of the samples with these labels."""
        return sum(value for found, value in self.samples.items() if set(labels.items()) <= found)


def parse(text: str) -> dict[str, Family]:
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, words = line.removeprefix("# HELP ").partition(" ")
            assert re.fullmatch(NAME, name), line
            assert name not in families, f"{name} is described twice"
            families[name] = Family(help=words)
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert not families[name].samples, f"the type of {name} comes after its samples"
            assert kind in ("counter", "gauge"), line
            families[name].kind = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, f"not a sample: {line!r}"
            family = families[match.group(1)]
            labels = frozenset(re.findall(LABEL, match.group(2) or ""))
            assert labels not in family.samples, f"told twice: {line}"
            family.samples[labels] = float(match.group(match.lastindex or 0))
    return families
