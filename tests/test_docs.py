"""The pages name what exists: functions, files, and links between pages."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys

import pytest

from tests.imports import MODULES, REPOSITORY

PAGES = sorted([*(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("*.md")])
_PLACE = re.compile(r"`((?:asdi|dcp|xmlswitch|dht|peer|pipeline|demo|bench)/[\w/]+\.py):(\w+)`")
_FILE = re.compile(r"`((?:asdi|dcp|xmlswitch|dht|peer|pipeline|demo|bench|tests|docs)/[\w/.-]+\.\w+)`")
_LINK = re.compile(r"\]\(([\w./-]+\.(?:md|png|yml|json|service|dtd))(#[\w-]+)?\)")


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_function_that_the_architecture_names_exists():
    found = _PLACE.findall((REPOSITORY / "docs" / "architecture.md").read_text())
    assert len(found) > 40
    missing = []
    for path, name in found:
        file = REPOSITORY / path
        tree = ast.parse(file.read_text()) if file.exists() else ast.parse("")
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if not any(isinstance(node, kinds) and node.name == name for node in ast.walk(tree)):
            missing.append(f"{path}:{name}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_pages_name_files_and_link_to_pages_that_exist(page):
    text = page.read_text()
    if page.name != "CHANGELOG.md":  # it names what was there
        assert [name for name in _FILE.findall(text) if not (REPOSITORY / name).exists()] == []
    for target, anchor in _LINK.findall(text):
        other = page.parent / target
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other.read_text()), f"{target}{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_limits_that_the_pages_name_exist(page):
    """`tickets.MAX_TICKETS`: a constant of a module, as the tables of limits write it."""
    for stem, constant in re.findall(r"`([a-z_]+)\.([A-Z]+_[A-Z_]+)`", page.read_text()):
        homes = [path for name, path in MODULES.items() if name.rpartition(".")[2] == stem]
        assert any(re.search(rf"^{constant}\b", path.read_text(), re.MULTILINE) for path in homes), f"{stem}.{constant}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_that_the_pages_show_name_tests_that_exist(page):
    for name in re.findall(r"\btests/[a-z_0-9/]+\.py\b", page.read_text()):
        assert (REPOSITORY / name).exists(), name
    for module in re.findall(r"from (tests\.[a-z_0-9.]+) import", page.read_text()):
        assert (REPOSITORY / (module.replace(".", "/") + ".py")).exists(), module


def test_the_reference_has_every_public_name(tmp_path):
    """In a process of its own: it loads every name into the packages."""
    subprocess.run(
        [sys.executable, "docs/reference.py", str(tmp_path)],
        cwd=REPOSITORY,
        check=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    for package in ("skymesh", "dcp", "xmlswitch", "dht"):
        page = (tmp_path / f"{package}.html").read_text()
        names = set(importlib.import_module(package).__all__) - {"blocking", "guest"}
        assert {name for name in names if f'id="{name}"' not in page} == set()
    assert 'id="join_qt"' in (tmp_path / "peer" / "guest.html").read_text()
