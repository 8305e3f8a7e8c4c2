"""One Spark session for all tests of the pipeline; they share an xdist group, so that it is one process, too."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from asdi.flights import Feed

# The JVM lives for a minute: it is not worth compiling much.
QUICK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Xss64m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
# The same for commands that tests run.
SHORT_LIVED = [word for key, value in QUICK.items() for word in ("--conf", f"{key}={value}")]
# Real data, if it lies beside the checkout or above it; nothing here needs it.
_BESIDE = [parent / "shared/data" for parent in Path(__file__).resolve().parents]
SHARED = next((path for path in _BESIDE if path.is_dir()), _BESIDE[0])
NOON = 1_794_830_400  # 2026-11-16 12:00 UTC


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """On the Java of the wheel, as on a machine that has none; jobs of their own (test_kill.py) take the machine's."""
    from pipeline.session import java_of_wheel, open_session

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, of its libraries and sockets: not ours to mend
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        wheel = java_of_wheel()
        if wheel is not None:  # there is one for most machines
            patch.setenv("JAVA_HOME", str(wheel.home))
        session = open_session("local[2]", name="tests", options=QUICK)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def raw_hours(tmp_path_factory) -> Path:
    """Two hours of the feed in two files, across midnight and the end of a month."""
    directory = tmp_path_factory.mktemp("raw")
    feed = Feed()
    midnight = 1_796_083_200  # 2026-12-01 00:00 UTC
    for name, begin in [("asdi-2026-11-30.txt", midnight - 3600), ("asdi-2026-12-01.txt", midnight)]:
        lines = [line.text for line in feed.lines(begin, begin + 3600)]
        (directory / name).write_bytes("".join(f"{line} \r\n" for line in lines).encode())
    return directory


@pytest.fixture(scope="session")
def archive_path(spark, raw_hours, tmp_path_factory) -> Path:
    """Those two hours as an archive. Tests read it and do not change it."""
    from pipeline.ingest.text import ingest

    path = tmp_path_factory.mktemp("archive")
    ingest(spark, [str(raw_hours)], path, chunk_bytes=100_000)
    return path


def record_once(spark, options, out, checkpoint, **more) -> None:
    """`record` what a log has now; again when a worker did not start in the ten seconds that Spark gives it."""
    from pipeline.live.record import record

    for attempt in range(5):
        try:
            record(spark, options, out, checkpoint, stream="asdi", once=True, **more).awaitTermination()
        except Exception as error:
            if attempt == 4 or "failed to connect back" not in str(error):
                raise
        else:
            return
