"""What a child shows its parent: taken only if a root has signed it, it is wanted here, and it was passed over."""

from __future__ import annotations

import pytest

from dcp import EVERYTHING
from dht.identity import Identity
from peer.envelope import Envelope
from peer.trust.batches import BatchSigner
from peer.trust.check import Trust
from peer.trust.contradictions import MARK, MAX_BYTES, Contradictions

OWNER = Identity.from_seed(b"owner".ljust(32, b"\0"))
STREAM = "asdi"
PASSED, GIVEN_UP, HERE = 5, 6, 7


def signed(an, content=b"<p/>"):
    signer = BatchSigner(STREAM, OWNER.public_key, sign=OWNER.sign, salt=lambda: bytes(8))
    return signer.seal([(an, b"\0" + content)], start=an - 1, time=1)[0]


class Router:
    """A receiver with its sender, as far as is asked: it passed one packet lately, and has another one in its log."""

    def __init__(self, *, in_book=()):
        self.position, self.query = 10, EVERYTHING
        self.audit = self.log = self.handover = self
        self.in_book, self.links = in_book, {1: self, 2: self}
        self.is_encrypted = True
        self.found, self.inserted, self.late, self.messages = [], [], [], []

    def lacks(self, an, position):
        return an in self.in_book

    def covered_at(self, an, query):
        return an != GIVEN_UP

    def insert_late(self, an, payload, now):
        if an == HERE or an in self.inserted:
            return False
        self.inserted.append(an)
        return True

    def take_found(self, found, now):
        self.found += [an for an, _ in found]

    def put_late(self, an, payload, *, in_order):
        assert not in_order
        self.late.append(an)

    def send_message(self, link, data):
        self.messages.append((link, data))


def machine(router, matches=lambda query, payload: True):
    trust = Trust(STREAM)
    trust.add_key(OWNER.public_key, expires_at=None)
    trust.use(Envelope(), matches)
    return Contradictions(router, router, trust), trust


def shown(an, payload):
    return an.to_bytes(8, "big") + payload


def test_what_parents_words_are_still_known_about_is_held_against_them():
    router = Router(in_book=(PASSED,))
    here, _ = machine(router)
    here.hear_untrusted(shown(PASSED, signed(PASSED)), 0.0)
    assert (router.found, router.inserted, here.taken) == ([PASSED], [], 1)


def test_what_was_passed_long_ago_goes_into_the_log_and_up():
    router = Router()
    here, _ = machine(router)
    for _ in range(3):
        here.hear_untrusted(shown(PASSED, signed(PASSED)), 0.0)
    assert (router.inserted, router.late, here.taken) == ([PASSED], [PASSED], 1)
    message = MARK + shown(PASSED, signed(PASSED))
    assert router.messages == [(1, message), (2, message)]


def test_what_is_here_or_was_given_up_changes_nothing():
    router = Router()
    here, _ = machine(router)
    for an in (HERE, GIVEN_UP):
        here.hear_untrusted(shown(an, signed(an)), 0.0)
    assert (router.found, router.inserted, router.messages, here.taken) == ([], [], [], 0)


def test_every_prefix_and_every_changed_byte_is_refused():
    router = Router(in_book=(PASSED,))
    here, _ = machine(router)
    whole = shown(PASSED, signed(PASSED))
    for size in range(len(whole)):
        here.hear_untrusted(whole[:size], size)
    for at in range(len(whole)):
        here.hear_untrusted(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], 1_000 + at)
    assert router.found == router.inserted == []


def test_what_nobody_here_wants_is_refused():
    router = Router(in_book=(PASSED,))
    here, trust = machine(router, matches=lambda query, payload: False)
    here.hear_untrusted(shown(PASSED, signed(PASSED)), 0.0)
    assert router.found == []
    assert trust.proof_of(PASSED) is None


def test_a_child_cannot_make_us_check_signatures_without_end():
    router = Router(in_book=range(100))
    here, trust = machine(router)
    for an in range(1, 100):
        here.hear_untrusted(shown(an, signed(an)), 0.0)
    assert trust.signatures == len(router.found) < 64


def test_only_what_fits_a_datagram_is_shown_and_only_on_encrypted_links():
    router = Router()
    here, trust = machine(router)
    for an, content in ((1, b"<p/>"), (2, b"<p>" + b"x" * MAX_BYTES + b"</p>")):
        payload = signed(an, content)
        assert trust.vouches_for(an, payload)
        assert trust.keep_wanted(an, payload, EVERYTHING)
        here.show(1, an)
    here.show(9, 1)
    here.show(1, 3)
    assert router.messages == [(1, MARK + shown(1, signed(1)))]
    router.is_encrypted = False
    here.show(1, 1)
    assert len(router.messages) == 1


@pytest.mark.parametrize("has_unsigned_roots", [False, True])
def test_unsigned_packets_are_taken_beside_signed_ones_while_a_root_does_not_sign(has_unsigned_roots):
    """Roots are upgraded one after another: the first one that signs must not turn the others into forgers."""
    _, trust = machine(Router())
    trust.has_unsigned_roots = has_unsigned_roots
    assert trust.refused([(1, signed(1)), (2, b"\0<p/>")]) == ([] if has_unsigned_roots else [2])
    assert trust.condemns(2) is not has_unsigned_roots
    assert trust.refused([(3, signed(4))]) == [3], "what claims to be signed must be"
