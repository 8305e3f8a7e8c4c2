"""The history and its readers, against a plain list of what came."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcp import Gap, Omitted, Packet, Started
from peer.gateway.history import ENTRY_BYTES, History
from peer.items import QuerySwitched
from xmlswitch import Query

BIG = 1 << 30


def packet(an: int) -> Packet:
    return Packet(an, b"<p><n>%d</n></p>" % an)


def history(*items, max_bytes=BIG, max_readers=8) -> History:
    made = History(max_bytes, max_readers=max_readers)
    for item in items:
        made.put(item)
    return made


def take(reader, most=1_000):
    found = []
    while events := reader.take(most):
        found += [event.item for event in events]
    return found


def query(text: str) -> Query:
    return Query.parse(text)


def test_a_reader_is_given_what_matches_from_now_on():
    kept = history(Started(4), packet(5))
    reader = kept.open(query("/p/n > 6"))
    kept.put(packet(6))
    kept.put(packet(7))
    assert take(reader) == [Started(5), packet(7)]
    assert reader.position == 7
    assert take(reader) == []


def test_a_reader_resumes_behind_the_packet_that_it_names():
    kept = history(Started(0), *map(packet, range(1, 8)), Gap(7, 9), packet(10))
    assert take(kept.open(query("/p/n > 5"), after=4)) == [packet(6), packet(7), Gap(7, 9), packet(10)]
    assert take(kept.open(None, after=10)) == []
    assert take(kept.open(None, after=8)) == [Gap(7, 9), packet(10)], "it may not know of the gap's other half"


def test_what_the_history_no_longer_has_is_a_gap():
    size = ENTRY_BYTES + len(packet(10).payload)
    kept = history(Started(0), *map(packet, range(10, 30)), max_bytes=5 * size)
    assert take(kept.open(None, after=12)) == [Gap(12, 24), *map(packet, range(25, 30))]
    slow = kept.open(None)
    for an in range(30, 50):
        kept.put(packet(an))
    assert take(slow) == [Started(29), Gap(29, 44), *map(packet, range(45, 50))]


def test_a_reader_that_came_before_the_stream_started_loses_nothing():
    kept = history()
    reader = kept.open(None)
    assert take(reader) == []
    kept.put(Started(7))
    kept.put(packet(8))
    assert take(reader) == [Started(7), packet(8)]


def test_an_an_from_the_future_is_answered_with_where_the_stream_stands():
    kept = history(Started(0), packet(1))
    assert take(kept.open(None, after=99)) == [Started(1)]


def test_numbers_that_begin_again_end_what_was_kept():
    kept = history(Started(100), packet(101), packet(102))
    reader = kept.open(None, after=101)
    kept.put(Started(0))
    kept.put(packet(1))
    assert take(reader) == [Started(0), packet(1)]
    assert take(kept.open(None, after=0)) == [packet(1)]


def test_a_changed_query_holds_from_what_was_not_taken_yet():
    kept = history(Started(0))
    reader = kept.open(query("/p/n < 0"))
    for an in range(1, 5):
        kept.put(packet(an))
    reader.take(1)
    reader.change_query(query("/p/n > 2"))
    kept.put(packet(5))
    found = take(reader)
    assert [item for item in found if isinstance(item, Packet)] == [packet(3), packet(4), packet(5)]
    assert [type(item) for item in found[:1]] == [QuerySwitched]


def test_omitted_packets_are_matched_too():
    kept = history(Started(0))
    narrow, wide = kept.open(query("/p/n > 5")), kept.open(None)
    kept.put(packet(9))
    kept.put(Omitted(*packet(3)))
    kept.put(Omitted(*packet(7)))
    assert take(narrow) == [Started(0), packet(9), Omitted(*packet(7))]
    assert take(wide) == [Started(0), packet(9), Omitted(*packet(3)), Omitted(*packet(7))]


def test_what_is_not_xml_goes_to_those_who_want_everything():
    kept = history(Started(0))
    narrow, wide = kept.open(query("/p")), kept.open(None)
    kept.put(Packet(1, b"not xml"))
    assert take(narrow) == [Started(0)]
    assert take(wide) == [Started(0), Packet(1, b"not xml")]


def test_a_packet_that_would_take_too_long_to_match_passes_and_says_so():
    """Large and made for it: the clients whose queries are cheap must not see the mark."""
    costly = query("//x[count(preceding::x) > 1][count(following::x) > 1]/y")
    kept = history(Started(0))
    slow, quick = kept.open(costly), kept.open(query("/p"))
    large = Packet(1, b"<p>" + b"<x><y/></x>" * 3_000 + b"</p>")
    kept.put(large)
    late = kept.open(costly, after=0)
    marks = [[event.is_filtered for event in reader.take(9) if event.item == large] for reader in (slow, quick, late)]
    assert marks == [[False], [True], [False]]


def test_readers_are_bounded_and_their_slots_come_again():
    kept = history(Started(0), max_readers=2)
    one, _ = kept.open(query("/p/n = 1")), kept.open(query("/p/n = 2"))
    with pytest.raises(ValueError, match="at most 2 clients"):
        kept.open(None)
    kept.close(one)
    kept.close(one)
    again = kept.open(query("/p/n = 3"))
    for an in (1, 2, 3):
        kept.put(packet(an))
    assert take(again) == [Started(0), packet(3)]


QUERIES = [None, "/p/n > 3", "/p/n mod 2 = 0", "/q"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_reader_misses_anything_without_a_gap(data):
    """Whatever the sizes, queries, changes and pauses: what matches is taken in order, or lies in a gap."""
    kept = history(Started(0), max_bytes=data.draw(st.integers(1, 12)) * (ENTRY_BYTES + 20))
    readers: list = []
    sent: list[Packet] = []
    an = 0
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(["packet", "packet", "packet", "gap", "open", "take", "close"])):
            case "packet":
                an += 1
                sent.append(packet(an))
                kept.put(sent[-1])
            case "gap":
                kept.put(Gap(an, an + 2))
                an += 2
            case "open" if len(readers) < 8:
                text = data.draw(st.sampled_from(QUERIES))
                after = data.draw(st.none() | st.integers(0, an))
                reader = kept.open(query(text) if text else None, after=after)
                readers.append((reader, text, an if after is None else after, []))
            case "take" if readers:
                reader, _, _, found = data.draw(st.sampled_from(readers))
                found += [event.item for event in reader.take(data.draw(st.integers(1, 5)))]
            case "close" if readers:
                kept.close(readers.pop()[0])
    for reader, text, begin, found in readers:
        found += take(reader)
        wanted = [each for each in sent if each.an > begin and (text is None or query(text).matches(each.payload))]
        gaps = [item for item in found if isinstance(item, Gap)]
        packets = [item for item in found if isinstance(item, Packet)]
        missing = [each for each in wanted if each not in packets]
        assert all(any(gap.after < each.an <= gap.until for gap in gaps) for each in missing)
        assert packets == [each for each in wanted if each not in missing], "in order, once, and nothing else"
