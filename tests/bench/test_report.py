"""What a benchmark prints about itself."""

from __future__ import annotations

import argparse
import json
import types

from bench import __main__ as command
from bench.report import Report


def test_the_commit_is_the_one_at_which_the_run_began(monkeypatch, capsys):
    """A run during which somebody committed was labelled with code that it had not measured."""
    commits = iter(["before", "after"])
    monkeypatch.setattr(command, "commit", lambda: next(commits))

    def run(args: argparse.Namespace) -> Report:
        return Report("x", {}, [], [], [])

    module = types.SimpleNamespace(SUMMARY="x", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(command.importlib, "import_module", lambda path: module)
    assert command.run_one("x", "x", ["--json"])
    assert json.loads(capsys.readouterr().out)["commit"] == "before"
