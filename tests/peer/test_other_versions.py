"""A parent of another version: one sentence that names both, whoever noticed it."""

from __future__ import annotations

from peer.mesh.events import OtherVersion
from peer.mesh.messages import VERSION, RefuseReason
from peer.other_versions import in_words, of_dcp
from tests.peer.mesh.one import One, events, record


def test_the_sentence_names_both_versions_and_who_is_behind():
    later = in_words(of_dcp(("192.0.2.7", 4_000), bytes((2, 3))))
    assert later == (
        "192.0.2.7:4000 speaks DCP 2 to 3 and this peer DCP 1: they can't be linked until this peer is upgraded"
    )
    assert in_words(OtherVersion(("::1", 9), "mesh", 1, 1, 2)).startswith("[::1]:9 speaks mesh 1 and this peer mesh 2")


def test_a_refusal_for_the_version_of_the_mesh_is_an_event_with_both():
    one = One()
    [opening] = one.offer(record("a"))
    one.mesh.link_refused(opening.link, RefuseReason.VERSION, bytes((VERSION + 1, 3, 0)), now=one.now)
    one.drain()
    [event] = events(one, OtherVersion)
    assert (event.protocol, event.lowest, event.highest, event.ours) == ("mesh", VERSION + 1, VERSION + 1, VERSION)
    assert one.mesh.counters["malformed"] == 0
