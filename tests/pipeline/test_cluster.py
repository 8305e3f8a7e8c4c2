"""A real standalone cluster, a master and two workers as processes here: the same results as in one process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.flights import Feed
from pipeline.replay import iterate
from pipeline.session import prepare_environment
from tests.pipeline.conftest import NOON


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster(tmp_path):
    """(master's address); every process it starts is its own, and is ended by its id."""
    import pyspark

    java = prepare_environment()
    home = Path(pyspark.__file__).parent
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    launch = [str(java.home / "bin" / "java"), "-cp", f"{home}/jars/*", "-Xmx512m", "-XX:+IgnoreUnrecognizedVMOptions"]
    opens = ["java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent"]
    opens += ["java.util.concurrent.atomic"]
    launch += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opens]
    launch += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED"]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"]
    worker += ["--memory", "700m", address]
    processes = []
    log = (tmp_path / "cluster.log").open("wb")

    def begin(words: list[str], work: Path) -> None:
        work.mkdir()
        more = ["--work-dir", str(work)] if "Worker" in words[0] else []
        command = [*launch, words[0], *more, *words[1:]]
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work))

    begin(master, tmp_path / "master")
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert processes[0].poll() is None, (tmp_path / "cluster.log").read_text()
        time.sleep(0.2)
    begin(worker, tmp_path / "one")
    begin(worker, tmp_path / "two")
    yield address
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        process.wait(timeout=60)
    log.close()


def run(master: str, *words: str) -> str:
    command = [sys.executable, "-m", "pipeline", *words, "--master", master]
    for setting in ["spark.driver.memory=700m", "spark.executor.memory=500m", "spark.driver.host=127.0.0.1"]:
        command += ["--conf", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_what_local_mode_gives(cluster, tmp_path):
    raw = tmp_path / "asdi-2026-11-16.txt"
    raw.write_text("".join(f"{line.text}\n" for line in Feed(copies=4).lines(NOON, NOON + 1800)))
    queries = ["--query", "/flight/flightleg/altitude > 300", "--query", "starts-with(string(/flight/id),'UAL')"]
    results = {}
    for name, master in (("cluster", cluster), ("local", "local[2]")):
        out = tmp_path / name
        done = json.loads(run(master, "ingest", str(raw), "--out", str(out), "--json"))
        assert done["quarantined"] == {}
        rates = json.loads(run(master, "analyze", "selectivity", str(out), *queries, "--json"))
        played = run(master, "replay", str(out), "--speed", "0")
        results[name] = (done["packets"], done["types"], rates, played, list(iterate(out)))
    assert results["cluster"] == results["local"]
    assert results["local"][3].count("\n") == results["local"][0] > 5000
