"""A cluster whose workers have addresses of their own: each in a network namespace, as on another host."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asdi.flights import Feed
from pipeline.archive.jobs import verify
from pipeline.archive.manifest import Archive
from pipeline.ingest.text import ingest
from pipeline.session import prepare_environment
from tests.pipeline.conftest import NOON
from tests.pipeline.test_cluster import free_port
from tests.pipeline.test_identity import DAY, content

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """A bridge with our address, and namespaces with one each; all are gone in the end."""

    def __init__(self, names: list[str]) -> None:
        mark = os.getpid() % 65_536
        self._net = f"10.213.{mark % 256}"
        self._bridge = f"skyb{mark}"
        self.own = f"{self._net}.1"
        self.spaces = {f"sky{mark}{name}": f"{self._net}.{number}" for number, name in enumerate(names, 2)}

    def __enter__(self) -> Hosts:
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self.own}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for space, address in self.spaces.items():
            ip("netns", "add", space)
            ip("link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"v{space}", "master", self._bridge, "up")
            for words in (["addr", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                          ["link", "set", "lo", "up"]):  # fmt: skip
                ip("-n", space, *words)
        return self

    def __exit__(self, *_: object) -> None:
        for space in self.spaces:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "del", space)
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "del", self._bridge)


DRIVER = """
import json, sys
from datetime import date
from pipeline.ingest.text import ingest
from pipeline.archive.jobs import verify
from pipeline.archive.manifest import Archive
from pipeline.session import open_session

master, raw, out = sys.argv[1:]
spark = open_session(master, options={"spark.driver.memory": "700m", "spark.executor.memory": "500m"})
done = ingest(spark, [raw], out, day=date(2026, 11, 16), chunk_bytes=60_000)
print(json.dumps([done.packets, verify(spark, Archive(out)).problems]))
"""


def test_workers_on_hosts_of_their_own_with_nothing_set_and_one_of_them_dies(tmp_path):
    """Executors died in a loop while the user read "0 of 1 tasks": the driver had told them 127.0.0.1."""
    import pyspark

    prepare_environment()
    home = Path(pyspark.__file__).parent
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_LOCAL_IP"}
    environment |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    launch = str(home / "bin" / "spark-class")
    raw, out = tmp_path / "raw.txt", tmp_path / "a"
    raw.write_text("".join(f"{line.text}\n" for line in Feed(copies=10).lines(NOON, NOON + 3600)))
    ingest(None, [str(raw)], tmp_path / "alone", day=DAY)
    with contextlib.ExitStack() as ends:
        hosts = ends.enter_context(Hosts(["a", "b"]))
        log = ends.enter_context((tmp_path / "cluster.log").open("wb"))

        def begin(*words: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
            work = tmp_path / f"work{len(list(tmp_path.glob('work*')))}"
            work.mkdir()
            process = subprocess.Popen(
                [*prefix, launch, *words], env=environment, stdout=log, stderr=log, cwd=work, start_new_session=True
            )
            ends.callback(process.wait)
            ends.callback(process.kill)
            return process

        port = free_port()
        begin("org.apache.spark.deploy.master.Master", "--host", hosts.own, "--port", str(port), "--webui-port", "0")
        until = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((hosts.own, port)) == 0:
                    break
            assert time.monotonic() < until, (tmp_path / "cluster.log").read_text()
            time.sleep(0.2)
        master = f"spark://{hosts.own}:{port}"
        workers = [
            begin(
                "org.apache.spark.deploy.worker.Worker", "--host", address, "--webui-port", "0", "--cores", "1",
                "--memory", "700m", "--work-dir", str(tmp_path / space), master,
                prefix=("ip", "netns", "exec", space),
            )
            for space, address in hosts.spaces.items()
        ]  # fmt: skip
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, master, str(raw), str(out)], env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        ends.callback(driver.kill)
        until = time.monotonic() + 300
        while driver.poll() is None and len(list((out / "_staging").glob("*/packets/*/*/*/*.parquet"))) < 2:
            assert time.monotonic() < until, (tmp_path / "cluster.log").read_text()[-3000:]
            time.sleep(0.05)
        assert driver.poll() is None, driver.stderr.read()[-3000:]
        workers[1].kill()  # in the middle of the second pass
        said, error = driver.communicate(timeout=400)
        assert driver.returncode == 0, error[-3000:]
    packets, problems = json.loads(said.splitlines()[-1])
    assert problems == []
    assert content(out) == content(tmp_path / "alone")
    assert packets == len(content(out))
    assert verify(None, Archive(out)).problems == []
