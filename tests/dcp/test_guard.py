"""The border that an unexpected exception does not cross, except where bugs are to be loud."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio

from dcp import guard


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(guard, "faults", type(guard.faults)())
    monkeypatch.setattr(guard, "_logged", set())
    with guard.strictness(False):
        yield


def test_an_unexpected_exception_is_counted_by_kind() -> None:
    for _ in range(3):
        with guard.guard("datagram"):
            raise KeyError("x")
    with guard.guard("timer"):
        raise RecursionError
    assert guard.faults == {"datagram": 3, "timer": 1}


def test_the_first_of_a_kind_is_logged_once_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="dcp.guard")
    for _ in range(5):
        with guard.guard("datagram"):
            raise ValueError("\x1b[2J\n" + "y" * 10_000)
    warning, trace = caplog.records
    assert warning.levelno == logging.WARNING
    assert "\x1b" not in warning.getMessage()
    assert "\n" not in warning.getMessage()
    assert len(warning.getMessage()) < 400
    assert trace.levelno == logging.DEBUG
    assert trace.exc_info is not None


def test_the_log_does_not_grow_with_new_kinds_of_errors(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1_000):
        with guard.guard("datagram"):
            raise type(f"Error{number}", (Exception,), {})
    assert len(caplog.records) == guard.MAX_LOGGED
    assert guard.faults["datagram"] == 1_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit])
def test_what_must_end_the_process_passes(error: type[BaseException]) -> None:
    with pytest.raises(error), guard.guard("datagram"):
        raise error
    assert not guard.faults


def test_a_group_passes_when_something_fatal_is_in_it() -> None:
    with guard.guard("connection"):
        raise ExceptionGroup("ordinary", [ValueError(), ExceptionGroup("inner", [KeyError()])])
    with pytest.raises(ExceptionGroup), guard.guard("connection"):
        raise ExceptionGroup("fatal", [ValueError(), ExceptionGroup("inner", [MemoryError()])])
    with pytest.raises(BaseExceptionGroup), guard.guard("connection"):
        raise BaseExceptionGroup("fatal", [ValueError(), KeyboardInterrupt()])
    assert guard.faults == {"connection": 1}


def test_cancellation_passes() -> None:
    async def main() -> bool:
        with trio.move_on_after(0) as scope, guard.guard("connection"):
            await trio.sleep_forever()
        return scope.cancelled_caught

    assert trio.run(main)
    assert not guard.faults


def test_tests_are_strict_and_raise() -> None:
    with guard.strictness(True), pytest.raises(ZeroDivisionError), guard.guard("datagram"):
        raise ZeroDivisionError
    assert not guard.faults


@pytest.mark.parametrize(
    ("options", "variable", "strict"), [([], "", False), (["-X", "dev"], "", True), ([], "1", True), ([], "0", False)]
)
def test_development_mode_is_strict(options: list[str], variable: str, strict: bool) -> None:
    command = [sys.executable, *options, "-c", "import dcp.guard; print(dcp.guard.strict())"]
    environment = {**os.environ, "SKYMESH_STRICT": variable, "PYTHONDEVMODE": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(strict)
