"""Signed beats: who believes them, for how long, and what their counts prove."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcp import Gap, Omitted, Packet, Started
from dht.identity import Identity
from peer.items import QuerySwitched
from peer.trust import beats
from peer.trust.beats import Beat, BeatBook, RootBeats, encode_beat
from peer.trust.counting import MAX_COUNTED, PATIENCE, Counting, Missing
from peer.trust.keys import SigningKeys, signer_of
from xmlswitch import Query

ROOT = Identity.from_seed(bytes(range(32)))
MALLORY = Identity.from_seed(bytes(range(64, 96)))
SIGNER = signer_of(ROOT.public_key)
WALL = 1_700_000_000.0
GOLDEN = (
    "d6a97c5731323334353637380000018bcfe5680000000000000000020000000000000009000000000000000700000000"
    "00000000f9e99723446c0f9b6a36c7ec095ededaf743579ceb8a4f866f1c19114d1e3ca3d68baf68b03dcb0f69ae3c5e"
    "e597d1ec056d41e6f63a74ce374ac1fa3254dc0a"
)


def beat(head, *, packets=None, time=WALL, run=b"12345678", after=0, by=ROOT):
    return Beat(signer_of(by.public_key), run, int(time * 1_000), after, head, head if packets is None else packets)


def signed(*arguments, by=ROOT, stream="asdi", **fields):
    return encode_beat(beat(*arguments, by=by, **fields), stream, by.sign)


class Book(BeatBook):
    def __init__(self, *, expires_at=None):
        keys = SigningKeys()
        keys.add(ROOT.public_key, expires_at=expires_at)
        self.heads = []
        super().__init__("asdi", keys, lambda: WALL, self.heads.append)


def test_golden_bytes_are_those_of_the_documentation():
    assert signed(9, packets=7, after=2).hex() == GOLDEN
    docs = Path(__file__).resolve().parents[3] / "docs" / "security.md"
    assert GOLDEN in "".join(docs.read_text().split())


def test_a_root_signs_once_a_second_and_sooner_when_its_head_moves_far():
    root = RootBeats("asdi", SIGNER, ROOT.sign, lambda: b"12345678")
    assert root.due_at is None
    root.published(3)
    book = Book()
    assert book.hear_untrusted(root.next(0.0, WALL) or b"", 0.0) == beat(3, packets=1, after=2)
    assert root.next(0.9, WALL) is None
    root.published(4)
    assert book.hear_untrusted(root.next(1.0, WALL + 1) or b"", 1.0) == beat(4, packets=2, after=2, time=WALL + 1)
    root.published(4 + beats.EARLY_PACKETS + 1)
    assert root.due_at == pytest.approx(1.0 + beats.EARLY_INTERVAL)


def test_a_new_run_begins_where_counting_can_t_go_on():
    runs = iter((b"11111111", b"22222222"))
    root = RootBeats("asdi", SIGNER, ROOT.sign, lambda: next(runs))
    root.published(1)
    root.begin_again()
    assert root.due_at is None
    root.published(9)
    got = Book().hear_untrusted(root.next(0.0, WALL) or b"", 0.0)
    assert got == beat(9, packets=1, after=8, run=b"22222222")


def test_every_prefix_and_mutation_is_refused():
    data = signed(9)
    book = Book()
    for length in range(len(data)):
        assert book.hear_untrusted(data[:length], 0.0) is None
    for at in range(len(data)):
        # As much later, so that the limit of checks is not what refuses it.
        assert book.hear_untrusted(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], float(at)) is None
    assert book.hear_untrusted(data, 1_000.0) is not None
    assert book.heads == [9]


@pytest.mark.parametrize(
    "data",
    [
        signed(9, by=MALLORY),
        signed(9, stream="other"),
        signed(9, time=WALL - 61),
        signed(9, time=WALL + 61),
        signed(1, after=2),
        encode_beat(beat(9), "asdi", MALLORY.sign),
    ],
)
def test_beats_of_others_of_other_times_and_nonsense_are_not_believed(data):
    book = Book()
    assert book.hear_untrusted(data, 0.0) is None
    assert book.heads == []


def test_a_key_whose_grant_had_run_out_proves_nothing():
    assert Book(expires_at=int(WALL) - 1).hear_untrusted(signed(9), 0.0) is None


def test_a_replayed_beat_does_not_take_the_head_back():
    book = Book()
    first = signed(5)
    assert book.hear_untrusted(first, 0.0) is not None
    assert book.hear_untrusted(signed(9, time=WALL + 1), 1.0) is not None
    assert book.hear_untrusted(first, 1.1) is None
    assert book.heads == [5, 9]


def test_heads_are_forgotten_when_beats_stop():
    book = Book()
    book.hear_untrusted(signed(5), 0.0)
    book.look(4.9)
    assert book.heads == [5]
    book.look(5.1)
    book.look(6.0)
    assert book.heads == [5, None]


def test_a_flood_costs_few_signatures(monkeypatch):
    book = Book()
    checks = []
    monkeypatch.setattr("peer.trust.keys.SigningKey.has_signed", lambda *_: checks.append(1))
    for number in range(1_000):
        book.hear_untrusted(signed(number, time=WALL + number / 1_000), 0.0)
    assert len(checks) <= beats.MAX_CHECKS_PER_SECOND


# --- counting ---------------------------------------------------------------------------------------------------------


def client(*ans, start=0):
    counting = Counting()
    counting.is_everything = True
    counting.note(Started(start))
    for an in ans:
        counting.note(Packet(an, b""))
    return counting


def judged(counting, position, *heads):
    """After beats with these (head, packets)."""
    for number, (head, packets) in enumerate(heads):
        counting.hear(beat(head, packets=packets, time=WALL + number), float(number))
    return counting._judge(position, len(heads) + PATIENCE)


def test_a_client_that_has_all_that_was_counted_has_everything():
    counting = client(1, 2, 4, 7, 9)
    assert judged(counting, 9, (2, 2), (9, 5)) is None
    assert counting.checked == 3


def test_packets_that_all_parents_left_out_are_missed():
    assert judged(client(1, 2, 9), 9, (2, 2), (9, 5)) == Missing(2, 9, 2)


def test_a_tail_that_was_claimed_empty_is_missed():
    assert judged(client(1, 2), 9, (2, 2), (9, 5)) == Missing(2, 9, 3)


def test_what_came_late_counts_and_what_was_reported_as_a_gap_is_not_missing():
    late = client(1, 2, 9)
    late.note(Omitted(4, b""))
    late.note(Omitted(7, b""))
    assert judged(late, 9, (2, 2), (9, 5)) is None
    lost = client(1, 2)
    lost.note(Gap(2, 8))
    lost.note(Packet(9, b""))
    assert judged(lost, 9, (2, 2), (9, 5)) is None


def test_nothing_is_judged_before_its_time_or_before_the_client_is_there():
    counting = client(1, 2)
    counting.hear(beat(2, time=WALL), 0.0)
    counting.hear(beat(9, packets=5, time=WALL + 1), 1.0)
    assert counting._judge(9, 1.0 + PATIENCE - 0.1) is None
    assert counting._judge(8, 100.0) is None
    assert counting._judge(9, 100.0) == Missing(2, 9, 3)


def test_runs_are_not_counted_together():
    counting = client(1, 2)
    counting.hear(beat(2, run=b"11111111"), 0.0)
    counting.hear(beat(9, packets=9, time=WALL + 1, run=b"22222222"), 1.0)
    assert counting._judge(9, 100.0) is None


def test_a_client_with_a_query_is_not_judged():
    counting = client(1, 2)
    counting.note(QuerySwitched(2, Query.parse("/a")))
    assert judged(counting, 9, (2, 2), (9, 5)) is None
    narrow = Counting()
    narrow.note(Started(0))
    assert judged(narrow, 9, (2, 2), (9, 5)) is None
    counting.note(QuerySwitched(9, None))
    assert judged(counting, 12, (9, 5), (12, 8)) == Missing(9, 12, 3)


def test_a_start_in_the_middle_of_a_stretch_is_not_judged():
    assert judged(client(9, start=4), 9, (2, 2), (9, 5)) is None


def test_counting_is_bounded():
    counting = client(*range(1, 2 * MAX_COUNTED))
    assert len(counting._ans) <= MAX_COUNTED
    for number in range(100):
        counting.hear(beat(number + 1, time=WALL + number), 0.0)
    assert len(counting._stretches) <= 16
