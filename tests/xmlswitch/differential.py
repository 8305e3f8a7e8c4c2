"""Links with several queries that come and go, over the whole grammar, against lxml: one scenario per seed.

`make fuzz` runs it for as long as it is given (target `switch`), `make test` a slice (test_differential.py).
"""

from __future__ import annotations

import random
import re
from typing import Any

from lxml import etree

from tests.xmlswitch.generate import NAMESPACES, VALUES, QueryMaker, document
from xmlswitch import Interest, MemberLimits, Query, QueryError, Switch, parse_document

_NUMBERS = ["1", "2", "-7", "0", "2.5", "100", "3"]
_TEXTS = ["'1'", "'x'", "''", "'x1'", "'2'"]
_VALUE = re.compile(r"""(>| [xyz]=["'])([^<>&"']+)(<|["'])""")
_AXES = ["ancestor", "ancestor-or-self", "descendant", "descendant-or-self", "following", "following-sibling"]
_AXES += ["parent", "preceding", "preceding-sibling", "self", "child", "attribute"]


class WholeGrammar(QueryMaker):
    """Whatever XPath 1.0 allows, where libxml2's numbers are those of the specification."""

    def query(self, depth: int = 2) -> str:
        return self.twig() if self.rng.random() < 0.4 else super().query(depth)

    def twig(self) -> str:
        """Conditions at nodes inside conditions at nodes: what is decided node by node."""
        return self.rng.choice(["/", "//", "//"]) + self._branch(3) + self.rng.choice(["", "/b", "//c", "/@x"])

    def _branch(self, depth: int) -> str:
        rng = self.rng
        text = rng.choice(self.names)
        for _ in range(rng.randint(0, 3) if depth else 0):
            chance = rng.random()
            if chance < 0.5:
                inside = rng.choice(["", "", ".//"]) + self._branch(depth - 1)
            elif chance < 0.8:
                value, operator = rng.choice(["@x", "@y", "b", "text()", "."]), rng.choice(["=", "!=", ">"])
                inside = f"{value} {operator} {rng.choice(_TEXTS)}"
            else:
                inside = f"{self._branch(depth - 1)} or {self._branch(depth - 1)}"
            text += f"[not({inside})]" if rng.random() < 0.2 else f"[{inside}]"
        return text

    def truth(self, depth: int, absolute: bool) -> str:
        rng = self.rng
        if not depth or rng.random() < 0.6:
            return super().truth(depth, absolute)
        return rng.choice([self._compared, self._united, self._filtered, self._logic, self._on_axis])(depth, absolute)

    def _number(self, depth: int, absolute: bool) -> str:
        rng, path = self.rng, self.path(max(depth - 1, 0), absolute)
        return rng.choice(
            [
                f"count({path})",
                f"sum({path})",
                f"string-length({path})",
                f"({path} * 2)",
                f"({path} + {rng.choice(_NUMBERS)})",
                f"({path} mod 2)",
                f"({path} div 2)",
                f"-{path}",
                f"ceiling({path})",
                f"number({path})",
                rng.choice(_NUMBERS),
            ]
        )

    def _text(self, depth: int, absolute: bool) -> str:
        rng, path = self.rng, self.path(max(depth - 1, 0), absolute)
        return rng.choice(
            [
                f"name({path})" if ":" not in path else f"local-name({path})",
                f"local-name({path})",
                f"namespace-uri({path})",
                f"concat({path}, {rng.choice(_TEXTS)}, {path})",
                f"normalize-space({path})",
                f"translate({path}, 'x1', 'y')",
                f"substring({path}, {rng.choice(_NUMBERS)}, {rng.choice(_NUMBERS)})",
                f"string({path})",
                rng.choice(_TEXTS),
            ]
        )

    def _compared(self, depth: int, absolute: bool) -> str:
        operator = self.rng.choice(["=", "!=", "<", "<=", ">", ">="])
        sides = [self.rng.choice([self._number, self._text, self.path])(depth, absolute) for _ in range(2)]
        return f"{sides[0]} {operator} {sides[1]}"

    def _united(self, depth: int, absolute: bool) -> str:
        union = " | ".join(self.path(max(depth - 1, 0), absolute) for _ in range(self.rng.randint(2, 3)))
        return self.rng.choice([f"({union})", f"({union}) = {self.rng.choice(_TEXTS)}", f"count({union}) > 1"])

    def _filtered(self, depth: int, absolute: bool) -> str:
        inside = self.rng.choice(["1", "last()", "position() > 1", self.truth(max(depth - 1, 0), False)])
        return f"({self.path(max(depth - 1, 0), absolute)})[{inside}]{self.rng.choice(['', '/b', '//@x'])}"

    def _logic(self, depth: int, absolute: bool) -> str:
        one, other = self.truth(max(depth - 1, 0), absolute), self.truth(max(depth - 1, 0), absolute)
        return self.rng.choice([f"({one}) = ({other})", f"boolean({one})", f"not({one} or {other})", f"({one}) != {1}"])

    def _on_axis(self, depth: int, absolute: bool) -> str:
        axis = self.rng.choice(_AXES)
        test = self.rng.choice(["*", "a", "b", "x"] if axis == "attribute" else ["*", "a", "b", "node()", "text()"])
        return f"{self.path(max(depth - 1, 0), absolute)}/{axis}::{test}"


