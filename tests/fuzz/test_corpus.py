"""Every input that ever reached new code, and some mutations of each: the short slice of `make fuzz`."""

from __future__ import annotations

import random

import pytest

from peer.mesh import encoding
from tests.fuzz.corpus import inputs_of, mutated, seeds
from tests.fuzz.targets import TARGETS

MUTATIONS = 2_000
SLOW_MUTATIONS = 500
# One input of these is a whole index or mesh, not one decoder.
SLOW = {"switch"}


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_a_decoder(target):
    check, rng = TARGETS[target], random.Random(1)
    inputs = inputs_of(target)
    mutations = SLOW_MUTATIONS if target in SLOW else MUTATIONS
    for data in [b"", *inputs, *(mutated(rng.choice(inputs), rng) for _ in range(mutations))]:
        try:
            check(data)
        except Exception as error:
            error.add_note(f"input: {data.hex()}")
            raise


def test_a_decoder_that_breaks_its_word_is_noticed(monkeypatch):
    """The check can fail: a decoder that lets another error out is found by its very first seed."""

    def broken(body):
        raise IndexError("index out of range")

    monkeypatch.setitem(TARGETS, "messages", TARGETS["messages"])
    monkeypatch.setattr("tests.fuzz.targets._MESSAGES", [(broken, encoding.encode_join)])
    with pytest.raises(IndexError):
        TARGETS["messages"](seeds("messages")[0])
