"""Links come and go with queries that branch where documents repeat: nobody loses what another gives up."""

from __future__ import annotations

import random

import pytest

from tests.xmlswitch.generate import QueryMaker, document
from xmlswitch import Query, QueryError, Switch

TWO_LEGS = b"<f><leg s='1'><alt>5</alt><fix>10</fix></leg><leg s='1'><alt>5</alt><fix>10</fix></leg></f>"


@pytest.mark.parametrize("holders", [[2], [2, 3]])
def test_unsubscribing_one_link_does_not_silence_another(holders):
    """The first holder was evaluated, later ones were decided node by node: the first took theirs along."""
    shared = Query.parse("/f/leg[fix]/alt >= 3 and translate(//@s,'NW','') != 2.5")
    switch: Switch[Query] = Switch(strict=True)
    for link in (0, 1, *holders):
        switch.add_link(link)
    switch.subscribe(0, shared)
    switch.subscribe(1, Query.parse("/f/leg[fix]/alt >= 290"))
    assert switch.match(TWO_LEGS) == {0}
    for link in holders:
        switch.subscribe(link, shared)
    assert switch.match(TWO_LEGS) == {0, *holders}
    switch.unsubscribe(0, shared)
    assert switch.match(TWO_LEGS) == set(holders)
    for link in holders:
        switch.unsubscribe(link, shared)
    assert switch.match(TWO_LEGS) == set()


@pytest.mark.parametrize("seed", range(12))
def test_churn_of_branching_queries_changes_nobody_elses_answers(seed):
    rng = random.Random(seed)
    maker = QueryMaker(rng)
    queries: list[Query] = []
    while len(queries) < 12:
        try:
            queries.append(Query.parse_untrusted(" and ".join(maker.query(3) for _ in range(rng.randint(1, 2)))))
        except QueryError:
            continue
    switch: Switch[Query] = Switch(strict=True, exact=True)
    held: dict[int, set[Query]] = {link: set() for link in range(4)}
    for link in held:
        switch.add_link(link)
    for _ in range(120):
        link, query = rng.randrange(4), rng.choice(queries)
        if query in held[link]:
            held[link].remove(query)
            switch.unsubscribe(link, query)
        else:
            held[link].add(query)
            switch.subscribe(link, query)
        packet = document(rng, rng.choice(["mixed", "recursive", "news", "flight"]))
        wanted = {link for link, theirs in held.items() if any(query.matches(packet) for query in theirs)}
        assert switch.match(packet) == wanted, packet
