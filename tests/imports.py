"""The import graph of the project, read from the source: every import counts, lazy, type-only and by name alike."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ["asdi", "dcp", "xmlswitch", "dht", "peer", "pipeline", "demo", "bench"]
# "peer.cli.join:join" or "peer.api" in a table of lazy imports.
_MODULE_NAME = re.compile(rf"((?:{'|'.join(PACKAGES)})(?:\.[a-z_0-9]+)+)(?::[A-Za-z_]+)?")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def files(package: str) -> list[Path]:
    return sorted((REPOSITORY / package).rglob("*.py"))


MODULES = {name_of(path): path for package in PACKAGES for path in files(package)}


@cache
def source(path: Path) -> tuple[str, ast.Module]:
    """A file, read and parsed once: most rules look at every file."""
    text = path.read_text()
    return text, ast.parse(text)


@cache
def imports(path: Path) -> frozenset[str]:
    """What a file imports, as full names: of our own packages modules, of others whatever the statement says."""
    text, tree = source(path)
    loads_by_name = any(loader in text for loader in ("import_module", "set_forkserver_preload"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
        elif loads_by_name and isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = _MODULE_NAME.fullmatch(node.value)
            if match and match[1] in MODULES:
                found.add(match[1])
    return frozenset(found - {name_of(path)})


def graph() -> dict[str, set[str]]:
    return {name: {other for other in imports(path) if other in MODULES} for name, path in MODULES.items()}


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by whatever way round (Tarjan's components, without recursion)."""
    found: list[list[str]] = []
    order: dict[str, int] = {}
    least: dict[str, int] = {}
    stack: list[str] = []
    for start in edges:
        if start in order:
            continue
        work = [(start, iter(sorted(edges[start])))]
        order[start] = least[start] = len(order)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = least[other] = len(order)
                    stack.append(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in stack:
                    least[node] = min(least[node], order[other])
            else:
                work.pop()
                if work:
                    least[work[-1][0]] = min(least[work[-1][0]], least[node])
                if least[node] == order[node]:
                    group = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    if len(group) > 1:
                        found.append(sorted(group))
    return found
