"""Real processes: a signed stream is recorded, and the recording verified against its owner."""

from __future__ import annotations

import pytest

from dht.identity import Identity
from peer.cli.errors import ExitCode
from peer.packetlog import Packet, Reader, Writer
from tests.peer.cli.command import LOCAL, PATIENCE, root
from tests.peer.cli.inprocess import call_here

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("cli")]


def test_a_recording_of_a_signed_stream_is_verified_and_a_changed_one_is_not(tmp_path, capfd):
    owner = tmp_path / "owner.key"
    log = tmp_path / "log"
    with root("--feed", "demo:200", "--owner", str(owner)) as (_, place):
        done = call_here(
            capfd, "record", "asdi", *LOCAL, "--bootstrap", place, "--parents", "1", "--out", str(log),
            "--count", "40", "--timeout", str(PATIENCE),
        )  # fmt: skip
        assert done.code == 0, done.err
    fingerprint = Identity.load(owner).fingerprint
    done = call_here(capfd, "verify", str(log), "--owner", fingerprint)
    assert done.out.decode() == f"40 of 40 packets were signed by roots of {fingerprint} (1 keys)\n"
    reader = Reader(log, durable=False)
    changed = [
        entry._replace(payload=b"<forged/>") if place == 7 else entry
        for place, entry in reader.iterate(reader.first_position())
        if isinstance(entry, Packet)
    ]
    (log / "proofs").rename(tmp_path / "proofs")
    forged = tmp_path / "forged"
    with Writer(forged, stream="asdi") as writer:
        writer.append(changed)
    (tmp_path / "proofs").rename(forged / "proofs")
    done = call_here(capfd, "verify", str(forged), "--owner", fingerprint)
    assert done.code == ExitCode.NOT_ALL
    assert done.out.decode().startswith(f"packet {changed[7].an}: false\n39 of 40 packets")
