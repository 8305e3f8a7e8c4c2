"""What is left behind: nothing, whichever way a demo ends, and however many run side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.demo.command import RunningDemo, wait_for

pytestmark = [
    pytest.mark.net,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("demo-headless"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
TINY = ["--roots", "1", "--parents", "1", "--routers", "1", "--clients", "1", "--dht-nodes", "1", "--copies", "1"]


def test_two_demos_side_by_side_leave_nothing_when_one_is_killed_and_one_is_interrupted():
    killed, interrupted = RunningDemo(*TINY), RunningDemo(*TINY)
    try:
        assert killed.wait_page() != interrupted.wait_page()
        assert killed.port != interrupted.port
        assert len(killed.processes()) >= 5
        # A frozen process can't see that its demo is gone: it is the hard case.
        peers = sorted(killed.processes())[-2:]
        for pid in peers:
            os.kill(pid, signal.SIGSTOP)
        killed.signal(signal.SIGKILL)
        killed.wait()
        wait_for(lambda: killed.processes() == [], "that the killed demo's processes are gone")
        assert len(interrupted.processes()) >= 5
        interrupted.signal(signal.SIGINT)
        assert interrupted.wait() == 130
        wait_for(lambda: interrupted.processes() == [], "that the interrupted demo's processes are gone")
    finally:
        killed.close()
        interrupted.close()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_closed_terminal_ends_it_as_ctrl_c_does(name):
    program = (
        "import signal, sys, trio\nfrom demo.run.interruptible import run_interruptible\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run under nohup, which it would honour
        "async def main():\n"
        "    print('here', flush=True)\n"
        "    try:\n        await trio.sleep_forever()\n"
        "    finally:\n        print('unwound', flush=True)\n"
        "sys.exit(run_interruptible(main))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.read() == "unwound\n"
    assert process.returncode == 130
