"""One walk over a document: which paths of the index it has, how often, and the nodes whose values may be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lxml import etree

if TYPE_CHECKING:
    from xmlswitch.automaton import Automaton, State
    from xmlswitch.paths import Accept, PathEntry


class Findings(NamedTuple):
    """`hits`: how many nodes ended where. `nodes`: elements, and texts of attributes and text nodes."""

    hits: dict[Accept, int]
    nodes: dict[PathEntry, list[Any]]


def walk(root: Any, automaton: Automaton, layout: int) -> Findings:
    hits: dict[Accept, int] = {}
    nodes: dict[PathEntry, list[Any]] = {}
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
            number = hits.get(accept)
            if number is None:
                hits[accept] = 1
                accept.look(layout)
            else:
                hits[accept] = number + 1
            for path in accept.valued:
                if path in nodes:
                    nodes[path].append(element)
                else:
                    nodes[path] = [element]
        if (state.attributes is not None or state.wildcard_attribute is not None) and element.attrib:
            _attributes(element, state, layout, hits, nodes)
        if state.texts is not None:
            _texts(element, state.texts, layout, hits, nodes)
    return Findings(hits, nodes)


def _attributes(
    element: Any, state: State, layout: int, hits: dict[Accept, int], nodes: dict[PathEntry, list[Any]]
) -> None:
    for name, text in element.items():
        for accept in (state.attributes.get(name) if state.attributes else None, state.wildcard_attribute):
            if accept is not None:
                hits[accept] = hits.get(accept, 0) + 1
                accept.look(layout)
                for path in accept.valued:
                    nodes.setdefault(path, []).append(text)


def _texts(
    element: Any, accept: Accept, layout: int, hits: dict[Accept, int], nodes: dict[PathEntry, list[Any]]
) -> None:
    texts = [element.text] if element.text else []
    texts += [child.tail for child in element if child.tail]  # comments and instructions too: they part texts
    if texts:
        hits[accept] = hits.get(accept, 0) + len(texts)
        accept.look(layout)
        for path in accept.valued:
            nodes.setdefault(path, []).extend(texts)
