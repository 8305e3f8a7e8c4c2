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

from asdi.flights import Feed
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

    prepare_environment()
    home = Path(pyspark.__file__).parent
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    launch = str(home / "bin" / "spark-class")
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"]
    worker += ["--memory", "700m", address]
    processes = []
    log = (tmp_path / "cluster.log").open("wb")

    def begin(words: list[str], work: Path) -> None:
        work.mkdir()
        more = ["--work-dir", str(work)] if "Worker" in words[0] else []
        command = [launch, words[0], *more, *words[1:]]
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


# One driver for all three jobs: what it finds goes to stdout.
DRIVER = """
import json, sys
from pipeline.archive import Archive
from pipeline.ingest.text import ingest
from pipeline.replay import iterate_with_spark
from pipeline.archive.scan import pieces
from pipeline.analyze.selectivity import partial, selectivity
from pipeline.session import open_session

master, raw, out, queries = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
memory = {"spark.driver.memory": "700m", "spark.executor.memory": "500m", "spark.driver.host": "127.0.0.1"}
spark = open_session(master, options=memory)
done = ingest(spark, [raw], out, chunk_bytes=200_000)
rates = sorted(map(list, selectivity(partial(spark, pieces(Archive(out)), queries)).collect()))
played = [[p.an, p.time, p.payload.decode()] for p in iterate_with_spark(spark, out)]
workers = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(json.dumps([workers, done.packets, done.types, done.quarantined, rates, played]))
"""


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_what_local_mode_gives(cluster, tmp_path):
    raw = tmp_path / "asdi-2026-11-16.txt"
    raw.write_text("".join(f"{line.text}\n" for line in Feed(copies=4).lines(NOON, NOON + 1800)))
    queries = json.dumps(["/flight/flightleg/altitude > 300", "starts-with(string(/flight/id),'UAL')"])
    results = {}
    for master in (cluster, "local[2]"):
        out = tmp_path / master[:5]
        command = [sys.executable, "-c", DRIVER, master, str(raw), str(out), queries]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        workers, *results[master[:5]] = json.loads(done.stdout.splitlines()[-1])
        assert workers == (2 if master == cluster else 0)
        results[master[:5]].append([[p.an, p.time, p.payload.decode()] for p in iterate(out)])
    assert results["spark"] == results["local"]
    packets, _, quarantined, rates, played, again = results["local"]
    assert quarantined == {}
    assert len(rates) == 3
    assert played == again
    assert len(played) == packets > 5000


def test_on_a_cluster_the_driver_has_an_address_that_workers_can_reach(monkeypatch):
    """It was 127.0.0.1 for every master: workers on another host died in a loop while the user read "0 of 1 tasks"."""
    from pipeline import session

    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setattr(session, "find_java", lambda: session.Java(Path("/none"), 21, "test"))
    monkeypatch.setenv("JAVA_HOME", "/none")
    session.prepare_environment("spark://192.0.2.7:7077")
    assert "SPARK_LOCAL_IP" not in os.environ
    own = session.address_towards("spark://127.0.0.1:7077,127.0.0.2:7077")
    assert own == "127.0.0.1"
    assert session._settings("spark://127.0.0.1:7077", light=True)["spark.driver.host"] == "127.0.0.1"
    assert session.address_towards("yarn") is None
    with pytest.raises(session.PipelineError, match=r"the master.s host no\.such\.host\.invalid has no address"):
        session.address_towards("spark://no.such.host.invalid:7077")
    session.prepare_environment()
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    monkeypatch.delenv("SPARK_LOCAL_IP")
