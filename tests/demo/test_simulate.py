"""Big meshes in virtual time, here small ones: exactly repeatable, and honest about what it can't do."""

from __future__ import annotations

import json
import sys

import pytest

from demo.cli import main

SMALL = ["simulate", "--peers", "25", "--minutes", "0.3", "--churn", "4", "--json"]


def run(capsys, *more):
    code = main([*SMALL, *more])
    return code, json.loads(capsys.readouterr().out)


def test_the_same_seed_prints_the_same_and_another_does_not(capsys):
    code, first = run(capsys)
    _, again = run(capsys)
    _, other = run(capsys, "--seed", "8")
    assert code == 0
    assert first == again
    assert first["digest"] != other["digest"]
    assert first["deaths"] > 10
    assert first["short_at_the_end"] == 0
    assert first["reached_at_once"] > 0.9


def test_a_picture_is_drawn(capsys, tmp_path):
    path = tmp_path / "mesh.svg"
    assert main(["simulate", "--peers", "8", "--minutes", "0.05", "--picture", str(path)]) == 0
    assert path.read_text().startswith("<?xml")
    assert "digest" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--peers", "0"], "--peers must be in 1..20000"),
        (["--parents", "4"], "4 parents need 4 roots"),
        (["--loss", "nan"], "--loss must be in 0..0.9"),
        (["--capacity", "2"], "--capacity must be greater than --parents"),
        (["--picture", "/nowhere/at/all.png"], "no such folder"),
    ],
)
def test_wrong_calls_get_one_sentence(arguments, sentence, capsys):
    assert main(["simulate", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_without_matplotlib_the_picture_is_refused_before_the_run(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["simulate", "--picture", str(tmp_path / "x.png")]) == 2
    assert "skymesh[plots]" in capsys.readouterr().err
