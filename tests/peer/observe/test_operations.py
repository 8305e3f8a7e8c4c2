"""The files for operators: what they name is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from dht import Identity
from peer.cli.config import ENVIRONMENT_PREFIX
from peer.cli.errors import ExitCode
from peer.cli.settings import all_names, settings_for
from tests.peer.cli.command import PATIENCE, REPOSITORY, clean_environment

NOBODY = 65_534
OPERATIONS = REPOSITORY / "docs" / "operations"
UNIT = (OPERATIONS / "skymesh@.service").read_text()
KEY = (OPERATIONS / "root-key.conf").read_text()
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
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied == {*wheel["packages"], *(path.split("/")[0] for path in wheel["force-include"])}
    for name in re.findall(r"^COPY (.+) \./$", CONTAINER, flags=re.MULTILINE)[0].split():
        assert (REPOSITORY / name).exists()
    assert project["project"]["readme"] in CONTAINER


@pytest.mark.parametrize("text", [UNIT, CONTAINER, KEY], ids=["unit", "container", "key"])
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
    (tmp_path / "skymesh@test.service.d").mkdir()
    (tmp_path / "skymesh@test.service.d" / "root-key.conf").write_text(KEY)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.net
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to become somebody else")
def test_an_unprivileged_root_starts_with_the_key_that_systemd_hands_it():
    """The key of mode 0600 in /etc could not be read by the unit's own user, so that the example never started."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own can't be entered by others
        os.chmod(folder, 0o755)
        _start_as_nobody(Path(folder))


def _start_as_nobody(tmp_path):
    kept, handed = tmp_path / "asdi.key", tmp_path / "owner.key"
    Identity.generate().save(kept)
    handed.write_text(kept.read_text())
    handed.chmod(0o400)
    os.chown(handed, NOBODY, NOBODY)
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", NOBODY, NOBODY)

    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run([*as_nobody, sys.executable, "-c", "import peer"], cwd=REPOSITORY, check=False).returncode:
        pytest.skip("another user can't run this Python, or read this folder")

    def start(key):
        given = {"PEER_OWNER": str(key), "HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen(
            [*as_nobody, sys.executable, "-m", "peer", "root", "asdi", "--feed", "demo", "--no-beacon"],
            cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, env=clean_environment() | given,
        )  # fmt: skip

    refused = start(kept)
    assert f"cannot read the key file {kept}: Permission denied" in refused.communicate(timeout=PATIENCE)[1]
    assert refused.returncode == ExitCode.KEY_FILE
    serving = start(handed)
    try:
        assert serving.stderr.readline().startswith("skymesh: root of asdi on 127.0.0.1:")
    finally:
        serving.terminate()
        serving.communicate(timeout=PATIENCE)
    assert serving.returncode == 0
