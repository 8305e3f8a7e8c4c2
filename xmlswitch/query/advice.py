"""A query against a sample: how many packets match, which step selects nothing, and what the packets have instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lxml import etree

from xmlswitch.document import parse_document
from xmlswitch.errors import EvaluationCutOff, MalformedDocument
from xmlswitch.query.query import Query
from xmlswitch.query.syntax import ANY_DEEPER, ROOT, Path, Step, all_parts
from xmlswitch.query.writing import write

MAX_DOCUMENTS = 1000  # that are looked at for what a step selects
_MAX_PATHS = 32
_FIRST = 3


@dataclass(frozen=True, slots=True)
class Advice:
    """`hints`: for each path that is nowhere in the sample, its first step that selects nothing, and why perhaps."""

    documents: int
    matched: int
    refused: int
    first: tuple[str, ...]
    hints: tuple[str, ...]


def advise(query: Query, documents: Iterable[bytes]) -> Advice:
    number = matched = refused = 0
    first: list[str] = []
    roots: list[Any] = []
    for document in documents:
        number += 1
        try:
            root = parse_document(document)
        except MalformedDocument:
            refused += 1
            continue
        if len(roots) < MAX_DOCUMENTS:
            roots.append(root)
        try:
            holds = query.matches_everything or query.holds(root)
        except EvaluationCutOff:
            holds = True  # as everywhere: a packet too many is safe
        if holds:
            matched += 1
            if len(first) < _FIRST:
                first.append(document.decode("utf-8", "replace")[:100])
    return Advice(number, matched, refused, tuple(first), tuple(_hints(query, roots)) if roots else ())


def _hints(query: Query, roots: list[Any]) -> list[str]:
    """Of the paths from the document; XPath 2.0+ by what it needs."""
    expr = query.need().expr if query.expr is None else query.expr
    if expr is None:
        return []
    paths = [part for part in all_parts(expr) if isinstance(part, Path) and part.start == ROOT]
    found: dict[str, None] = {}
    for path in paths[:_MAX_PATHS]:
        hint = _of_path(path, roots, query.namespaces)
        if hint is not None:
            found[hint] = None
    return list(found)


def _of_path(path: Path, roots: list[Any], bound: Mapping[str, str]) -> str | None:
    steps: list[Step] = []
    for step in path.steps:
        steps.append(Step(step.axis, step.test))
        if step == ANY_DEEPER:
            continue
        if not _selects(Path(ROOT, tuple(steps)), roots):
            shown = write(Path(ROOT, tuple(steps)), {uri: prefix for prefix, uri in bound.items()})
            return f"{shown} selects nothing in the sample{_instead(step, roots)}"
    return None


def _selects(path: Path, roots: list[Any]) -> bool:
    names = {step.test[1:].partition("}")[0] for step in path.steps if step.test[:1] == "{"}
    prefixes = {uri: f"n{number}" for number, uri in enumerate(sorted(names))}
    xpath = etree.XPath(
        f"boolean({write(path, prefixes)})", namespaces={prefix: uri for uri, prefix in prefixes.items()} or None
    )
    return any(xpath(root) for root in roots)


def _instead(step: Step, roots: list[Any]) -> str:
    """Where a name is that was looked for in the wrong place."""
    local = step.test.rpartition("}")[2]
    if step.axis not in ("child", "attribute") or local.endswith((")", "*")):
        return ""
    elements = _places("//*[local-name() = $name]", local, roots)
    attributes = _places("//*[@*[local-name() = $name]]", local, roots)
    for element in elements:
        uri = etree.QName(element).namespace or ""
        if f"{{{uri}}}{local}" != step.test and uri:
            return f"; `{local}` exists here in namespace {uri}; try --namespace s={uri} and s:{local}"
        if not uri and step.test[:1] == "{":
            return f"; `{local}` exists here without a namespace: write it without a prefix"
    if step.axis == "child" and elements:
        return f"; `{local}` exists here as {_path_of(elements[0])}"
    if step.axis == "child" and attributes:
        return f"; `{local}` exists here as an attribute: {_path_of(attributes[0])}/@{local}"
    if step.axis == "attribute" and elements:
        return f"; `{local}` exists here as an element: {_path_of(elements[0])}"
    if step.axis == "attribute" and attributes:
        return f"; `@{local}` exists here at {_path_of(attributes[0])}"
    lower = "translate(local-name(), 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
    others = _places(f"//*[{lower} = $name]", local.lower(), roots)
    return f"; here it is spelled {etree.QName(others[0]).localname}" if others else ""


def _places(text: str, name: str, roots: list[Any]) -> list[Any]:
    xpath = etree.XPath(text)
    for root in roots:
        found: list[Any] = xpath(root, name=name)
        if found:
            return found
    return []


def _path_of(element: Any) -> str:
    names = [etree.QName(one).localname for one in (*reversed(list(element.iterancestors())), element)]
    return "/" + "/".join(names)
