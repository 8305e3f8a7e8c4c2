"""Packets that came after later ones: kept, found, and put in order for a root that replays the log."""

from __future__ import annotations

import pytest

from dcp import Omitted
from dcp import Packet as Received
from peer.cli.record import entries
from peer.feeds import replay
from peer.packetlog import Gap, Late, LogConfig, Packet, Reader, Writer


def fill(path, entries, **config):
    with Writer(path, LogConfig(**config)) as writer:
        writer.append(entries)
        return writer.last_an


@pytest.mark.parametrize("segment", [1 << 20, 4_096])
def test_a_late_packet_is_written_and_moves_nothing(tmp_path, segment):
    told = []
    for an in range(0, 200, 2):
        told.append(Packet(an, an, b"x" * 100))
        if an >= 10:
            told.append(Late(an - 9, an, b"late %d" % (an - 9)))
    assert fill(tmp_path, told, max_segment_bytes=segment) == 198
    reader = Reader(tmp_path)
    assert [entry for _, entry in reader.iterate(0)] == told
    assert reader.verify()["packets"] == len(told)
    for an in (0, 50, 131, 198):
        found = reader.read(reader.find_an(an), limit=1)[0][1]
        assert isinstance(found, Packet)
        assert found.an == an + an % 2
    with Writer(tmp_path, LogConfig(max_segment_bytes=segment)) as writer:
        assert writer.last_an == 198, "the last record is a late one, and does not say how far the log reaches"


def test_what_record_keeps_of_an_omitted_packet():
    assert entries([Received(7, b"seven"), Omitted(5, b"five")], 1.0) == [
        Packet(7, 1_000_000, b"seven"),
        Late(5, 1_000_000, b"five"),
    ]


def test_a_replaying_root_publishes_late_packets_in_their_place(tmp_path):
    fill(tmp_path, [Packet(1, 0, b"1"), Packet(4, 0, b"4"), Gap(4, 6, 0), Late(2, 0, b"2"), Packet(8, 0, b"8")])
    found = [(n.an, n.payload, n.contiguous) for n in replay.log_packets(str(tmp_path))]
    assert found == [(1, b"1", True), (2, b"2", True), (4, b"4", True), (8, b"8", False)]


def test_a_packet_that_is_too_late_for_a_replay_leaves_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr(replay, "LOOK_AHEAD", 1)
    fill(tmp_path, [Packet(1, 0, b"1"), Packet(4, 0, b"4"), Packet(5, 0, b"5"), Late(2, 0, b"2"), Packet(6, 0, b"6")])
    found = [(n.an, n.contiguous) for n in replay.log_packets(str(tmp_path))]
    assert [an for an, _ in found] == [1, 4, 5, 6]
    assert not all(contiguous for _, contiguous in found)
