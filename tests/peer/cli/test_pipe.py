"""`pipe`: bytes from one process to another, over two senders of which one may die."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

from dcp.handshake import MAX_STREAM_BYTES
from peer.cli.errors import ExitCode
from peer.cli.settings import MAX_PIPE_NAME
from tests.peer.cli.command import PATIENCE, REPOSITORY, clean_environment
from tests.peer.cli.inprocess import call_here

pytestmark = [pytest.mark.net, pytest.mark.slow]


@contextmanager
def pipe(*arguments: str):
    """The command in a process of its own, with its standard streams as pipes."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(
        [sys.executable, "-m", "peer", "pipe", *arguments], cwd=REPOSITORY, env=clean_environment(), **streams
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def address_of(sender: subprocess.Popen[bytes]) -> str:
    line = sender.stderr.readline().decode()
    found = re.search(r"sending \w+ on (\S+)", line)
    assert found is not None, line
    return found[1]


def test_bytes_arrive_whole_though_one_of_two_senders_is_killed():
    data = random.Random(1).randbytes(3_000_000)
    half = len(data) // 2
    with ExitStack() as stack:
        senders = [stack.enter_context(pipe("send", "--name", "clip")) for _ in range(2)]
        given = [word for sender in senders for word in ("--sender", address_of(sender))]
        receiver = stack.enter_context(pipe("receive", "--name", "clip", *given))
        for sender in senders:
            sender.stdin.write(data[:half])
            sender.stdin.flush()
        got = receiver.stdout.read(1_000)
        senders[0].kill()
        senders[1].stdin.write(data[half:])
        senders[1].stdin.close()
        got += receiver.stdout.read()
        assert receiver.wait(PATIENCE) == ExitCode.OK
        assert got == data
        assert f"received {len(data)} bytes".encode() in receiver.stderr.read()
        assert senders[1].wait(PATIENCE) == ExitCode.OK


def test_a_receiver_whose_senders_all_died_says_so(monkeypatch):
    with pipe("send") as sender, pipe("receive", "--sender", address_of(sender)) as receiver:
        sender.stdin.write(b"x" * 1_000)
        sender.stdin.flush()
        assert receiver.stdout.read(1_000) == b"x" * 1_000
        sender.kill()
        assert receiver.wait(PATIENCE) == ExitCode.NOT_ALL
        assert b"all senders are gone" in receiver.stderr.read()


def test_a_receiver_without_a_sender_says_how_to_start_one(capfd, monkeypatch):
    monkeypatch.setattr("peer.cli.pipe.PATIENCE", 0.5)
    done = call_here(capfd, "pipe", "receive", "--sender", "127.0.0.1:1")
    assert done.code == ExitCode.STREAM_UNAVAILABLE
    assert "start one with `skymesh pipe send --name bytes`" in done.err
    done = call_here(capfd, "pipe", "receive")
    assert done.code == ExitCode.USAGE
    assert "--sender is missing" in done.err


def test_a_sender_that_waits_for_receivers_ends_with_ctrl_c():
    with pipe("send") as sender:
        address_of(sender)
        sender.send_signal(signal.SIGINT)
        assert sender.wait(PATIENCE) == ExitCode.INTERRUPTED


def test_a_receiver_whose_reader_has_gone_ends_quietly():
    with pipe("send") as sender, pipe("receive", "--sender", address_of(sender)) as receiver:
        receiver.stdout.close()
        sender.stdin.write(b"x" * 100_000)
        sender.stdin.flush()
        assert receiver.wait(PATIENCE) == ExitCode.BROKEN_PIPE
        assert b"Traceback" not in receiver.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["send", "--name", ""], ExitCode.USAGE, "--name: expected a name of 1 to 128 bytes, got ''"),
        (["receive", "--name", "x" * 129, "--sender", "127.0.0.1:1"], ExitCode.USAGE, "--name: expected a name of 1"),
        (["receive", "--sender", "no.such.host.invalid:1"], ExitCode.USAGE, "--sender no.such.host.invalid:1: "),
    ],
)
def test_bad_names_were_a_traceback_and_are_one_sentence(capfd, arguments, code, sentence):
    done = call_here(capfd, "pipe", *arguments)
    assert (done.code, done.err.count("\n")) == (code, 1)
    assert sentence in done.err


def test_a_sender_may_be_named_by_its_host():
    with pipe("send") as sender:
        port = address_of(sender).rpartition(":")[2]
        with pipe("receive", "--sender", f"localhost:{port}") as receiver:
            sender.stdin.write(b"x" * 1_000)
            sender.stdin.close()
            assert receiver.stdout.read() == b"x" * 1_000


def test_the_longest_name_is_that_of_dcp():
    assert MAX_PIPE_NAME == MAX_STREAM_BYTES
