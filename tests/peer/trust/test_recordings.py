"""Recordings that prove themselves: what was signed is verified years later, what was changed is found."""

from __future__ import annotations

import time

import pytest

from dcp.compression import Compressor
from dht.identity import Identity
from dht.streams import Grant
from peer import packetlog
from peer.cli.errors import CliError, ExitCode
from peer.cli.main import main
from peer.envelope import Envelope
from peer.packetlog import Gap, LogConfig, Packet
from peer.trust.batches import BatchSigner
from peer.trust.proofs import FOLDER, KEYS_FILE, Finding, proof_of
from peer.trust.recording import ProofWriter, verify_recording
from peer.trust.rootkeys import RootKeys

OWNER = Identity.from_seed(bytes(range(32)))
ROOT = Identity.from_seed(bytes(range(32, 64)))
OTHER = Identity.from_seed(bytes(range(64, 96)))
CONTENT = [b"<p>%d</p>" % number for number in range(1, 21)]


def keys(*roots, owner=OWNER, expires_at=2_000_000_000):
    found = RootKeys("asdi", lambda key, until: None)
    for root in roots:
        found.add(root.public_key, Grant.issue(owner, stream="asdi", peer_id=root.peer_id, expires_at=expires_at))
    return found


def signed(contents=CONTENT, *, by=ROOT, compress="none", first=1):
    compressor = Compressor(compress)
    signer = BatchSigner("asdi", by.public_key, sign=by.sign, salt=lambda: b"saltsalt")
    packed = [(first + place, compressor.pack(content)) for place, content in enumerate(contents)]
    return list(zip((an for an, _ in packed), signer.seal(packed, start=first - 1, time=1_700_000_000), strict=True))


def record(folder, envelopes, known, *, contents=None):
    """As the command does, but for the mesh."""
    opened = Envelope()
    proofs = ProofWriter(folder, LogConfig(), "asdi")
    with packetlog.Writer(folder, LogConfig(), stream="asdi") as writer:
        for an, envelope in envelopes:
            proofs.keep(an, envelope)
        proofs.flush(proofs.take(), known, time.time())
        writer.append(
            [
                Packet(an, 0, opened.look_untrusted(envelope) if contents is None else contents[place])
                for place, (an, envelope) in enumerate(envelopes)
            ]
        )
        writer.append([Gap(envelopes[-1][0], envelopes[-1][0] + 5, 0)])
    proofs.sync()
    proofs.close()


def findings(folder, owner=OWNER):
    return [finding for _, _, finding in verify_recording(folder, owner.peer_id)]


@pytest.mark.parametrize("compress", ["none", "zlib", "zstd"])
def test_what_was_signed_is_verified(tmp_path, compress):
    record(tmp_path, signed(compress=compress), keys(ROOT))
    assert findings(tmp_path) == [Finding.SIGNED] * 20


def test_plain_packets_are_not_kept_twice():
    (_, envelope), *_ = signed([b"x" * 10_000])
    assert len(proof_of(envelope) or b"") < 200
    assert proof_of(b"\0plain") is None


@pytest.mark.parametrize("compress", ["none", "zlib"])
def test_a_changed_packet_is_found(tmp_path, compress):
    changed = [*CONTENT[:4], b"<p>forged</p>", *CONTENT[5:]]
    record(tmp_path, signed(compress=compress), keys(ROOT), contents=changed)
    assert [n for n, found in enumerate(findings(tmp_path)) if found is not Finding.SIGNED] == [4]
    assert findings(tmp_path)[4] is Finding.FALSE


def test_a_packet_under_another_number_is_found(tmp_path):
    record(tmp_path, [(an + 1, envelope) for an, envelope in signed()], keys(ROOT))
    assert set(findings(tmp_path)) == {Finding.FALSE}


def test_another_owner_s_signatures_prove_nothing(tmp_path):
    record(tmp_path, signed(), keys(ROOT))
    assert set(findings(tmp_path, OTHER)) == {Finding.UNKNOWN}


def test_keys_without_the_owner_s_grant_prove_nothing(tmp_path):
    record(tmp_path, signed(by=OTHER), keys(OTHER, owner=OTHER))
    assert set(findings(tmp_path)) == {Finding.UNKNOWN}


def test_a_packet_signed_after_its_grant_ran_out_proves_nothing(tmp_path):
    record(tmp_path, signed(), keys(ROOT, expires_at=1_600_000_000))
    assert set(findings(tmp_path)) == {Finding.UNKNOWN}


def test_a_recording_that_goes_on_keeps_the_keys_of_its_earlier_roots(tmp_path):
    record(tmp_path, signed(), keys(ROOT))
    record(tmp_path, signed(by=OTHER, first=26), keys(OTHER))
    assert findings(tmp_path) == [Finding.SIGNED] * 40


def test_an_unsigned_recording_says_so(tmp_path):
    with packetlog.Writer(tmp_path, LogConfig(), stream="asdi") as writer:
        writer.append([Packet(1, 0, b"<p/>")])
    assert findings(tmp_path) == [Finding.UNSIGNED]
    assert not (tmp_path / FOLDER).exists()


def test_the_command_says_how_many_and_which_not(tmp_path, capsys):
    record(tmp_path, signed(), keys(ROOT))
    assert main(["verify", str(tmp_path), "--owner", OWNER.fingerprint]) == ExitCode.OK
    assert capsys.readouterr().out == f"20 of 20 packets were signed by roots of {OWNER.fingerprint} (1 keys)\n"
    assert main(["verify", str(tmp_path), "--owner", OTHER.fingerprint]) == ExitCode.NOT_ALL
    out = capsys.readouterr().out
    assert out.startswith("packet 1: unknown key\n")
    assert len(out.splitlines()) == 11


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{}/none", "--owner", OWNER.fingerprint], "no packet log"),
        (["{}", "--owner", "x"], "base32"),
        (["{}", "--owner", OWNER.fingerprint, "--dictionary", "{}/none"], "No such file"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, words, sentence):
    record(tmp_path, signed(), keys(ROOT))
    with pytest.raises(CliError, match=sentence):
        main(["verify", *(word.format(tmp_path) for word in words)])


def test_damaged_keys_are_one_sentence(tmp_path):
    record(tmp_path, signed(), keys(ROOT))
    (tmp_path / FOLDER / KEYS_FILE).write_text("not base64!")
    with pytest.raises(CliError, match="damaged"):
        main(["verify", str(tmp_path), "--owner", OWNER.fingerprint])
