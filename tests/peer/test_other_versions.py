"""A parent of another version: one sentence that names both, whoever noticed it."""

from __future__ import annotations

from dcp.control import Reason
from peer.mesh.events import LinkDenied, OtherVersion
from peer.mesh.messages import VERSION, RefuseReason
from peer.other_versions import in_words, of_refusal
from tests.peer.mesh.one import One, events, record


def test_the_sentence_names_both_versions_and_who_is_behind():
    later = in_words(of_refusal(("192.0.2.7", 4_000), Reason.VERSION, bytes((2, 3))))
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


def test_a_link_denied_for_want_of_encryption_says_what_to_do_and_shows_no_control_characters():
    denied = of_refusal(
        ("192.0.2.7", 4_000), Reason.ENCRYPTION, b"upgrade\x1b[2J, and leave out --cleartext" + b"x" * 2_000
    )
    assert isinstance(denied, LinkDenied)
    words = in_words(denied)
    assert words.startswith("no link with 192.0.2.7:4000: upgrade?[2J, and leave out --cleartext")
    assert len(words) < 600


def test_another_peer_than_the_one_asked_for_is_named():
    denied = of_refusal(("192.0.2.7", 4_000), Reason.OTHER_PEER, bytes(32))
    assert denied is not None
    assert "not the one that was asked for" in in_words(denied)


def test_what_only_the_mesh_has_to_know_is_no_event():
    assert of_refusal(("192.0.2.7", 4_000), Reason.FULL, b"") is None
