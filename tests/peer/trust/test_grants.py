"""Grants and policies: their bytes, who signed them, and whom the gate lets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcp.handshake import MAX_HELLO_BYTES
from dht.identity import Identity, id_text
from dht.streams import Grant
from peer.trust import grants
from peer.trust.gate import MAX_CREDENTIALS_BYTES, MAX_PENDING, Gate
from peer.trust.grants import (
    ROUTE,
    SUBSCRIBE,
    SUBSCRIBERS_NEED_GRANTS,
    JoinGrant,
    MalformedCredentials,
    Policy,
    with_tree_degree,
)
from peer.trust.rootkeys import MAX_ROOT_KEYS, RootKeys

OWNER = Identity.from_seed(bytes(range(32)))
ALICE = Identity.from_seed(bytes(range(32, 64)))
MALLORY = Identity.from_seed(bytes(range(64, 96)))
DOCS = Path(__file__).resolve().parents[3] / "docs" / "security.md"

GOLDEN_GRANT = (
    "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b801000007d09bde7619702ab04b44840f"
    "029dddf8d0462fc9e423cd7f7724e8b0420b3f2d9de5380c8121dcc4661222f7f110967c3a84cb0ce2a690559efd30ac"
    "76fe9d1007"
)
GOLDEN_POLICY = (
    "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b80000000000000007030001610bf31dd0"
    "4d1200a09e0a2bd8587ffb6040c771ea3fdd966d4c54bd83ce6f30fefd7462b0ee2f6eb4267531df890899048310cfe5"
    "6c9ea1d11e577d6ec583708367c57f8e9356b34194218552500776adac2a08"
)


def grant(who=ALICE, *, owner=OWNER, roles=SUBSCRIBE, expires_at=2_000, stream="asdi"):
    return JoinGrant.issue(owner, stream=stream, peer_id=who.peer_id, roles=roles, expires_at=expires_at)


def policy(version=7, *, owner=OWNER, rules=3, revoked=(), stream="asdi"):
    return Policy.issue(owner, stream=stream, version=version, rules=rules, revoked=tuple(revoked))


def gate(*, own=None, now=1_000.0, adopted=None, owner=OWNER):
    found = Gate("asdi", wall=lambda: now, own=own, owner=owner.peer_id if owner is not None else None)
    if adopted is not None:
        assert found.adopt(adopted)
    return found


def look(at, who, own=None):
    """What the gate sees of a peer that shows this grant."""
    return at.look_untrusted(who.public_key, gate(own=own).credentials())[0]


def test_golden_bytes_are_those_of_the_documentation():
    assert grant().encode().hex() == GOLDEN_GRANT
    assert policy(revoked=[MALLORY.peer_id]).encode().hex() == GOLDEN_POLICY
    shown = "".join(DOCS.read_text().split())
    assert GOLDEN_GRANT in shown
    assert GOLDEN_POLICY in shown


def test_text_goes_round():
    assert JoinGrant.from_text_untrusted(grant().to_text() + "\n") == grant()
    revoked = policy(revoked=[MALLORY.peer_id])
    assert Policy.from_text_untrusted(revoked.to_text()) == revoked


@pytest.mark.parametrize("text", ["", "x", "skymesh-grant-v2:", "skymesh-grant-v2:!!", "skymesh-policy-v1:", "\0" * 9])
def test_other_text_is_refused_with_a_sentence(text):
    for kind in (JoinGrant, Policy):
        with pytest.raises(MalformedCredentials, match=r"\w{2}"):
            kind.from_text_untrusted(text)


def test_every_prefix_and_mutation_of_a_grant_and_a_policy_is_refused():
    at = gate(adopted=policy())
    shown = grant().encode()

    def roles(data):
        items = grants.encode_items([(grants.GRANT_ITEM, data)])
        return at.look_untrusted(ALICE.public_key, items)[0].roles

    assert roles(shown) == SUBSCRIBE
    assert not any(roles(shown[:length]) for length in range(len(shown)))
    assert not any(roles(shown[:n] + bytes((shown[n] ^ 1,)) + shown[n + 1 :]) for n in range(len(shown)))
    newer = policy(8, revoked=[MALLORY.peer_id]).encode()
    assert not any(at.adopt_untrusted(newer[:length]) for length in range(len(newer)))
    assert not any(at.adopt_untrusted(newer[:n] + bytes((newer[n] ^ 1,)) + newer[n + 1 :]) for n in range(len(newer)))
    assert at.adopt_untrusted(newer)


def test_any_credentials_are_read_or_ignored():
    at = gate(adopted=policy())
    for data in (b"", b"\1", b"\1\0", b"\1\xff\xff", b"\2\0\1x", b"\3\0\4root", b"\x09\0\2hi", bytes(3_000)):
        shown, is_news = at.look_untrusted(ALICE.public_key, data)
        assert (shown.peer_id, shown.roles, is_news) == (ALICE.peer_id, 0, False)


def test_without_a_policy_everybody_may_come():
    at = gate()
    for shown in (look(at, ALICE), at.look_untrusted(b"", b"")[0]):
        assert at.why_not_child(shown) is at.why_not_parent(shown) is None


def test_a_grant_lets_its_peer_in_and_nobody_else():
    at = gate(adopted=policy())
    assert at.why_not_child(look(at, ALICE, grant())) is None
    assert at.why_not_child(look(at, MALLORY, grant())) is not None  # a grant is for one key
    assert at.why_not_child(look(at, ALICE, grant(owner=MALLORY))) is not None
    assert at.why_not_child(look(at, ALICE, grant(stream="other"))) is not None
    assert at.why_not_parent(look(at, ALICE, grant())) is not None
    assert at.why_not_parent(look(at, ALICE, grant(roles=SUBSCRIBE | ROUTE))) is None


def test_the_refusal_says_how_to_get_a_grant():
    at = gate(adopted=policy())
    why = at.why_not_child(look(at, ALICE))
    assert why == (
        f"no grant lets {id_text(ALICE.peer_id)} subscribe to asdi: ask the owner {id_text(OWNER.peer_id)} to run "
        f"`skymesh keys grant --stream asdi --peer {id_text(ALICE.peer_id)} --role subscriber`, and start with "
        "--grant FILE and the same --identity"
    )
    assert "encrypted links only" in (at.why_not_child(at.look_untrusted(b"", b"")[0]) or "")


def test_a_grant_ends_and_can_be_revoked():
    late = gate(adopted=policy(), now=2_001.0)
    assert "has expired" in (late.why_not_child(look(late, ALICE, grant())) or "")
    at = gate(adopted=policy(rules=0, revoked=[ALICE.peer_id]))
    assert "revoked" in (at.why_not_child(look(at, ALICE, grant())) or "")
    assert "revoked" in (at.why_not_parent(look(at, ALICE, grant())) or "")


def test_the_owner_and_its_roots_need_nothing_else():
    at = gate(adopted=policy())
    root = Grant.issue(OWNER, stream="asdi", peer_id=ALICE.peer_id, expires_at=2_000)
    for shown in (look(at, OWNER), look(at, ALICE, root)):
        assert at.why_not_child(shown) is at.why_not_parent(shown) is None
    assert at.why_not_parent(look(at, MALLORY, root)) is not None
    false = Grant.issue(MALLORY, stream="asdi", peer_id=ALICE.peer_id, expires_at=2_000)
    assert at.why_not_parent(look(at, ALICE, false)) is not None


def test_only_a_newer_policy_of_the_owner_counts():
    at = gate(adopted=policy(7))
    assert not at.adopt(policy(7, rules=0))
    assert not at.adopt(policy(6, rules=0))
    assert not at.adopt(policy(8, owner=MALLORY, rules=0))
    assert not at.adopt(policy(8, stream="other", rules=0))
    assert at.adopt(policy(8, rules=0))


def test_a_policy_waits_for_the_owner_to_be_known_and_few_of_them_do():
    at = gate(owner=None)
    assert not at.adopt(policy(9, owner=MALLORY))
    assert not at.adopt(policy(7))
    for version in range(100):
        at.adopt(policy(version, owner=MALLORY))
    assert len(at._pending) == MAX_PENDING
    assert at.set_owner(OWNER.peer_id)
    assert at.policy == policy(7)
    assert not at.set_owner(MALLORY.peer_id)


def test_credentials_carry_the_policy_on():
    first, second = gate(adopted=policy(7)), gate()
    _, is_news = second.look_untrusted(ALICE.public_key, first.credentials())
    assert is_news
    assert second.policy == first.policy


def test_a_policy_is_bounded():
    many = [Identity.from_seed(n.to_bytes(32, "big")).peer_id for n in range(grants.MAX_REVOKED + 1)]
    with pytest.raises(ValueError, match="at most"):
        policy(revoked=many)
    at = gate(own=grant(), adopted=policy(revoked=many[:-1]))
    at.root_keys = RootKeys("asdi", lambda key, expires_at: None)
    for seed in range(MAX_ROOT_KEYS):
        at.root_keys.add(Identity.from_seed(seed.to_bytes(32, "big")).public_key, None)
    assert len(at.credentials()) <= MAX_CREDENTIALS_BYTES < MAX_HELLO_BYTES - 400


def test_only_the_owner_of_a_name_signs_for_it():
    named = f"asdi.{ALICE.fingerprint}"
    with pytest.raises(ValueError, match="does not own"):
        grant(stream=named)
    with pytest.raises(ValueError, match="does not own"):
        policy(stream=named)


def keys_of(*learned):
    found = list(learned)
    at = gate()
    at.root_keys = RootKeys("asdi", lambda key, expires_at: found.append((key, expires_at)))
    return at, found


def test_keys_of_roots_are_passed_on_and_checked_at_every_hop():
    first, _ = keys_of()
    assert first.root_keys is not None
    first.root_keys.add(ALICE.public_key, Grant.issue(OWNER, stream="asdi", peer_id=ALICE.peer_id, expires_at=2_000))
    first.root_keys.add(OWNER.public_key, None)
    second, learned = keys_of()
    second.look_untrusted(MALLORY.public_key, first.credentials())
    assert sorted(learned) == sorted([(ALICE.public_key, 2_000), (OWNER.public_key, None)])
    third, learned = keys_of()
    third.look_untrusted(MALLORY.public_key, second.credentials())
    assert len(learned) == 2
    third.look_untrusted(MALLORY.public_key, second.credentials())
    assert len(learned) == 2


def test_keys_that_the_owner_has_not_granted_are_not_learned():
    liar, _ = keys_of()
    assert liar.root_keys is not None
    liar.root_keys.add(MALLORY.public_key, None)
    liar.root_keys.add(ALICE.public_key, Grant.issue(MALLORY, stream="asdi", peer_id=ALICE.peer_id, expires_at=2_000))
    peer, learned = keys_of()
    peer.look_untrusted(MALLORY.public_key, liar.credentials())
    assert learned == []


def test_keys_of_roots_are_bounded_and_any_bytes_are_ignored():
    peer, learned = keys_of()
    assert peer.root_keys is not None
    for seed in range(50):
        peer.root_keys.add(Identity.from_seed(seed.to_bytes(32, "big")).public_key, None)
    assert len(peer.root_keys) == MAX_ROOT_KEYS
    for data in (b"", b"x", bytes(132), bytes(132 * 9), bytes(133)):
        peer.root_keys.learn_untrusted(data, OWNER.peer_id)
    assert learned == []


@pytest.mark.parametrize("degree", [None, 3, 4, 17])
def test_a_policy_says_the_degree_of_the_reference_tree(degree):
    said = policy(rules=with_tree_degree(SUBSCRIBERS_NEED_GRANTS, degree))
    assert said.tree_degree == degree
    assert Policy.decode_untrusted(said.encode(), stream="asdi") == said
    assert gate(adopted=said).tree_degree == degree
    assert gate(adopted=said).needs_grants
    assert not gate(adopted=policy(rules=with_tree_degree(0, degree))).needs_grants


@pytest.mark.parametrize("degree", [2, 18, -1])
def test_a_tree_without_such_a_degree_is_refused(degree):
    with pytest.raises(ValueError, match="the degree of a tree is 3 to 17"):
        with_tree_degree(0, degree)
