"""`python -m xmlswitch` as a user or a script calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from xmlswitch.cli import main


@pytest.fixture
def files(tmp_path):
    (tmp_path / "queries.txt").write_text("/a/b\n\n//c[@x='1']\nnot(/a)\n")
    (tmp_path / "one.xml").write_bytes(b"<a><b/></a>")
    (tmp_path / "two.xml").write_bytes(b"<z><c x='1'/></z>")
    (tmp_path / "bad.xml").write_bytes(b"<a>")
    return tmp_path


def test_json_has_one_line_a_document(files, capsys):
    names = [str(files / name) for name in ("one.xml", "bad.xml", "two.xml")]
    assert main(["match", "--queries", str(files / "queries.txt"), *names, "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["file"] for line in lines] == names
    assert lines[0]["matches"] == [1]
    assert "well-formed" in lines[1]["error"]
    assert lines[2]["matches"] == [3, 4]


def test_one_query_for_people(files, capsys):
    assert main(["match", "/a/b", str(files / "one.xml"), str(files / "two.xml")]) == 0
    out = capsys.readouterr().out
    assert "one.xml: 1: /a/b" in out
    assert "two.xml: no match" in out


def test_missing_document_is_an_error_line(files, capsys):
    assert main(["match", "/a", str(files / "none.xml"), str(files / "one.xml"), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "error" in lines[0]
    assert lines[1]["matches"] == [1]


def test_bad_query_among_good_ones_is_told_and_the_rest_answered(files, capsys):
    (files / "queries.txt").write_text("/a[\n/a/b\n")
    assert main(["match", "--queries", str(files / "queries.txt"), str(files / "one.xml"), "--json"]) == 2
    captured = capsys.readouterr()
    assert "line 1" in captured.err
    assert json.loads(captured.out)["matches"] == [2]


def test_explain(capsys):
    assert main(["explain", "//p:a[b]/c", "--namespace", "p=urn:x", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["how"].startswith("indexed")
    assert told["namespaces"] == {"n1": "urn:x"}
    assert main(["explain", "count(//a) mod 2"]) == 0
    assert "evaluated" in capsys.readouterr().out
    assert main(["explain", "/a["]) == 2
    assert "character 4" in capsys.readouterr().err


def test_as_a_process(files):
    command = [sys.executable, "-m", "xmlswitch", "match", "/a/b", "-", "--json"]
    done = subprocess.run(command, input=b"<a><b/></a>", capture_output=True, check=True)
    assert json.loads(done.stdout) == {"file": "-", "matches": [1]}
    done = subprocess.run(
        [sys.executable, "-m", "xmlswitch", "match", "/a"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
