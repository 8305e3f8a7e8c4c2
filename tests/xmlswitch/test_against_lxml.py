"""The switch's answers against libxml2's own, query by query, over random documents, queries and changes.

No number in these documents is one that libxml2 reads otherwise than XPath 1.0 asks; those are in test_numerals.py.
"""

from __future__ import annotations

import random

import pytest
from lxml import etree

from tests.xmlswitch.generate import NAMESPACES, QueryMaker, document
from xmlswitch import Query, Switch, parse_document

EVERYTHING = Query.parse("true()")


@pytest.fixture(autouse=True)
def _without_budget(without_budget):
    """Answers are compared with libxml2's: nothing may be cut off."""


def oracle(text: str, root: etree._Element, namespaces: dict[str, str]) -> bool:
    return bool(etree.XPath(f"boolean({text})", namespaces=namespaces or None)(root))


def run(seed: int, *, kind: str, queries: int, documents: int, churn: int, namespaces: bool, structural: bool) -> None:
    rng = random.Random(seed)
    bound = NAMESPACES if namespaces else {}
    maker = QueryMaker(rng, namespaces=namespaces, structural=structural)
    switch: Switch[Query] = Switch()
    held: list[Query] = []
    for number in range(queries):
        held.append(Query.parse(maker.query(), bound))
        switch.add_link(number)
        switch.subscribe(number, held[number])
    for _ in range(documents):
        packet = document(rng, kind)
        root = parse_document(packet)
        matched = switch.match(packet)
        for number, query in enumerate(held):
            expected = oracle(query.text, root, bound)
            assert (number in matched) == expected, f"seed {seed}: {query.text} on {packet.decode()}"
        for number in rng.sample(range(queries), churn):
            switch.unsubscribe(number, held[number])
            held[number] = Query.parse(maker.query(), bound)
            switch.subscribe(number, held[number])
    assert switch.stats().cut_off == 0


@pytest.mark.parametrize("seed", range(24))
def test_every_shape_of_query(seed):
    run(seed, kind="any", queries=60, documents=8, churn=0, namespaces=False, structural=False)


@pytest.mark.parametrize("seed", range(100, 118))
def test_queries_come_and_go(seed):
    run(seed, kind="any", queries=50, documents=12, churn=8, namespaces=False, structural=False)


@pytest.mark.parametrize("seed", range(200, 212))
def test_namespaces(seed):
    run(seed, kind="namespaces", queries=60, documents=10, churn=4, namespaces=True, structural=False)


@pytest.mark.parametrize("seed", range(300, 310))
def test_structure_alone(seed):
    run(seed, kind="recursive", queries=150, documents=10, churn=10, namespaces=False, structural=True)


@pytest.mark.parametrize("seed", range(400, 408))
def test_many_packets_of_few_shapes(seed):
    """Shapes that come again are matched without a parse: the answers must be the same."""
    run(seed, kind="flight", queries=80, documents=40, churn=2, namespaces=False, structural=False)


def _crowded(rng: random.Random) -> str:
    """Conditions on few values, alone or together."""
    parts = [
        rng.choice(
            [
                f"/a/c/d {rng.choice(['<', '<=', '>', '>=', '=', '!='])} {rng.randint(0, 120)}",
                f"/a/b = 'x{rng.randint(1, 30)}'",
                f"starts-with(/a/b, 'x{rng.randint(1, 3)}')",
                f"contains(/a/b, '{rng.randint(1, 9)}')",
                f"not(/a/c/d > {rng.randint(0, 120)})",
                f"not(/a/c/b = '{rng.randint(0, 5)}')",
                f"/a/c/@x != '{rng.choice(['1', '2', 'x'])}'",
                f"//b > {rng.randint(0, 5)}",
                "not(/a/c/speed)",
                f"/a[b = 'x{rng.randint(1, 30)}']/c[d > {rng.randint(0, 120)} and b < {rng.randint(0, 5)}]",
                f"string-length(/a/c/speed) != {rng.randint(0, 1)}",
            ]
        )
        for _ in range(rng.randint(1, 3))
    ]
    return f" {rng.choice(['and', 'and', 'or'])} ".join(parts)


@pytest.mark.parametrize("seed", range(500, 505))
def test_crowds_under_one_path(seed):
    """So many conditions on the same few values that lists spill into tables."""
    rng = random.Random(seed)
    switch: Switch[Query] = Switch()
    held: dict[int, str] = {}
    for number in range(400):
        held[number] = _crowded(rng)
        switch.add_link(number)
        switch.subscribe(number, Query.parse(held[number]))
    for _ in range(25):
        packet = document(rng, "flight")
        root = parse_document(packet)
        matched = switch.match(packet)
        for number, text in held.items():
            assert (number in matched) == oracle(text, root, {}), f"seed {seed}: {text} on {packet.decode()}"
        for number in rng.sample(range(400), 30):
            switch.unsubscribe(number, Query.parse(held[number]))
            held[number] = _crowded(rng)
            switch.subscribe(number, Query.parse(held[number]))


