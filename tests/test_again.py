"""Which tests CI tries again, and when it does not."""

from __future__ import annotations

import json

import pytest

from tests import again


def test_the_group_is_not_part_of_the_name():
    names = {"tests/a.py::test_x@spark": True, "tests/b.py::test_y[a@b.c/d]": True, "tests/b.py::test_z[@]": True}
    assert again.failed(json.dumps(names)) == [
        "tests/a.py::test_x",
        "tests/b.py::test_y[a@b.c/d]",
        "tests/b.py::test_z[@]",
    ]


@pytest.mark.parametrize(("count", "tried"), [(None, False), (0, False), (1, True), (again.MOST + 1, False)])
def test_only_a_few_failures_are_tried_again(tmp_path, monkeypatch, count, tried):
    last = tmp_path / "lastfailed"
    monkeypatch.setattr(again, "LAST_FAILED", last)
    if count is not None:
        last.write_text(json.dumps({f"tests/none.py::test_{n}": True for n in range(count)}))
    calls = []

    def run(command, **options):
        calls.append(command)
        return type("Done", (), {"returncode": 4})()

    monkeypatch.setattr(again.subprocess, "run", run)
    assert again.main() != 0
    assert bool(calls) is tried