def packet_of(rng: random.Random, kind: str) -> bytes:
    """A document, perhaps with comments, instructions and CDATA in places where they part texts."""
    text = document(rng, kind).decode()
    if rng.random() < 0.4:
        pieces = text.split(">")
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(1, len(pieces)) if len(pieces) > 2 else 1
            noise = rng.choice(["<!--c-->", "<?p i?>", f"<![CDATA[{rng.choice(VALUES)}]]>", "<!---->", "x"])
            if at < len(pieces) - 1 and not pieces[at - 1].endswith(("/", "?", "]]", "--")):
                pieces[at] = noise + pieces[at]
        text = ">".join(pieces)
    before = rng.choice(["", "", "<!--before-->", "<?before x?>"]) if not text.startswith("<?xml") else ""
    return (before + text + rng.choice(["", "", "<!--after-->", "\n"])).encode()


def revalued(rng: random.Random, packet: bytes) -> bytes:
    """The same markup with other values."""

    def other(value: re.Match[str]) -> str:
        return value[0] if value[2].isspace() else value[1] + (rng.choice(VALUES) or "1") + value[3]

    text = _VALUE.sub(other, packet.decode())
    return text.encode() if is_well_formed(text.encode()) else packet


def is_well_formed(packet: bytes) -> bool:
    try:
        etree.fromstring(packet)
    except etree.XMLSyntaxError:
        return False
    return b"<![CDATA[]]>" not in packet  # of which libxml2 makes a text node; test_wrong_answers.py has those


def scenario(seed: int | bytes, *, steps: int = 12) -> int:
    """Subscribe, match, unsubscribe at random; how many answers were compared."""
    rng = random.Random(seed)
    kind = rng.choice(["mixed", "recursive", "news", "flight", "namespaces", "any"])
    spaced = kind in ("namespaces", "any")
    maker = WholeGrammar(rng, namespaces=spaced, structural=rng.random() < 0.2)
    bound = NAMESPACES if spaced else {}
    links = rng.choice([1, 3, 8])
    switch: Switch[Query] = Switch(strict=True, exact=True)
    for link in range(links):
        switch.add_link(link, slot=link + rng.choice([0, 0, 200]) * (link == links - 1))
    interest = Interest(MemberLimits(max_members=rng.choice([3, 12, 1000])))
    held: list[tuple[int, Query, Any]] = []
    compared = 0
    for _ in range(steps):
        for _ in range(rng.randint(0, 4)):
            if held and rng.random() < 0.4:
                link, query, _ = held.pop(rng.randrange(len(held)))
                switch.unsubscribe(link, query)
                interest.remove(query)
                continue
            text = maker.query(rng.randint(1, 3))
            try:
                query = Query.parse_untrusted(text, bound)
            except QueryError:
                continue
            again = Query.decode_untrusted(query.encode())
            assert again == query, (text, query.canonical, again.canonical)
            assert again.expr == query.expr, (text, query.canonical)
            link = rng.randrange(links)
            switch.subscribe(link, query)
            interest.add(query)
            held.append((link, query, etree.XPath(f"boolean({text})", namespaces=bound or None)))
        packet = packet_of(rng, kind)
        if not is_well_formed(packet):
            continue
        root = parse_document(packet)
        expected = set()
        for link, query, xpath in held:
            holds = bool(xpath(root))
            assert query.matches(packet) == holds, (query.text, packet)
            compared += 1
            if holds:
                expected.add(link)
        times = rng.choice([1, 1, 3, 7])  # by then its markup may be known, and what it means to conditions at nodes
        others = [revalued(rng, packet) for _ in range(2)] if times > 1 else []
        for other in [packet] * times + others:
            if other is not packet:
                root = parse_document(other)
                compared += len(held)
                expected_of = {link for link, _, xpath in held if xpath(root)}
            else:
                expected_of = expected
            found = switch.match(other)
            assert found == expected_of, (seed, [(at, q.text) for at, q, _ in held], other, found, expected_of)
        if expected:
            assert any(member.matches(packet) for member in interest.members), (seed, packet)
    return compared
