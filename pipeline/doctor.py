"""Check that everything the pipeline needs is installed, and say how to fix what is not."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pipeline.session import OLDEST_JAVA, PipelineError, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WANTED = {"pyspark": (4, 2), "pyarrow": (18, 0), "pandas": (2, 2), "zstandard": (0, 23), "lxml": (5, 3)}


class Check(NamedTuple):
    name: str
    ok: bool
    found: str
    advice: str = ""


def packages() -> list[Check]:
    checks = []
    for name, oldest in _WANTED.items():
        wanted = ".".join(map(str, oldest))
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, False, "not installed", "pip install 'skymesh[spark]'"))
            continue
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        ok = numbers >= oldest
        checks.append(Check(name, ok, version, "" if ok else f"pip install -U '{name}>={wanted}'"))
    return checks


def java() -> Check:
    try:
        found = find_java()
    except PipelineError as error:
        return Check("java", False, "none", str(error))
    return Check("java", True, f"{found.version} ({found.source}: {found.home})")


def job(open_session: Callable[[], SparkSession]) -> Check:
    """Run a real job: JVM, workers, Arrow, and the worker's Python."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark = open_session()
        report = spark.range(0, 1000, 1, 2).mapInArrow(_worker, "python STRING, rows LONG").collect()
    except PipelineError as error:
        return Check("a job", False, "did not run", str(error))
    except (PySparkException, Py4JError, OSError) as error:
        said = str(error).strip().splitlines()
        return Check(
            "a job", False, said[0][:200] if said else type(error).__name__, "see docs/pipeline.md, Troubleshooting"
        )
    versions = {row.python for row in report}
    driver = f"{sys.version_info.major}.{sys.version_info.minor}"
    rows = sum(row.rows for row in report)
    where = spark.sparkContext.master
    if versions != {driver}:
        return Check("a job", False, f"workers run Python {versions}, this is {driver}", "set PYSPARK_PYTHON")
    return Check("a job", rows == 1000, f"ran on {where}, Spark {spark.version}, Python {driver} in the workers")


def _worker(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  Spark gives and takes Arrow batches
    import pyarrow as pa

    import asdi  # noqa: F401  the workers need the project, too

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"python": [version], "rows": [rows]})


def examine(open_session: Callable[[], SparkSession]) -> list[Check]:
    """Open a session only if everything that it needs is installed."""
    python = Check("python", sys.version_info >= (3, 11), sys.version.split()[0], "skymesh needs Python 3.11 or later")
    checks = [python, *packages(), java()]
    if all(check.ok for check in checks):
        checks.append(job(open_session))
    else:
        checks.append(Check("a job", False, "not tried", f"fix the above first (Java {OLDEST_JAVA} or later)"))
    return checks
