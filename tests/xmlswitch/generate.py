"""Random documents and random queries, from a seed: the same for every run of a test."""

from __future__ import annotations

import random

NAMES = "abcd"
VALUES = ["1", "2", "x", "x1", " 3 ", "2.5", "100", "-7", ""]


def document(rng: random.Random, kind: str = "any") -> bytes:
    return _KINDS[kind](rng).encode()


def _any(rng: random.Random) -> str:
    return _KINDS[rng.choice([kind for kind in _KINDS if kind != "any"])](rng)


def _element(rng: random.Random, depth: int, names: str, text: float) -> str:
    name = rng.choice(names)
    attributes = "".join(f' {key}="{rng.choice(VALUES)}"' for key in "xyz" if rng.random() < 0.25)
    inside = ""
    if depth and rng.random() < 0.85:
        for _ in range(rng.randint(0, 4)):
            inside += _element(rng, depth - 1, names, text) if rng.random() > text else rng.choice(_PIECES)
    if not inside and rng.random() < 0.5:
        return f"<{name}{attributes}/>"
    return f"<{name}{attributes}>{inside}</{name}>"


_PIECES = ["1", "2", "x", "x1", " 3 ", "2.5", "<!--1-->", "<?p 1?>", "<![CDATA[1]]>", "&#49;", "&lt;", "\n  ", "100"]


def _mixed(rng: random.Random) -> str:
    return _element(rng, 4, NAMES, 0.45)


def _recursive(rng: random.Random) -> str:
    return _element(rng, 6, "ab", 0.3)


def _deep(rng: random.Random) -> str:
    names = [rng.choice("abc") for _ in range(rng.randint(8, 40))]
    return "".join(f"<{n}>" for n in names) + rng.choice(VALUES) + "".join(f"</{n}>" for n in reversed(names))


def _namespaces(rng: random.Random) -> str:
    body = "".join(
        rng.choice(["<p:a x='1'>1</p:a>", "<b>x</b>", "<q:b p:x='2'/>", "<c xmlns=''>2</c>", "<p:b><a/></p:b>"])
        for _ in range(rng.randint(1, 5))
    )
    default = rng.choice(["", " xmlns='urn:d'"])
    return f"<a{default} xmlns:p='urn:p' xmlns:q='urn:q'>{body}</a>"


def _flight(rng: random.Random) -> str:
    """Shaped like the streams the project carries: few shapes, many values."""
    optional = f"<speed>{rng.randint(1, 9)}</speed>" if rng.random() < 0.6 else ""
    return (
        f"<a><b>x{rng.randint(1, 30)}</b><c x='{rng.choice(VALUES)}'><d>{rng.randint(0, 120)}</d>"
        f"<b>{rng.randint(0, 5)}</b>{optional}</c></a>"
    )


def _news(rng: random.Random) -> str:
    items = "".join(
        f"<b x='{number}'><c>{rng.choice(VALUES)}</c>{'<d>1</d>' * rng.randint(0, 2)}"
        f"{'<a><b/></a>' * (rng.random() < 0.3)}</b>"
        for number in range(rng.randint(0, 5))
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<a><d>{rng.choice(VALUES)}</d>{items}</a>'


_KINDS = {
    "any": _any,
    "mixed": _mixed,
    "recursive": _recursive,
    "deep": _deep,
    "namespaces": _namespaces,
    "flight": _flight,
    "news": _news,
}

NAMESPACES = {"p": "urn:p", "r": "urn:q", "d": "urn:d"}
_LITERALS = ["'1'", "'x'", "2", "1", "3", "''", "'x1'", "0", "2.5", "100", "'2'", "-7"]
_FUNCTIONS = [
    "string(%s)",
    "number(%s)",
    "string-length(%s)",
    "count(%s)",
    "normalize-space(%s)",
    "substring-before(%s,'1')",
    "substring-after(%s,'x')",
    "substring(%s,2)",
    "substring(%s,0,2.5)",
    "translate(%s,'x','1')",
    "sum(%s)",
    "%s + 1",
    "name(%s)",
    "floor(%s)",
    "concat(%s,'1')",
    "round(%s)",
]
_ODD_ENDS = [
    "node()",
    "..",
    "ancestor::a",
    "following-sibling::b",
    "self::a",
    "comment()",
    ".",
    "descendant::b",
    "preceding::a",
]


class QueryMaker:
    """Queries of every shape that XPath 1.0 has, most of them of the shapes the index knows."""

    def __init__(self, rng: random.Random, *, namespaces: bool = False, structural: bool = False) -> None:
        self.rng = rng
        self.names = ["a", "b", "c", "d", "*", "a", "b"] + (["p:a", "r:b", "p:*", "d:a"] if namespaces else [])
        self.structural = structural

    def query(self, depth: int = 2) -> str:
        return self.path(depth, True) if self.structural else self.truth(depth, True)

    def truth(self, depth: int, absolute: bool) -> str:
        rng, chance = self.rng, self.rng.random()
        if chance < 0.25:
            return self.path(depth, absolute)
        if chance < 0.6:
            right = rng.choice(_LITERALS) if rng.random() < 0.9 else self.path(depth, absolute)
            return f"{self.value(depth, absolute)} {rng.choice(['=', '!=', '<', '<=', '>', '>='])} {right}"
        if chance < 0.72:
            function = rng.choice(["starts-with", "contains"])
            return f"{function}({self.value(depth, absolute)}, '{rng.choice(['1', 'x', 'x1', ''])}')"
        if chance < 0.8 and depth:
            return f"not({self.truth(depth - 1, absolute)})"
        if depth:
            return f"({self.truth(depth - 1, absolute)} {rng.choice(['and', 'or'])} {self.truth(depth - 1, absolute)})"
        return self.path(depth, absolute)

    def value(self, depth: int, absolute: bool) -> str:
        path = self.path(depth, absolute)
        return path if self.rng.random() < 0.55 else self.rng.choice(_FUNCTIONS) % path

    def path(self, depth: int, absolute: bool) -> str:
        rng = self.rng
        if not absolute and rng.random() < 0.12:
            return "."
        text = rng.choice(["/", "//"]) if absolute else rng.choice(["", "", "", ".//"])
        length = rng.randint(1, 4 if self.structural else 3)
        for number in range(length):
            last = number == length - 1
            if last and rng.random() < 0.2:
                text += rng.choice(["@x", "@y", "@*", "text()", *([] if self.structural else _ODD_ENDS)])
            else:
                text += self.step(depth)
            text += "" if last else rng.choice(["/", "/", "//"])
        return text

    def step(self, depth: int) -> str:
        rng = self.rng
        text = rng.choice(self.names)
        while depth and rng.random() < 0.3:
            positional = rng.random() < 0.15
            text += (
                f"[{rng.choice(['1', '2', 'last()', 'position()=2', 'position()<3'])}]"
                if positional
                else (f"[{self.truth(depth - 1, False)}]")
            )
        return text
