"""Stretches and ledgers against the plainest model there is: a set of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dcp import ledger
from dcp.ledger import Ledger
from dcp.stretches import Stretches

SPACE = 40
stretch = st.tuples(st.integers(0, SPACE), st.integers(0, SPACE)).map(sorted).filter(lambda s: s[0] < s[1])
claims = st.lists(
    st.tuples(st.sampled_from(["say", "hole", "forget", "unsay"]), stretch, st.sets(st.integers(1, SPACE))), max_size=14
)


def numbers(start, end):
    return set(range(start + 1, end + 1))


@given(st.lists(stretch, max_size=14), st.integers(0, SPACE))
def test_stretches_are_a_set_of_numbers(added, below):
    stretches, model = Stretches(), set()
    for start, end in added:
        stretches.add(start, end)
        model |= numbers(start, end)
    stretches.forget(below)
    model = {an for an in model if an > below}
    assert {an for start, end in stretches for an in numbers(start, end)} == model
    assert all(a < b for a, b in stretches)
    assert all(end < start for end, start in zip(stretches.ends, stretches.starts[1:], strict=False))
    for position in range(SPACE + 1):
        end = position
        while end + 1 in model:
            end += 1
        assert stretches.end_from(position) == end
        start = position
        while start in model:
            start -= 1
        if position + 1 in model and position not in model:
            start = position
        assert stretches.start_of(position) == start
        assert stretches.has(position) == (position in model)
    for start in range(0, SPACE, 7):
        missing = stretches.missing(start, SPACE)
        assert {an for a, b in missing for an in numbers(a, b)} == numbers(start, SPACE) - model


class Model:
    """What a ledger must say, number by number."""

    def __init__(self) -> None:
        self.floor = 0
        self.said: set[int] = set()
        self.holes: set[int] = set()
        self.ans: set[int] = set()


@given(claims)
def test_a_ledger_says_of_every_number_what_its_parent_said(steps):
    book, model = Ledger(0), Model()
    for what, (start, end), ans in steps:
        inside = sorted(an for an in ans if start < an <= end)
        if what == "say":
            book.say(start, end, inside)
            model.said |= numbers(start, end)
            model.ans |= set(inside)
        elif what == "hole":
            book.say_hole(start, end)
            model.holes |= numbers(start, end)
        elif what == "unsay":
            book.unsay(inside)
            model.said -= set(inside)
            model.ans -= set(inside)
        else:
            book.forget(start)
            model.floor = max(model.floor, start)
        for part in (model.said, model.holes, model.ans):
            part -= {an for an in part if an <= model.floor}
    assert book.ans == sorted(model.ans)
    for an in range(1, SPACE + 1):
        is_empty = an in model.said and an not in model.ans and an > model.floor
        assert book.is_empty_at(an) == is_empty, an
        assert book.lists(an) == (an in model.ans)
    spoken = model.said | model.holes
    unspoken = {an for a, b in book.unspoken(SPACE, 1_000) for an in numbers(a, b)}
    assert unspoken == numbers(model.floor, SPACE) - spoken
    for position in range(model.floor, SPACE):
        end = position
        while end + 1 in spoken:
            end += 1
        assert book.spoken_until(position) == end
        end = position
        while end + 1 in model.said and end + 1 not in model.ans:
            end += 1
        assert book.tail_from(position) == end
        assert book.hole_at(position) == (position + 1 in model.holes)
        assert book.listed(position, SPACE) == sorted(an for an in model.ans if an > position)
    for prev in range(model.floor + 1, SPACE):
        if prev in model.said:
            start = prev
            while start in model.said and start not in model.ans:
                start -= 1
            assert book.quiet_since(prev) == start


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 3)), max_size=200))
def test_a_ledger_is_bounded_whatever_is_said(said):
    book = Ledger(0)
    try:
        ledger.MAX_STRETCHES, ledger.MAX_ANS, before = 8, 16, (ledger.MAX_STRETCHES, ledger.MAX_ANS)
        for start, length in said:
            book.say(start, start + length, list(range(start + 1, start + length + 1)))
            book.say_hole(start + 20_000, start + 20_000 + length)
            assert len(book.said) <= 8
            assert len(book.holes) <= 8
            assert len(book.ans) <= 16
    finally:
        ledger.MAX_STRETCHES, ledger.MAX_ANS = before


def test_unspoken_is_cut_at_the_most_that_may_be_asked():
    book = Ledger(0)
    for start in range(0, 100, 2):
        book.say(start, start + 1, [])
    assert book.unspoken(100, 5) == [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)]
