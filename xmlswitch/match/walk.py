"""One walk over a document: which paths of the index it has, how often, and the nodes whose values may be asked for.

A link that a path alone settles needs no more of the document: when all are settled the walk stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from xmlswitch.index.budget import MARK_WORK
from xmlswitch.index.waypoints import MAIN

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.frames import Facts, Frame
    from xmlswitch.index.index import Index
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.index.waypoints import Waypoint


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
    waypoints, layout, journal, frames = index.waypoints, index.layout, index.journal, index.frames
    findings = Findings()
    ends, trail = findings.ends, findings.trail
    waypoint = waypoints.start()
    findings.framed = waypoint.opens is not None
    above: list[Waypoint] = []
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
                if waypoint.opens is not None:
                    frames.close(waypoint.opens, frame, at, facts, texts_of, answer)
                    if answer.done:
                        return findings
            waypoint = above.pop()
            continue
        above.append(waypoint)
        name = element.tag
        waypoint = waypoint.next.get(name) or waypoints.follow(waypoint, name)
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
            open_frames.append({})
            marked += len(waypoint.marks)
            if marked > _CHARGED_MARKS:
                work.charge(MARK_WORK * marked)
                marked = 0
            for at, accept in waypoint.marks:
                frame = open_frames[at]
                if accept in frame:
                    frame[accept].append((place, element))
                else:
                    frame[accept] = [(place, element)]
        if waypoint.has_attributes and element.attrib:
            for name, text in element.items():
                for at, accept in waypoint.attribute(name):
                    _note(at, accept, place, text, findings, open_frames, layout, deciding)
        if waypoint.texts:
            texts = [element.text] if element.text else []
            texts += [child.tail for child in element if child.tail]  # comments and instructions too: they part texts
            for at, accept in waypoint.texts:
                for text in texts:
                    _note(at, accept, place, text, findings, open_frames, layout, deciding)
    if deciding and answer is not None and waypoint.opens is not None:
        frames.close(waypoint.opens, open_frames[0], 0, facts, texts_of, answer)
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
