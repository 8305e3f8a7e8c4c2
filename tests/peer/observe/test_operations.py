"""The files for operators: what they name is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest

from peer.cli.config import ENVIRONMENT_PREFIX
from peer.cli.errors import ExitCode
from peer.cli.settings import all_names, settings_for
from tests.peer.cli.command import REPOSITORY

OPERATIONS = REPOSITORY / "docs" / "operations"
UNIT = (OPERATIONS / "skymesh@.service").read_text()
CONTAINER = (OPERATIONS / "Containerfile").read_text()


def test_links_lead_somewhere():
    for page in (
        OPERATIONS / "README.md",
        REPOSITORY / "docs" / "tutorial.md",
        REPOSITORY / "docs" / "troubleshooting.md",
    ):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_container_copies_what_the_package_needs():
    copied = set(re.findall(r"^COPY (\w+) \1$", CONTAINER, flags=re.MULTILINE))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert copied == set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    for name in re.findall(r"^COPY (.+) \./$", CONTAINER, flags=re.MULTILINE)[0].split():
        assert (REPOSITORY / name).exists()
    assert project["project"]["readme"] in CONTAINER


@pytest.mark.parametrize("text", [UNIT, CONTAINER], ids=["unit", "container"])
def test_variables_that_are_set_are_settings(text):
    names = set(re.findall(rf"\b{ENVIRONMENT_PREFIX}(\w+)=", text))
    assert names
    assert {name.lower() for name in names} <= all_names()


def test_the_unit_does_not_restart_what_a_restart_cannot_mend():
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.+)$", UNIT, flags=re.MULTILINE)
    assert {ExitCode(int(code)) for code in codes.split()} == {
        ExitCode.USAGE,
        ExitCode.BAD_QUERY,
        ExitCode.KEY_FILE,
        ExitCode.WRONG_OWNER,
        ExitCode.CONFIG,
    }


def test_the_settings_in_the_units_example_exist():
    columns = [re.findall(r"(\w+) = ", line) for line in UNIT.splitlines() if line.startswith("#   ") and " = " in line]
    assert columns
    for place, command in enumerate(("join", "root")):
        known = {setting.name for setting in settings_for(command)}
        assert {names[place] for names in columns} <= known


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    unit = tmp_path / "skymesh@test.service"
    # The program need not be installed for its unit to be sound.
    unit.write_text(UNIT.replace("/opt/skymesh/bin/skymesh", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
