"""The border between what others send and this process: an unexpected exception is counted, not fatal.

Every place that handles input from outside (a datagram, a timer's work for one link, an inquiry, a connection, an HTTP
request) expects certain errors and deals with them itself. Whatever else is raised there is a bug, and a stranger may
have found a way to trigger it: it must not end the process. The border drops the input, closes the link that it came
from, and reports here.

    try:
        handle(datagram)
    except Exception as error:  # on a hot path: costs nothing until something is raised
        fault("datagram", error)

    with guard("http request"):  # elsewhere
        handle(request)

`KeyboardInterrupt`, `SystemExit`, `trio.Cancelled` and `MemoryError` pass, alone or in a group. Under `python -X dev`,
with `SKYMESH_STRICT=1` in the environment, and in tests (`set_strict`), everything passes: bugs stay loud there.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

faults: Counter[str] = Counter()
"""Kind -> how often, in this process. Kinds are constants of the program, never text from outside."""

# Different errors that are logged; further ones are counted only. A log that a stranger can fill helps nobody.
MAX_LOGGED = 64
MAX_TEXT = 200

_strict: bool | None = None
_logged: set[tuple[str, type[BaseException]]] = set()


def strict() -> bool:
    """Whether faults are raised instead of counted."""
    if _strict is not None:
        return _strict
    return sys.flags.dev_mode or os.environ.get("SKYMESH_STRICT", "") not in ("", "0")


def set_strict(value: bool | None) -> None:
    """Raise faults (True) or count them (False), whatever the interpreter's mode; None: as the interpreter's mode."""
    global _strict
    _strict = value


@contextmanager
def strictness(value: bool) -> Iterator[None]:
    """`set_strict` for the duration of a block: for tests of what happens in production."""
    before = _strict
    set_strict(value)
    try:
        yield
    finally:
        set_strict(before)


def fault(kind: str, error: Exception) -> None:
    """Count `error`, and log it the first time. Call this from the `except Exception` of a border.

    Raises `error` again when strict, and when it is, or contains, a `MemoryError`: nothing sensible follows that.
    """
    if _is_fatal(error) or strict():
        raise error
    faults[kind] += 1
    key = (kind, type(error))
    if key in _logged or len(_logged) >= MAX_LOGGED:
        return
    _logged.add(key)
    # The text may quote a stranger's bytes: no control characters, no endless lines.
    text = ascii(str(error))[:MAX_TEXT]
    log.warning("unexpected error in %s, dropped: %s: %s (repetitions are counted only)", kind, _name(error), text)
    log.debug("the traceback of the error in %s", kind, exc_info=error)


@contextmanager
def guard(kind: str) -> Iterator[None]:
    """Do not let an unexpected exception of this block go on; see `fault`."""
    try:
        yield
    except Exception as error:
        fault(kind, error)


def _is_fatal(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_fatal(inner) for inner in error.exceptions)
    return isinstance(error, MemoryError) or not isinstance(error, Exception)


def _name(error: Exception) -> str:
    return type(error).__name__
