"""One walk over a document: which paths of the index it has, how often, and the values of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lxml import etree

from xmlswitch.evaluate import string_value

if TYPE_CHECKING:
    from xmlswitch.automaton import Automaton, State
    from xmlswitch.columns import ColumnEntry
    from xmlswitch.paths import Accept


class Findings(NamedTuple):
    """`hits`: how many nodes ended where. `values`: in document order, not yet through the columns' functions."""

    hits: dict[Accept, int]
    values: dict[ColumnEntry, list[str]]


def walk(root: Any, automaton: Automaton, layout: int) -> Findings:
    hits: dict[Accept, int] = {}
    values: dict[ColumnEntry, list[str]] = {}
    state = automaton.start
    above: list[State] = []
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "end":
            state = above.pop()
            continue
        above.append(state)
        name = element.tag
        following = state.next.get(name)
        if following is None:
            following = automaton.follow(state, name)
        state = following
        accept = state.element
        if accept is not None:
            hits[accept] = hits.get(accept, 0) + 1
            columns = accept.columns_now(layout)
            if columns:
                _keep(values, columns, string_value(element))
        if (state.attributes is not None or state.wildcard_attribute is not None) and element.attrib:
            _attributes(element, state, layout, hits, values)
        if state.texts is not None:
            _texts(element, state.texts, layout, hits, values)
    return Findings(hits, values)


def _keep(values: dict[ColumnEntry, list[str]], columns: tuple[ColumnEntry, ...], text: str) -> None:
    for column in columns:
        found = values.get(column)
        if found is None:
            values[column] = [text]
        elif not column.column.first:
            found.append(text)


def _attributes(
    element: Any, state: State, layout: int, hits: dict[Accept, int], values: dict[ColumnEntry, list[str]]
) -> None:
    for name, text in element.items():
        for accept in (state.attributes.get(name) if state.attributes else None, state.wildcard_attribute):
            if accept is not None:
                hits[accept] = hits.get(accept, 0) + 1
                columns = accept.columns_now(layout)
                if columns:
                    _keep(values, columns, text)


def _texts(
    element: Any, accept: Accept, layout: int, hits: dict[Accept, int], values: dict[ColumnEntry, list[str]]
) -> None:
    texts = [element.text] if element.text else []
    texts += [child.tail for child in element if child.tail]  # comments and instructions too: they part texts
    if texts:
        hits[accept] = hits.get(accept, 0) + len(texts)
        columns = accept.columns_now(layout)
        if columns:
            for text in texts:
                _keep(values, columns, text)
