"""Hypothesis profiles: `dev` (default) is quick, `ci` repeats exactly, `soak` is long. HYPOTHESIS_PROFILE chooses."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from dcp import guard
from dht import faults
from xmlswitch import switch

# What production counts and survives is a bug all the same: here it fails the test.
guard.set_strict(True)
switch.STRICT = True

# Shared machines are slow now and then: a deadline would test the machine, not the code.
settings.register_profile("dev", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("soak", settings.get_profile("dev"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell without job control starts what runs in the background with Ctrl-C ignored, and every child inherits that: the
# tests of Ctrl-C would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _be_loud(kind: str, error: Exception) -> None:
    raise error


faults.set_handler(_be_loud)  # in tests a bug at a border of the DHT is not dropped

# Roots keep their numbers in a folder of the user's: tests must neither find nor leave any there.
_HOMES = tempfile.mkdtemp(prefix="skymesh-tests-")
_NUMBERS = itertools.count()
os.environ["XDG_DATA_HOME"] = os.path.join(_HOMES, "shared")


@pytest.fixture(autouse=True)
def _own_data_home(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", os.path.join(_HOMES, str(next(_NUMBERS))))


def pytest_unconfigure():
    import shutil

    shutil.rmtree(_HOMES, ignore_errors=True)
