"""Signed envelopes: golden bytes, every alteration refused, the cache, the queue at a root."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcp import Config, Hub
from dcp.errors import PayloadRefused
from dht.identity import Identity
from peer.trust import batches
from peer.trust.batches import BatchSigner, BatchVerifier, Verdict, inner_untrusted
from peer.trust.keys import MAX_KEYS, SigningKeys, signer_of
from peer.trust.signing import SIGNATURES_PER_SECOND, SigningQueue

ROOT = Identity.from_seed(bytes(range(32)))
STREAM = "asdi"


def signer_of_root(identity=ROOT, stream=STREAM, salt=b"saltsalt"):
    return BatchSigner(stream, identity.public_key, sign=identity.sign, salt=lambda: salt)


def verifier(stream=STREAM, expires_at=None, identity=ROOT):
    keys = SigningKeys()
    keys.add(identity.public_key, expires_at=expires_at)
    return BatchVerifier(stream, keys)


def batch(count, first=1):
    return [(first + at, b"\x00<p>%d</p>" % at) for at in range(count)]


def test_golden_bytes():
    (alone,) = signer_of_root().seal([(7, b"\x00<a/>")], start=6, time=1_700_000_000)
    assert alone.hex() == (
        "04" + signer_of(ROOT.public_key).hex() + "6553f100" + b"saltsalt".hex() + "00000001" + "00000000"
        "0001" + "0000" + GOLDEN_SIGNATURE + b"\x00<a/>".hex()
    )  # fmt: skip


def test_the_documentation_shows_the_second_of_two_packets():
    _, second = signer_of_root().seal([(7, b"\x00<a/>"), (9, b"\x00<b/>")], start=6, time=1_700_000_000)
    assert second.hex() == GOLDEN_SECOND
    docs = Path(__file__).resolve().parents[3] / "docs" / "security.md"
    assert GOLDEN_SECOND in "".join(docs.read_text().split())


GOLDEN_SECOND = (
    "04d6a97c576553f10073616c7473616c74000000030000000000020001f0050ddf73dc5364648a299d5d02ba5f7c8ff8"
    "aed5ca5a6d8e3ddb57babc36300227f020c960c255b9a6f2e5695b0fccfa4ceec52ddb9a89299a408cb9d252009e1fa6"
    "cbf7511fc9738a7f0f9acaf327003c622f3e"
)
GOLDEN_SIGNATURE = (
    "b8692ae1deffe91d9942348d31e565ec113fb1214144c6bcf9380e410127dfb0"
    "8713e733eb64aaf824ea617e1c9c12e83c86f459147f3490fbb3ac20593c3b07"
)


@given(count=st.integers(1, 40), first=st.integers(1, 1 << 40), order=st.randoms(use_true_random=False))
def test_every_packet_of_a_batch_proves_itself_in_any_order(count, first, order):
    packets = batch(count, first)
    sealed = list(zip(packets, signer_of_root().seal(packets, start=first - 1, time=5), strict=True))
    order.shuffle(sealed)
    check = verifier()
    for (an, inner), envelope in sealed:
        assert len(envelope) - len(inner) <= batches.MAX_OVERHEAD
        assert check.verify(an, envelope) is Verdict.GOOD
        assert envelope[check.inner_at :] == inner == inner_untrusted(envelope)
    assert check.signatures == 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_altered_byte_and_every_prefix_is_refused_by_a_fresh_and_by_a_warm_verifier(count):
    packets = batch(count)
    sealed = signer_of_root().seal(packets, start=0, time=5)
    warm = verifier()
    for (an, _), envelope in zip(packets, sealed, strict=True):
        assert warm.verify(an, envelope) is Verdict.GOOD
    an, envelope = packets[-1][0], sealed[-1]
    for at in range(len(envelope)):
        altered = envelope[:at] + bytes([envelope[at] ^ 1]) + envelope[at + 1 :]
        for check in (warm, verifier()):
            # With other bytes of the signer it may be signed with a key that we don't know.
            wanted = Verdict.UNKNOWN if 1 <= at < 5 else Verdict.FORGED
            assert check.verify(an, altered) is wanted, at
            assert check.verify(an, envelope[:at]) is not Verdict.GOOD
    assert warm.verify(an, envelope) is Verdict.GOOD


def test_a_packet_is_bound_to_its_number_and_its_stream():
    (envelope,) = signer_of_root().seal([(7, b"\x00x")], start=6, time=5)
    assert verifier().verify(8, envelope) is Verdict.FORGED
    assert verifier().verify(6, envelope) is Verdict.FORGED
    assert verifier(stream="other").verify(7, envelope) is Verdict.FORGED


def test_an_unknown_key_and_an_expired_grant_are_not_forgeries():
    (envelope,) = signer_of_root().seal([(7, b"\x00x")], start=6, time=100)
    assert BatchVerifier(STREAM, SigningKeys()).verify(7, envelope) is Verdict.UNKNOWN
    check = verifier(expires_at=99)
    assert check.verify(7, envelope) is Verdict.UNKNOWN
    assert check.verify(7, envelope) is Verdict.UNKNOWN  # from the cache as well
    assert verifier(expires_at=100).verify(7, envelope) is Verdict.GOOD  # however long ago that was


def test_two_keys_with_one_signer_id_are_both_tried(monkeypatch):
    monkeypatch.setattr("peer.trust.keys.signer_of", lambda key: b"same")
    monkeypatch.setattr(batches, "signer_of", lambda key: b"same")
    other = Identity.from_seed(bytes(32))
    keys = SigningKeys()
    keys.add(other.public_key, expires_at=None)
    keys.add(ROOT.public_key, expires_at=None)
    for identity in (ROOT, other):
        (envelope,) = signer_of_root(identity).seal([(7, b"\x00x")], start=6, time=5)
        assert BatchVerifier(STREAM, keys).verify(7, envelope) is Verdict.GOOD


def test_keys_are_bounded_and_a_later_grant_counts():
    keys = SigningKeys()
    first = Identity.from_seed(bytes(32)).public_key
    keys.add(first, expires_at=5)
    keys.add(first, expires_at=9)
    keys.add(first, expires_at=1)
    assert keys.named(signer_of(first))[0].expires_at == 9
    for number in range(1, MAX_KEYS + 1):
        keys.add(Identity.from_seed(number.to_bytes(32, "big")).public_key, expires_at=None)
    assert len(keys) == MAX_KEYS
    assert not keys.named(signer_of(first))


def test_the_cache_is_bounded():
    check = verifier()
    for an in range(1, 400):
        (envelope,) = signer_of_root(salt=an.to_bytes(8, "big")).seal([(an, b"\x00x")], start=an - 1, time=5)
        assert check.verify(an, envelope) is Verdict.GOOD
    assert len(check._batches) <= batches.MAX_BATCHES_REMEMBERED


@pytest.mark.parametrize("cut", [b"", b"\x04", b"\x04" * 93, b"\x04" + bytes(91)])
def test_a_cut_envelope_is_refused_and_raises_nothing_else(cut):
    with pytest.raises(PayloadRefused):
        inner_untrusted(cut)
    assert verifier().verify(1, cut) in (Verdict.FORGED, Verdict.UNKNOWN)


def queue():
    sender = Hub(Config(), rng=random.Random(1)).serve(STREAM)
    signer = signer_of_root()
    return SigningQueue(sender, signer, lambda: 5.0), sender, signer


def test_what_waits_is_signed_together_and_at_most_500_times_a_second():
    waiting, sender, signer = queue()
    assert waiting.add(b"\x00a", an=None, contiguous=True) == 1
    waiting.flush(10.0)
    assert (signer.signatures, sender.log.head) == (1, 1)
    for _ in range(20):
        waiting.add(b"\x00b", an=None, contiguous=True)
    waiting.flush(10.0)
    assert (sender.log.head, waiting.head, waiting.due_at) == (1, 21, 10.0 + 1 / SIGNATURES_PER_SECOND)
    waiting.flush(10.0 + 1 / SIGNATURES_PER_SECOND)
    assert (signer.signatures, sender.log.head, waiting.due_at) == (2, 21, 11.0)  # then only a beat is due


def test_a_break_in_the_feed_and_a_hole_end_a_batch():
    waiting, sender, signer = queue()
    for an, contiguous in ((1, True), (2, True), (9, False), (10, True)):
        waiting.add(b"\x00x", an=an, contiguous=contiguous)
    waiting.publish_hole(20, 1.0)
    assert (signer.signatures, sender.log.head) == (2, 20)
    with pytest.raises(ValueError, match="increase"):
        waiting.add(b"\x00x", an=20, contiguous=True)
    with pytest.raises(ValueError, match="at most"):
        waiting.add(bytes(1 << 20), an=21, contiguous=True)
    assert verifier().verify(5, waiting.sealed_alone(5, b"\x00late")) is Verdict.GOOD


def test_many_waiting_packets_are_several_batches():
    waiting, sender, signer = queue()
    for _ in range(batches.MAX_BATCH + 1):
        waiting.add(b"\x00x", an=None, contiguous=True)
    waiting.add(b"\x00far", an=1 << 40, contiguous=True)
    waiting.flush(1.0)
    assert (signer.signatures, sender.log.head) == (3, 1 << 40)
