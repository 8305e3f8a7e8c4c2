"""Key pairs, ids and the key file."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dht.errors import IdentityError
from dht.identity import Identity, id_text, is_signed_by, parse_id_text
from tests.dht.build import identity


def test_ids_follow_from_the_public_key_alone():
    one, again, other = identity(1), identity(1), identity(2)
    assert one.peer_id == again.peer_id != other.peer_id
    assert len(one.peer_id) == len(one.node_id) == 20
    assert one.node_id != one.peer_id


def test_a_signature_is_the_signers_and_of_these_bytes():
    one, other = identity(1), identity(2)
    signature = one.sign(b"message")
    assert is_signed_by(one.public_key, signature, b"message")
    assert not is_signed_by(one.public_key, signature, b"messagf")
    assert not is_signed_by(other.public_key, signature, b"message")
    assert not is_signed_by(b"short", signature, b"message")


@given(st.binary(min_size=20, max_size=20))
def test_id_text_round_trips(raw):
    assert parse_id_text(id_text(raw)) == raw


@pytest.mark.parametrize("text", ["", "abc", "A" * 32, "1" * 32, "a" * 31, "a" * 40, "ä" * 32])
def test_anything_else_is_no_id(text):
    with pytest.raises(ValueError, match="an id must be 32"):
        parse_id_text(text)


def test_the_key_file_is_made_on_first_use_for_its_owner_alone(tmp_path):
    path = tmp_path / "deep" / "key"
    made = Identity.load_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.load_or_create(path).peer_id == made.peer_id
    assert [item.name for item in path.parent.iterdir()] == ["key"]


def test_a_key_file_is_never_overwritten(tmp_path):
    path = tmp_path / "key"
    identity(1).save(path)
    with pytest.raises(FileExistsError):
        identity(2).save(path)
    assert Identity.load(path).peer_id == identity(1).peer_id


def test_a_key_file_that_others_can_read_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "key"
    identity(1).save(path)
    path.chmod(0o640)
    with pytest.raises(IdentityError, match="chmod 600"):
        Identity.load(path)


@pytest.mark.parametrize("content", [b"", b"skymesh-key-v1:AAAA", b"\xff\xfe", b"skymesh-key-v1:!", b"x" * 100])
def test_a_damaged_key_file_is_one_clear_error(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(IdentityError):
        Identity.load(path)


def test_a_private_key_is_never_shown():
    assert "seed" not in repr(identity(1))
    assert repr(identity(1)) == f"Identity({identity(1).fingerprint})"
