"""`skymesh keys`: files and sentences."""

from __future__ import annotations

import stat

import pytest

from dht.cli import main as dht_main
from dht.identity import Identity
from peer.cli.errors import CliError, ExitCode
from peer.cli.main import main
from peer.trust.grants import ROUTE, SUBSCRIBE, WITHHELD, JoinGrant, Policy


@pytest.fixture
def desk(tmp_path, capsys):
    def run(*words):
        assert main(["keys", *map(str, words)]) == ExitCode.OK
        return capsys.readouterr().out

    run("new", tmp_path / "owner.key")
    run("new", tmp_path / "alice.key")
    return tmp_path, run, Identity.load(tmp_path / "alice.key").fingerprint


def test_new_keys_are_private_and_never_overwritten(desk):
    folder, run, alice = desk
    assert stat.S_IMODE((folder / "alice.key").stat().st_mode) == 0o600
    with pytest.raises(CliError, match="never overwritten"):
        main(["keys", "new", str(folder / "alice.key")])
    assert run("show", folder / "alice.key") == f"key of the peer {alice}\n"


@pytest.mark.parametrize(("role", "roles"), [("subscriber", SUBSCRIBE), ("router", SUBSCRIBE | ROUTE)])
def test_grants_for_subscribers_and_routers(desk, role, roles):
    folder, run, alice = desk
    text = run("grant", "--owner", folder / "owner.key", "--stream", "asdi", "--peer", alice, "--role", role)
    assert JoinGrant.from_text_untrusted(text).roles == roles
    (folder / "grant").write_text(text)
    assert f"{alice} may be a {role} of asdi, until 2" in run("show", folder / "grant")


def test_a_grant_may_name_withheld_packets(desk):
    folder, run, alice = desk
    text = run("grant", "--owner", folder / "owner.key", "--stream", "asdi", "--peer", alice, "--withheld")
    assert JoinGrant.from_text_untrusted(text).roles == SUBSCRIBE | WITHHELD
    (folder / "grant").write_text(text)
    assert "may be a subscriber, and receive withheld packets, of asdi" in run("show", folder / "grant")


def test_a_root_s_grant_is_that_of_the_directory(desk, capsys):
    folder, run, alice = desk
    words = ["--owner", str(folder / "owner.key"), "--stream", "asdi", "--peer", alice]
    text = run("grant", *words, "--role", "root")
    assert dht_main(["grant", *words]) == 0
    assert capsys.readouterr().out[:60] == text[:60]
    (folder / "grant").write_text(text)
    assert "may be a root of asdi" in run("show", folder / "grant")


def test_a_policy_is_made_changed_and_keeps_what_was_revoked(desk):
    folder, run, alice = desk
    path, owner = folder / "p", folder / "owner.key"
    run("policy", "--owner", owner, "--stream", "asdi", "--subscribers", "granted", path)
    first = Policy.from_text_untrusted(path.read_text())
    assert f"revoked: {alice}" in run("revoke", "--owner", owner, path, alice)
    out = run("policy", "--owner", owner, "--stream", "asdi", "--routers", "granted", path)
    assert "subscribers granted, routers granted" in out
    last = Policy.from_text_untrusted(path.read_text())
    assert (last.rules, len(last.revoked)) == (3, 1)
    assert last.version > first.version
    assert out == run("show", path)
    run("revoke", "--owner", owner, path, alice)
    assert len(Policy.from_text_untrusted(path.read_text()).revoked) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["show", "{}/none"], "No such file"),
        (["show", "{}/garbage"], "not a key, grant or policy"),
        (["show", "{}/cut"], "cut: the grant for a subscriber or router is damaged"),
        (["revoke", "--owner", "{}/owner.key", "{}/none", "a" * 32], "none: No such file or directory$"),
        (["grant", "--owner", "{}/owner.key", "--stream", "asdi", "--peer", "x"], "base32"),
        (["grant", "--owner", "{}/owner.key", "--stream", "A B", "--peer", "a" * 32], "not a stream name"),
        (["grant", "--owner", "{}/owner.key", "--stream", "asdi", "--peer", "a" * 32, "--days", "0"], "--days must be"),
        (["revoke", "--owner", "{}/owner.key", "{}/garbage", "a" * 32], "not a policy"),
        (["policy", "--owner", "{}/alice.key", "--stream", "asdi", "{}/p"], "was signed by"),
        (["policy", "--owner", "{}/owner.key", "--stream", "other", "{}/p"], "is a policy of asdi"),
    ],
)
def test_mistakes_are_one_sentence(desk, words, sentence):
    folder, run, _ = desk
    (folder / "garbage").write_bytes(b"\xff\0garbage")
    (folder / "cut").write_text("skymesh-grant-v2:!")
    run("policy", "--owner", folder / "owner.key", "--stream", "asdi", folder / "p")
    with pytest.raises(CliError, match=sentence) as caught:
        main(["keys", *(word.format(folder) for word in words)])
    assert "\n" not in str(caught.value)
