"""One walk over a document: which paths of the index it has, how often, and the nodes whose values may be asked for.

A link that a path alone settles needs no more of the document: when all are settled the walk stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from xmlswitch.index.budget import MARK_WORK
from xmlswitch.index.waypoints import MAIN, Mark

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.index import Index
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.index.scope_sets import Kept


_HAS_OTHER_NODES = etree.XPath("boolean(//comment() | //processing-instruction())")
_CHARGED_MARKS = 256  # that are charged together: a walk goes from element to element quickly


class Findings:
    """`ends`: how many nodes ended where. `framed`: some nodes are in the scope of conditions."""

    __slots__ = ("ends", "framed", "trail")

    def __init__(self) -> None:
        self.trail: list[tuple[Accept, Any]] = []
        self.framed = False
        self.ends: dict[Accept, int] = {}

    def note(self, accept: Accept, node: Any) -> None:
        self.ends[accept] = self.ends.get(accept, 0) + 1
        if accept.valued:
            self.trail.append((accept, node))

    def nodes(self) -> dict[PathEntry, list[Any]]:
        """Elements, and texts of attributes and text nodes, in document order, of paths that have columns."""
        nodes: dict[PathEntry, list[Any]] = {}
        for accept, node in self.trail:
            for path in accept.valued:
                if path in nodes:
                    nodes[path].append(node)
                else:
                    nodes[path] = [node]
        return nodes


def walk(root: Any, index: Index, answer: Answer | None = None) -> Findings:
    """Look at all of the document, or no more than it takes to know that all links of the answer match.

    Without an answer nothing is decided on the way: no frames are opened.
    """
    waypoints, layout, journal = index.waypoints, index.layout, index.journal
    findings = Findings()
    ends, trail = findings.ends, findings.trail
    start = waypoints.start()
    findings.framed = start.opens is not None
    deciding = answer is not None and bool(index.frames.scopes)
    # What is open: elements, where they stand, and their frames: what was noted, which facts hold, nodes that are kept.
    elements: list[Any] = [None]
    stack = [start]
    noted, facts, places = [0], [0], [0]
    kept: list[Kept | None] = [None]
    texts_of: dict[int, str] = {}

    def close(depth: int) -> None:
        """Leave all elements that are deeper."""
        while len(stack) > depth:
            elements.pop()
            left = stack.pop()
            if deciding and answer is not None:
                scopes, mask, held, nodes = left.opens, noted.pop(), facts.pop(), kept.pop()
                places.pop()
                if scopes is None or (not mask and (scopes.find_idle() if scopes.is_idle is None else scopes.is_idle)):
                    continue
                for at, bits in scopes.close(left.ends, mask, held, nodes, texts_of, answer):
                    facts[at] |= bits
                if answer.done:
                    return

    def note_texts(at_element: int, marks: tuple[Mark, ...], texts: list[str]) -> None:
        for at, bit, accept, is_kept in marks:
            if at == MAIN:
                accept.look(layout)
                for text in texts:
                    findings.note(accept, text)
            elif deciding:
                noted[at] |= bit
                if is_kept:
                    for text in texts:
                        _keep(kept, at, accept, at_element, text)

    names = waypoints.names()
    # Where each element is visited, so are the texts between elements: each with the element before it. Found out when
    # the first text is asked for: many walks end before.
    in_passing: bool | None = None if names is None else False
    depths: dict[Any, int] = {None: 0}  # of elements that are open, and of those beyond them that no path names
    place = marked = 0
    work = index.frames.work
    for element in root.iter("*") if names is None else root.iter(*names):
        parent = element.getparent()
        if parent is not elements[-1]:
            depth = _depth_of(parent, elements) if names is None else _depth_beyond(parent, depths)
            close(depth + 1)
            if answer is not None and answer.done:
                return findings
        waypoint = stack[-1]
        if names is None:
            if in_passing and waypoint.texts and (tail := element.tail):
                note_texts(places[-1], waypoint.texts, [tail])
        elif parent is not elements[-1]:
            waypoint = waypoint.beyond or waypoints.beyond(waypoint)
        if names is not None:
            depths[element] = len(stack)
        name = element.tag
        waypoint = waypoint.next.get(name) or waypoints.follow(waypoint, name)
        elements.append(element)
        stack.append(waypoint)
        if waypoint.opens is not None:
            findings.framed = True
        accept = waypoint.accept
        if accept is not None:
            number = ends.get(accept)
            if number is None:
                ends[accept] = 1
                accept.look(layout)
                if answer is not None:
                    answer.mask(accept.links(journal))
                    if answer.done:
                        return findings
            else:
                ends[accept] = number + 1
            if accept.valued:
                trail.append((accept, element))
        if deciding:
            place += 1
            places.append(place)
            noted.append(0)
            facts.append(0)
            kept.append(None)
            if waypoint.marks:
                marked += len(waypoint.marks)
                if marked > _CHARGED_MARKS:
                    work.charge(MARK_WORK * marked)
                    marked = 0
                for at, bit, accept, is_kept in waypoint.marks:
                    noted[at] |= bit
                    if is_kept:
                        _keep(kept, at, accept, place, element)
        if waypoint.has_attributes:
            found = element.items() if waypoint.names is None else _attributes(element, waypoint.names)
            for name, text in found:
                for at, bit, accept, is_kept in waypoint.attribute(name):
                    if at == MAIN:
                        accept.look(layout)
                        findings.note(accept, text)
                    elif deciding:
                        noted[at] |= bit
                        if is_kept:
                            _keep(kept, at, accept, place, text)
        if waypoint.texts:
            if in_passing is None:
                in_passing = not _HAS_OTHER_NODES(root)
            texts = [text] if (text := element.text) else []
            if not in_passing and len(element):  # comments and instructions too: they part texts
                texts += [tail for child in element if (tail := child.tail)]
            if texts:
                note_texts(place, waypoint.texts, texts)
    close(0)
    return findings


def _depth_of(parent: Any, elements: list[Any]) -> int:
    """Where an element that is open stands."""
    depth = len(elements) - 2
    while elements[depth] is not parent:
        depth -= 1
    return depth


def _depth_beyond(parent: Any, depths: dict[Any, int]) -> int:
    """The depth of the nearest element above that is open; each element on the way there is asked once."""
    depth = depths.get(parent)
    climbed = []
    while depth is None:
        climbed.append(parent)
        parent = parent.getparent()
        depth = depths.get(parent)
    for element in climbed:
        depths[element] = depth
    return depth


def _attributes(element: Any, names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, text) for name in names if (text := element.get(name)) is not None]


def _keep(kept: list[Kept | None], at: int, accept: Accept, place: int, node: Any) -> None:
    nodes = kept[at]
    if nodes is None:
        kept[at] = {accept: [(place, node)]}
    elif accept in nodes:
        nodes[accept].append((place, node))
    else:
        nodes[accept] = [(place, node)]
