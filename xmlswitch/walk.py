"""One walk over a document: which paths of the index it has, how often, and the nodes whose values may be asked for.

A link that a path alone settles needs no more of the document: when all are settled the walk stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

if TYPE_CHECKING:
    from xmlswitch.automaton import State
    from xmlswitch.index import Index
    from xmlswitch.paths import Accept, PathEntry


class Findings:
    """`hits`: how many nodes ended where. `settled`: links that are sure to match, whatever else is in the document."""

    __slots__ = ("_trail", "hits", "settled")

    def __init__(self, trail: list[tuple[Accept, Any]], hits: dict[Accept, int], settled: int) -> None:
        self._trail = trail
        self.hits = hits
        self.settled = settled

    def nodes(self) -> dict[PathEntry, list[Any]]:
        """Elements, and texts of attributes and text nodes, in document order, of paths that have columns."""
        nodes: dict[PathEntry, list[Any]] = {}
        for accept, node in self._trail:
            for path in accept.valued:
                if path in nodes:
                    nodes[path].append(node)
                else:
                    nodes[path] = [node]
        return nodes


def walk(root: Any, index: Index, wanted: int = 0) -> Findings:
    """All of the document, or (`wanted`) no more than it takes to know that these links match."""
    automaton, layout, linking = index.automaton, index.layout, index.linking
    trail: list[tuple[Accept, Any]] = []
    hits: dict[Accept, int] = {}
    settled = 0
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
                if wanted:
                    settled |= accept.settled if accept.linking == linking else index.settled_by(accept)
                    if settled & wanted == wanted:
                        break
            else:
                hits[accept] = number + 1
            if accept.valued:
                trail.append((accept, element))
        if (state.attributes is not None or state.wildcard_attribute is not None) and element.attrib:
            _attributes(element, state, layout, hits, trail)
        if state.texts is not None:
            _texts(element, state.texts, layout, hits, trail)
    return Findings(trail, hits, settled)


def _attributes(
    element: Any, state: State, layout: int, hits: dict[Accept, int], trail: list[tuple[Accept, Any]]
) -> None:
    for name, text in element.items():
        for accept in (state.attributes.get(name) if state.attributes else None, state.wildcard_attribute):
            if accept is not None:
                hits[accept] = hits.get(accept, 0) + 1
                accept.look(layout)
                if accept.valued:
                    trail.append((accept, text))


def _texts(element: Any, accept: Accept, layout: int, hits: dict[Accept, int], trail: list[tuple[Accept, Any]]) -> None:
    texts = [element.text] if element.text else []
    texts += [child.tail for child in element if child.tail]  # comments and instructions too: they part texts
    if texts:
        hits[accept] = hits.get(accept, 0) + len(texts)
        accept.look(layout)
        if accept.valued:
            trail += [(accept, text) for text in texts]