@pytest.mark.parametrize("seed", range(600, 616))
def test_links_with_crowds_of_queries_some_of_them_shared(seed):
    """One query of a link is enough: which others it has, who else has the same, and its slot must not matter."""
    rng = random.Random(seed)
    links = rng.choice([2, 5, 16])
    first_slot = rng.choice([0, 0, 120, 20_000])  # few links, as many as just too many, and masks too wide to be made
    switch: Switch[Query] = Switch()
    compiled: dict[str, etree.XPath] = {}
    held: list[tuple[int, str]] = []

    def add() -> None:
        text = rng.choice(held)[1] if held and rng.random() < 0.1 else _crowded(rng)
        compiled.setdefault(text, etree.XPath(f"boolean({text})"))
        held.append((rng.randrange(links), text))
        switch.subscribe(held[-1][0], Query.parse(text))

    for link in range(links):
        switch.add_link(link, slot=first_slot + link)
    for _ in range(rng.choice([30, 90, 300])):  # fewer than a block has room for at first, and more
        add()
    for _ in range(60):
        packet = document(rng, "flight")
        root = parse_document(packet)
        if rng.random() < 0.2:  # from time to time those with large slots want everything: few are left to be asked
            satisfied = {link for link in range(links) if first_slot + link >= 128}
            for link in satisfied:
                switch.subscribe(link, EVERYTHING)
            expected = {link for link, text in held if compiled[text](root)} | satisfied
            assert switch.match(packet) == expected, f"seed {seed}: {packet.decode()}"
            for link in satisfied:
                switch.unsubscribe(link, EVERYTHING)
        expected = {link for link, text in held if compiled[text](root)}
        assert switch.match(packet) == expected, f"seed {seed}: {packet.decode()}"
        for _ in range(rng.choice([0, 1, 20])):
            link, text = held.pop(rng.randrange(len(held)))
            switch.unsubscribe(link, Query.parse(text))
            add()


@pytest.mark.parametrize("seed", range(700, 706))
def test_a_stream_of_one_shape_while_queries_gather(seed):
    """What a shape learns (which column to try first, which to read anyway) and what blocks add as they grow."""
    rng = random.Random(seed)
    links = rng.choice([1, 2, 3])
    switch: Switch[Query] = Switch()
    for link in range(links):
        switch.add_link(link)
    held: list[tuple[int, str, str, int, int]] = []
    for _ in range(400):
        if rng.random() < 0.7:
            column, value, low, high = rng.choice("abc"), rng.choice("vw"), rng.randint(0, 90), rng.randint(10, 100)
            held.append((rng.randrange(links), column, value, low, high))
            text = f"/f/{column} = '{value}' and /f/d > {low} and /f/e < {high}"
            switch.subscribe(held[-1][0], Query.parse(text))
        values = {name: rng.choice("vwx") for name in "abc"}
        d, e = rng.randint(0, 100), rng.randint(0, 100)
        packet = "<f>{}<d>{}</d><e>{}</e></f>".format("".join(f"<{n}>{v}</{n}>" for n, v in values.items()), d, e)
        expected = {link for link, column, value, low, high in held if values[column] == value and d > low and e < high}
        assert switch.match(packet.encode()) == expected, f"seed {seed}: {packet}"


def test_a_condition_that_comes_later_is_decided_in_frames_known_before():
    packet = b"<r><x><y k='1'><z/></y><y k='2'/></x><x><y k='2'><z/></y></x></r>"
    switch: Switch[Query] = Switch()
    for link, text in enumerate(["//x[w][y[@k='1']/z]", "//x[not(w)][y[@k='1']/z]"]):
        switch.add_link(link)
        switch.subscribe(link, Query.parse(text))
    assert switch.match(packet) == {1}
    switch.add_link(2)
    switch.subscribe(2, Query.parse("//x[not(w)][y[@k='2']/z]"))
    assert switch.match(packet) == {1, 2}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10_000, 12_000))
def test_long_campaign(seed):
    rng = random.Random(seed)
    run(
        seed,
        kind="any",
        queries=rng.choice([20, 100, 300]),
        documents=20,
        churn=rng.choice([0, 5, 15]),
        namespaces=False,
        structural=rng.random() < 0.3,
    )
