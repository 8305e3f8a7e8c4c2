"""One walk over a document: which paths of the index it has, how often, and the nodes whose values may be asked for.

A link that a path alone settles needs no more of the document: when all are settled the walk stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from xmlswitch.index.budget import MARK_WORK
from xmlswitch.index.spots import MAIN

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.frames import Facts, Frame
    from xmlswitch.index.index import Index
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.index.spots import Spot


_CHARGED_MARKS = 256  # that are charged together: a walk goes from element to element quickly


class Findings:
    """`hits`: how many nodes ended where. `framed`: some nodes are in the scope of conditions."""

    __slots__ = ("framed", "hits", "trail")

    def __init__(self) -> None:
        self.trail: list[tuple[Accept, Any]] = []
        self.framed = False
        self.hits: dict[Accept, int] = {}

    def note(self, accept: Accept, node: Any) -> None:
        self.hits[accept] = self.hits.get(accept, 0) + 1
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
    spots, layout, journal, frames = index.spots, index.layout, index.journal, index.frames
    findings = Findings()
    hits, trail = findings.hits, findings.trail
    spot = spots.start()
    findings.framed = spot.opens is not None
    above: list[Spot] = []
    open_frames: list[Frame] = [{}]
    facts: Facts = {}
    texts_of: dict[int, str] = {}
    places: list[int] = []
    place = 0
    deciding = answer is not None and bool(frames.scopes)
    work, marked = frames.work, 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "end":
            if deciding and answer is not None:
                frame, at = open_frames.pop(), places.pop()
                if spot.opens is not None:
                    frames.close(spot.opens, frame, at, facts, texts_of, answer)
                    if answer.done:
                        return findings
            spot = above.pop()
            continue
        above.append(spot)
        name = element.tag
        spot = spot.next.get(name) or spots.follow(spot, name)
        if spot.opens is not None:
            findings.framed = True
        accept = spot.accept
        if accept is not None:
            number = hits.get(accept)
            if number is None:
                hits[accept] = 1
                accept.look(layout)
                if answer is not None:
                    answer.mask(accept.links(journal))
                    if answer.done:
                        return findings
            else:
                hits[accept] = number + 1
            if accept.valued:
                trail.append((accept, element))
        if deciding:
            place += 1
            places.append(place)
            open_frames.append({})
            marked += len(spot.marks)
            if marked > _CHARGED_MARKS:
                work.charge(MARK_WORK * marked)
                marked = 0
            for at, accept in spot.marks:
                frame = open_frames[at]
                if accept in frame:
                    frame[accept].append((place, element))
                else:
                    frame[accept] = [(place, element)]
        if spot.has_attributes and element.attrib:
            for name, text in element.items():
                for at, accept in spot.attribute(name):
                    _note(at, accept, place, text, findings, open_frames, layout, deciding)
        if spot.texts:
            texts = [element.text] if element.text else []
            texts += [child.tail for child in element if child.tail]  # comments and instructions too: they part texts
            for at, accept in spot.texts:
                for text in texts:
                    _note(at, accept, place, text, findings, open_frames, layout, deciding)
    if deciding and answer is not None and spot.opens is not None:
        frames.close(spot.opens, open_frames[0], 0, facts, texts_of, answer)
    return findings


def _note(
    at: int,
    accept: Accept,
    place: int,
    text: str,
    findings: Findings,
    open_frames: list[Frame],
    layout: int,
    deciding: bool,
) -> None:
    """An attribute or a text, in the document or in a frame."""
    if at == MAIN:
        accept.look(layout)
        findings.note(accept, text)
    elif deciding:
        frame = open_frames[at]
        if accept in frame:
            frame[accept].append((place, text))
        else:
            frame[accept] = [(place, text)]
