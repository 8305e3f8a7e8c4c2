"""Packets whose markup was seen before: a regular expression reads their values, and nothing is parsed.

A stream sends few shapes of markup with ever new values. From a parsed packet a regular expression is made: the markup
literally, and a slot for each attribute value and each text. A packet that it matches *is* well-formed XML with the
same tree, so all that structure decides was decided before. Why that is so:

- only packets without comments, CDATA, processing instructions, references, carriage returns and DOCTYPE become shapes,
  in UTF-8, with no declaration beyond `<?xml version="1.0" ...?>`;
- a slot takes no `<`, `>`, `&`, carriage return or character that XML forbids; in an attribute also no tab, line feed
  or its own quote. So no slot can open, close, refer, end CDATA, or be normalised by the parser;
- a text that was there must be there again (it is a text node), and white space between elements is markup;
- values of `xmlns...` and `xml:...` attributes are markup: they change what names mean;
- the sample passed the parser's limits, and a longer packet than `max_shape_chars` is always parsed.

Where values go in the tree is learned by parsing the sample once more with numbered marks in the slots, and walking it
as any document. tests/xmlswitch/test_shapes.py compares with the parser on mutated packets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xmlswitch.document import parse_document
from xmlswitch.errors import MalformedDocument
from xmlswitch.match.matching import Structure
from xmlswitch.match.programs import Program, Template
from xmlswitch.match.walk import walk
from xmlswitch.query.evaluate import string_value

if TYPE_CHECKING:
    from xmlswitch.index.index import Index
    from xmlswitch.match.evaluation import KnownBounds

_DECLARATION = re.compile(
    r"""\s*(?:<\?xml\s+version=["']1\.0["'](?:\s+encoding=["'](?:utf-8|UTF-8)["'])?"""
    r"""(?:\s+standalone=["'](?:yes|no)["'])?\s*\?>)?"""
)
_NAME = r"""[^\s<>/"'=&]+"""
_TAG = re.compile(rf"""</?{_NAME}(?P<attributes>(?:\s+{_NAME}\s*=\s*(?:"[^"]*"|'[^']*'))*)\s*/?>""")
_ATTRIBUTE = re.compile(rf"""(\s+({_NAME})\s*=\s*)("[^"]*"|'[^']*')""")
_TEXT = re.compile(r"[^<]+")
_FORBIDDEN = r"\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff"
_TEXT_SLOT = rf"([^<>&\r{_FORBIDDEN}]+)"
_ATTRIBUTE_SLOT = rf"([^<>&\t\n\r%s{_FORBIDDEN}]*)"
_MARK_START, _MARK_END = "\ue000", "\ue001"
_MARK = re.compile(f"{_MARK_START}(\\d+){_MARK_END}")
_UNUSABLE = re.compile(f"<[!?]|[&\r{_MARK_START}{_MARK_END}]")
_VALUES = re.compile(r""">[^<]*[^<\s][^<]*<|"[^"<]*"|'[^'<]*'""")
_MAX_SLOTS = 200
_PATIENCE = 64  # markup that never came again, after which only some packets are remembered
_SAMPLED = 16
_PARSED = 4  # packets that are parsed after conditions at nodes changed, before their markup is studied again


class Shape:
    """One markup. What it means to the index is worked out when first needed, and again when the index changed."""

    __slots__ = ("_parsed", "_sample", "bounds", "program", "regex", "version")

    def __init__(self, regex: re.Pattern[str], sample: bytes) -> None:
        self.regex = regex
        self._sample = sample
        self.version = -1  # of the index, when it was studied
        self._parsed = 0  # packets since what is known of its frames was out of date
        self.program: Program | None = None
        self.bounds: KnownBounds | None = None  # of queries that had to be evaluated

    def current(self, index: Index) -> Program | None:
        """What it means to the index as it is now; None if that is not worth finding out yet."""
        program = self.program
        if program is None or self.version != index.version:
            return self._study(index)
        if program.tape and program.start is not index.waypoints.start():
            self._parsed += 1
            if self._parsed <= _PARSED:  # queries may come and go faster than that pays
                return None
            return self._study(index)
        return program

    def _study(self, index: Index) -> Program:
        start = index.waypoints.start()
        findings = walk(parse_document(self._sample), index)
        templates = {
            path: [_template(string_value(node)) for node in nodes] for path, nodes in findings.nodes().items()
        }
        structure = Structure(findings, lasts=True)
        structure = index.shared(structure.key, structure)
        tape = tuple(
            (action[0], None if action[1] is None else _template(action[1])) if isinstance(action, tuple) else action
            for action in findings.tape
        )
        program = self.program = Program(structure, tuple(findings.ends), templates, tape, findings.work, start)
        self.version = index.version
        self._parsed = 0
        return program


def _template(text: str) -> Template:
    pieces = _MARK.split(text)
    parts = tuple(int(piece) if number % 2 else piece for number, piece in enumerate(pieces) if number % 2 or piece)
    if len(parts) == 1 and isinstance(parts[0], int):
        return parts[0]
    return parts


@dataclass(slots=True)
class _Sample:
    pattern: list[str]
    marked: list[str]
    slots: int = 0

    def literal(self, text: str) -> None:
        self.pattern.append(re.escape(text))
        self.marked.append(text)

    def slot(self, pattern: str) -> None:
        self.pattern.append(pattern)
        self.marked.append(f"{_MARK_START}{self.slots}{_MARK_END}")
        self.slots += 1


def shape_of(packet: bytes) -> Shape | None:
    """The shape of a packet that the parser took; None for one that can't have a shape."""
    try:
        text = packet.decode("utf-8")
    except UnicodeDecodeError:
        return None
    start = _DECLARATION.match(text)
    at = start.end() if start else 0
    if _UNUSABLE.search(text, at):
        return None
    sample = _Sample([], [])
    sample.literal(text[:at])
    while at < len(text):
        tag = _TAG.match(text, at)
        if tag is not None:
            if not _take_tag(tag, sample):
                return None
            at = tag.end()
            continue
        piece = _TEXT.match(text, at)
        if piece is None or ">" in piece[0]:
            return None
        if piece[0].isspace():
            sample.literal(piece[0])
        else:
            sample.slot(_TEXT_SLOT)
        at = piece.end()
    if sample.slots > _MAX_SLOTS:
        return None
    regex = re.compile("".join(sample.pattern))
    # The parser took the sample; that its own regular expression takes it too is a cheap check of all of the above.
    if regex.fullmatch(text) is None:
        return None
    marked = "".join(sample.marked).encode()
    try:
        parse_document(marked)
    except MalformedDocument:
        return None
    return Shape(regex, marked)


def _take_tag(tag: re.Match[str], sample: _Sample) -> bool:
    text = tag[0]
    start, end = (place - tag.start() for place in tag.span("attributes"))
    sample.literal(text[:start])
    for attribute in _ATTRIBUTE.finditer(text, start, end):
        before, name, quoted = attribute.groups()
        if name == "xmlns" or name.startswith(("xmlns:", "xml:")):
            sample.literal(attribute[0])
            continue
        if any(character in quoted for character in ">\t\n"):
            return False
        sample.literal(before + quoted[0])
        sample.slot(_ATTRIBUTE_SLOT % quoted[0])
        sample.literal(quoted[0])
    sample.literal(text[end:])
    return True


class ShapeBook:
    """The shapes of a stream, found by how many tags and attributes a packet has."""

    def __init__(self, max_shapes: int, max_chars: int) -> None:
        self._max_shapes = max_shapes
        self._max_chars = max_chars
        self._shapes: dict[tuple[int, int], list[Shape]] = {}
        self._seen: dict[str, None] = {}
        self._strangers = 0
        self.number = 0

    def find(self, packet: bytes) -> tuple[Shape, tuple[str, ...]] | None:
        """The packet's shape and its values, if it has one."""
        if not self._shapes or len(packet) > self._max_chars:
            return None
        shapes = self._shapes.get((packet.count(b"<"), packet.count(b"=")))
        if not shapes:
            return None
        try:
            text = packet.decode("utf-8")
        except UnicodeDecodeError:
            return None
        for place, shape in enumerate(shapes):
            match = shape.regex.fullmatch(text)
            if match is not None:
                if place:  # step by step the frequent ones come to the front
                    shapes[place - 1 : place + 1] = shape, shapes[place - 1]
                return shape, match.groups()
        return None

    def notice(self, packet: bytes) -> None:
        """A packet that had to be parsed: when its markup comes for the second time, it becomes a shape."""
        if len(packet) > self._max_chars:
            return
        self._strangers += 1
        if self._strangers > _PATIENCE and self._strangers % _SAMPLED:
            return
        try:
            markup = _VALUES.sub("", packet.decode("utf-8"))
        except UnicodeDecodeError:
            return
        if markup not in self._seen:
            if len(self._seen) >= 4 * self._max_shapes:
                self._seen.clear()
            self._seen[markup] = None
            return
        del self._seen[markup]
        shape = shape_of(packet)
        if shape is None:
            return
        self._strangers = 0
        if self.number >= self._max_shapes:
            self._shapes.clear()
            self.number = 0
        # An `=` or `<` in a slot is another key: such a packet is parsed, no more.
        self._shapes.setdefault((packet.count(b"<"), packet.count(b"=")), []).append(shape)
        self.number += 1
