"""One walk over a document: which paths of the index it has, how often, and the nodes whose values may be asked for.

A link that a path alone settles needs no more of the document: when all are settled the walk stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from xmlswitch.index.budget import NODE_WORK
from xmlswitch.index.waypoints import Spot, Waypoint
from xmlswitch.query.evaluate import string_value

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.index import Index
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.index.scopes import ScopeSet

_HAS_OTHER_NODES = etree.XPath("boolean(//comment() | //processing-instruction())")
_CHARGED_WORK = 25_600  # that is charged at once: a walk goes from element to element quickly


# What a walk does to the frames: it comes to a place with a text, or sets some bits there; or it leaves a node.
Action = tuple[Spot, str | None] | Waypoint


class Findings:
    """`ends`: how many nodes ended where. `tape`: what the walk did to the frames, if it was recorded, and its work."""

    __slots__ = ("ends", "tape", "trail", "work")

    def __init__(self) -> None:
        self.trail: list[tuple[Accept, Any]] = []
        self.ends: dict[Accept, int] = {}
        self.tape: list[Action] = []
        self.work = 0

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

    Without an answer nothing is decided on the way: what would be done to the frames is recorded. Written flat: most of
    a document's time goes here.
    """
    waypoints, layout, journal = index.waypoints, index.layout + index.shelves, index.journal
    findings = Findings()
    ends, trail, tape = findings.ends, findings.trail, findings.tape
    # With many links a walk never ends before the document does: what paths alone settle is found out afterwards.
    stopping = answer if answer is not None and answer.is_short else None
    # What is open: elements, and where they stand; all bits of their frames.
    elements: list[Any] = [None]
    stack = [waypoints.start()]
    held = 0
    reported: dict[ScopeSet, int] = {}

    def leave(left: Waypoint) -> None:
        nonlocal held
        if answer is None:
            tape.append(left)
        else:
            held = left.leave(held, reported, answer)

    def note(spot: Spot, text: str) -> None:
        """A node with a value: an attribute, a text, or an element."""
        nonlocal held
        for accept in spot.main:
            if accept not in ends:
                accept.look(layout)
            findings.note(accept, text)
        if answer is None:
            tape.append((spot, text))
        else:
            held = spot.note(text, held)

    names = waypoints.names()
    # Where each element is visited, so are the texts between elements: each with the element before it. Found out when
    # the first text is asked for: many walks end before.
    in_passing: bool | None = None if names is None else False
    depths: dict[Any, int] = {None: 0}  # of elements that are open, and of those beyond them that no path names
    charged = 0
    for element in root.iter("*") if names is None else root.iter(*names):
        parent = element.getparent()
        waypoint = stack[-1]
        if parent is not elements[-1]:
            depth = -1 if names is None else _depth_beyond(parent, depths)
            while elements[-1] is not parent and len(elements) - 1 != depth:
                elements.pop()
                stack.pop()
                if waypoint.opens is not None:
                    leave(waypoint)
                waypoint = stack[-1]
            if stopping is not None and stopping.done:
                return findings
            if names is not None and elements[-1] is not parent:
                waypoint = waypoint.beyond or waypoints.beyond(waypoint)
        if in_passing and waypoint.texts is not None and (tail := element.tail):
            note(waypoint.texts, tail)
        if names is not None:
            depths[element] = len(stack)
        name = element.tag
        waypoint = waypoint.next.get(name) or waypoints.follow(waypoint, name)
        elements.append(element)
        stack.append(waypoint)
        accept = waypoint.accept
        if accept is not None:
            if accept in ends:
                ends[accept] += 1
            else:
                ends[accept] = 1
                accept.look(layout)
                if stopping is not None:
                    stopping.mask(accept.links(journal))
                    if stopping.done:
                        return findings
            if accept.valued:
                trail.append((accept, element))
        if waypoint.live:
            charged += waypoint.work
            if charged > _CHARGED_WORK and answer is not None:
                index.work.charge(charged)
                charged = 0
            spot = waypoint.node
            if spot is None:
                pass
            elif not spot.has_values:
                if answer is None:
                    tape.append((spot, None))
                else:
                    held |= spot.fixed
            elif len(element):
                text = string_value(element)
                index.work.charge(len(text) + NODE_WORK)
                note(spot, text)
            else:
                note(spot, element.text or "")
        if waypoint.few is not None:
            for name, spot in waypoint.few:
                if (text := element.get(name)) is not None:
                    note(spot, text)
        else:
            for name, text in element.items():
                if (spot := waypoint.attribute(name)) is not None:
                    note(spot, text)
        if waypoint.texts is not None:
            if in_passing is None:
                in_passing = not _HAS_OTHER_NODES(root)
            if text := element.text:
                note(waypoint.texts, text)
            if not in_passing and len(element):  # comments and instructions too: they part texts
                for child in element:
                    if tail := child.tail:
                        note(waypoint.texts, tail)
    while stack:
        waypoint = stack.pop()
        if waypoint.opens is not None:
            leave(waypoint)
    findings.work = charged
    return findings


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
