"""What the application gets at the position: all of it and in order, also when a router's own application is slow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dcp.events import Content, Gap, Packet, QuerySwitched, Started
from dcp.handover import MAX_SWITCHES, Handover
from dcp.log import Log
from dcp.queries import EVERYTHING, PredicatePolicy


def make_log(max_packets: int = 1_000) -> Log:
    return Log(PredicatePolicy(), max_packets=max_packets, max_bytes=1 << 20, max_segments=1_000)


class Stream:
    """A position that rises, and all that an application would see which always keeps up."""

    def __init__(self, handover: Handover) -> None:
        self.handover = handover
        self.position, self.query = 10, EVERYTHING
        self.truth: list[Content] = [Started(10)]
        self.seen: list[Content] = []
        handover.start(10)

    def put(self, count: int) -> bool:
        if not self.handover.has_room(self.position):
            return False
        packets = [(self.position + 2 * n, b"%d" % n) for n in range(1, count + 1)]  # every other one was pruned
        self.truth += [Packet(*packet) for packet in packets]
        self.handover.put(packets, sum(len(payload) for _, payload in packets), self.query)
        self.position = packets[-1][0]
        self.handover.advance(self.position, self.query)
        return True

    def lose(self, count: int) -> None:
        self.truth.append(Gap(self.position, self.position + count))
        self.handover.put_gap(self.position, self.position + count)
        self.position += count

    def switch(self, number: int) -> None:
        self.query = b"query %d" % number
        self.truth.append(QuerySwitched(self.position, self.query))
        self.handover.put_switch(self.position, self.query)

    def take(self, most: int) -> None:
        self.seen += self.handover.take(most, self.position)

    def take_all(self) -> None:
        while self.handover.has_events:
            self.take(3)


def without_switches(contents: list[Content]) -> list[Content]:
    """Two gaps side by side are one then, as they are in a log."""
    found: list[Content] = []
    for content in contents:
        last = found[-1] if found else None
        if isinstance(content, Gap) and isinstance(last, Gap) and last.until == content.after:
            found[-1] = Gap(last.after, content.until)
        elif not isinstance(content, QuerySwitched):
            found.append(content)
    return found


def without_gaps(contents: list[Content]) -> list[Content]:
    return [content for content in contents if not isinstance(content, Gap)]


STEPS = st.lists(st.tuples(st.sampled_from(["put", "lose", "switch", "take"]), st.integers(1, 5)), max_size=60)


@given(STEPS, st.booleans())
def test_an_application_sees_the_same_stream_however_slow_it_is(steps, is_router):
    stream = Stream(Handover(4, deliver=True, log=make_log() if is_router else None))
    for name, number in steps:
        getattr(stream, name)(number)
        assert is_router or len(stream.handover) <= len(stream.truth)
    stream.take_all()
    assert without_switches(stream.seen) == without_switches(stream.truth)
    assert without_gaps(stream.seen) == without_gaps(stream.truth)
    assert stream.handover.backlog == 0
    assert stream.handover.turned_away <= (not is_router)


def test_a_switch_of_the_query_is_told_to_an_application_that_fell_behind():
    """It was dropped: what the log serves are packets, and the application took them for answers to its old query."""
    stream = Stream(Handover(4, deliver=True, log=make_log()))
    stream.put(5)
    stream.put(5)
    stream.switch(1)
    stream.put(5)
    assert stream.handover.backlog == 1
    stream.take_all()
    assert stream.seen == stream.truth


def test_what_the_log_evicted_is_a_gap_and_the_last_switches_are_told():
    stream = Stream(Handover(4, deliver=True, log=make_log(max_packets=8)))
    stream.put(5)
    for number in range(2 * MAX_SWITCHES):
        stream.put(1)
        stream.switch(number)
    stream.take_all()
    switches = [content for content in stream.seen if isinstance(content, QuerySwitched)]
    assert switches == [content for content in stream.truth if isinstance(content, QuerySwitched)][-MAX_SWITCHES:]
    packets = [content for content in stream.seen if isinstance(content, Packet)]
    assert packets == [content for content in stream.truth if isinstance(content, Packet)][:5] + packets[5:]
    assert packets[5:] == [content for content in stream.truth if isinstance(content, Packet)][-8:]
    (gap,) = (content for content in stream.seen if isinstance(content, Gap))
    assert gap.after == packets[4].an
    assert packets[5].an - 2 <= gap.until < packets[5].an


def test_a_leaf_turns_away_and_says_before_that_room_is_small():
    stream = Stream(Handover(8, deliver=True, log=None))
    assert (stream.handover.room(), stream.handover.announced_little_room) == (7, False)
    assert stream.put(6)
    assert (stream.handover.room(), stream.handover.announced_little_room) == (1, True)
    assert stream.put(1)
    assert not stream.put(1)
    assert stream.handover.turned_away
    stream.take_all()
    assert stream.seen == stream.truth


def test_a_router_that_delivers_nothing_always_has_room():
    stream = Stream(Handover(2, deliver=False, log=make_log()))
    assert all(stream.put(5) for _ in range(10))
    assert not stream.handover.has_events
    assert stream.handover.next(stream.position) is None


def test_what_lies_ready_is_bounded_in_bytes():
    """Found by reading: 16,384 packets of a mebibyte each would have been kept for a slow application."""
    handover = Handover(1_000, deliver=True, log=None, max_bytes=10_000)
    handover.start(0)
    an = 0
    while handover.has_room(an):
        an += 1
        handover.put([(an, bytes(3_000))], 3_000, EVERYTHING)
    assert an == 4
    assert handover.room() == 0
    assert handover.backlog >= 1
    assert len(handover.take(3, an)) == 3
    assert handover.bytes == 6_000
    assert handover.room() > 0
    handover.take(10, an)
    assert handover.bytes == 0
