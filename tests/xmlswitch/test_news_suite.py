"""Thousands of filtering queries over news documents with recursive elements, a link each: the answers are libxml2's.

The vocabulary follows NITF and RSS. Nothing here is like the flights that the mesh carries.
"""

from __future__ import annotations

import json
import random

import pytest
from lxml import etree

from xmlswitch import Query, Switch, parse_document
from xmlswitch.cli import main

INSIDE = {
    "nitf": ["head", "body"],
    "head": ["title", "meta", "meta", "tobject", "docdata"],
    "tobject": ["subject", "subject"],
    "docdata": ["date", "urgency", "key-list"],
    "key-list": ["keyword", "keyword", "keyword"],
    "body": ["hedline", "byline", "content", "content"],
    "hedline": ["hl1", "hl2"],
    "byline": ["person", "org"],
    "content": ["block", "p", "media", "block"],
    "block": ["p", "block", "media", "quote", "p", "hl2"],
    "quote": ["p", "block", "person"],
    "media": ["caption", "reference"],
    "caption": ["p"],
    "p": ["em", "person", "org", "em"],
    "em": ["em"],
}
ATTRIBUTES = {"meta": "name", "media": "type", "block": "class", "keyword": "key", "urgency": "ed", "p": "lede"}


@pytest.fixture(autouse=True)
def _without_budget(without_budget):
    """Answers are compared with libxml2's: nothing may be cut off."""


VALUES = ["a", "b", "c", "1", "2", "3", " 2 ", "2.5", "x y"]
WORDS = ["storm", "court", "rate", "flight", "2", "7"]


def document(rng: random.Random) -> bytes:
    def element(name: str, depth: int) -> str:
        key = ATTRIBUTES.get(name)
        attribute = f' {key}="{rng.choice(VALUES)}"' if key and rng.random() < 0.7 else ""
        inside = "".join(element(c, depth + 1) for c in INSIDE.get(name, []) if depth < 9 and rng.random() < 0.55)
        text = " ".join(rng.choices(WORDS, k=rng.randint(0, 3))) if rng.random() < 0.6 else ""
        return f"<{name}{attribute}>{text}{inside}{rng.choice(['', '', 'tail', '<!-- c -->', '&amp;'])}</{name}>"

    return element("nitf", 0).encode()


def walk(rng: random.Random, name: str, most: int) -> list[str]:
    names = []
    while len(names) < most and INSIDE.get(name):
        name = rng.choice(INSIDE[name])
        names.append(name)
    return names


def path(rng: random.Random, start: str, most: int, depth: int) -> str:
    text = ""
    for name in walk(rng, start, most) or ["p"]:
        if rng.random() < 0.12:
            continue
        separator = rng.choice(["/", "/", "/", "//"])
        text += separator if text else ""
        text += "*" if rng.random() < 0.12 else name
        if depth and rng.random() < 0.35:
            text += f"[{predicate(rng, name, depth - 1)}]"
    return text or "p"


def predicate(rng: random.Random, name: str, depth: int) -> str:
    chance = rng.random()
    below = rng.choice(["", "", ".//"]) + path(rng, name, 2, depth)
    attribute = f"@{ATTRIBUTES.get(name, 'key')}"
    if chance < 0.2:
        return attribute if rng.random() < 0.3 else f"{attribute} = '{rng.choice(VALUES)}'"
    if chance < 0.3:
        return f"{attribute} {rng.choice(['<', '>=', '!='])} {rng.randint(1, 3)}"
    if chance < 0.5:
        return below
    if chance < 0.6:
        return f"contains({rng.choice(['.', below])}, '{rng.choice(WORDS)}')"
    if chance < 0.7:
        return f"{below} = '{rng.choice(WORDS)}'"
    if chance < 0.78:
        return f"not({below})"
    if chance < 0.83:
        return f"text() = '{rng.choice(WORDS)}'"
    if chance < 0.88:
        return rng.choice(["1", "2", "last()", "position() < 3"])
    joint = rng.choice(["and", "or"])
    return f"{predicate(rng, name, 0)} {joint} not({below})" if depth else f"{below} {joint} {attribute}"


def query(rng: random.Random) -> str:
    text = rng.choice(["//", "/nitf/", "/*/", "/nitf//"]) + path(rng, "nitf", 6, 2)
    if rng.random() < 0.1:
        text = f"{text} and {rng.choice(['', 'not'])}(//{path(rng, 'body', 3, 1)})"
    return text


@pytest.mark.parametrize("seed", range(4))
def test_every_answer_is_libxml2s_while_queries_come_and_go(seed):
    rng = random.Random(seed)
    texts = [query(rng) for _ in range(500)]
    switch: Switch[Query] = Switch()
    for number, text in enumerate(texts):
        switch.add_link(number)
        switch.subscribe(number, Query.parse(text))
    for _ in range(10):
        packet = document(rng)
        root = parse_document(packet)
        expected = {n for n, text in enumerate(texts) if etree.XPath(f"boolean({text})")(root)}
        found = switch.match(packet)
        assert found == expected, [texts[n] for n in found ^ expected][:3]
        for number in rng.sample(range(500), 40):
            switch.unsubscribe(number, Query.parse(texts[number]))
            texts[number] = query(rng)
            switch.subscribe(number, Query.parse(texts[number]))
    assert switch._index._index.frames.scopes  # queries that branch were decided node by node
    for number, text in enumerate(texts):
        switch.unsubscribe(number, Query.parse(text))
    frames = switch._index._index.frames
    assert not frames.scopes
    assert not frames._paths
    assert not switch._index._index._framed


def test_few_links_get_the_same_answers_as_many():
    rng = random.Random(9)
    texts = [query(rng) for _ in range(300)]
    many: Switch[Query] = Switch()
    few: Switch[Query] = Switch()
    for link in range(5):
        few.add_link(link)
    for number, text in enumerate(texts):
        many.add_link(number)
        many.subscribe(number, Query.parse(text))
        few.subscribe(number % 5, Query.parse(text))
    for _ in range(12):
        packet = document(rng)
        assert few.match(packet) == {number % 5 for number in many.match(packet)}


def test_the_command_line_answers_by_line(tmp_path, capsys):
    rng = random.Random(3)
    texts = [query(rng) for _ in range(200)]
    (tmp_path / "queries").write_text("\n".join(texts), encoding="utf-8")
    files = []
    for number in range(4):
        files.append(tmp_path / f"{number}.xml")
        files[-1].write_bytes(document(rng))
    assert main(["match", "--queries", str(tmp_path / "queries"), *map(str, files), "--json"]) == 0
    for line, file in zip(capsys.readouterr().out.splitlines(), files, strict=True):
        root = parse_document(file.read_bytes())
        expected = [n for n, text in enumerate(texts, 1) if etree.XPath(f"boolean({text})")(root)]
        assert json.loads(line)["matches"] == expected
