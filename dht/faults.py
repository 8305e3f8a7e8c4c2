"""The border between what others send and this process: an unexpected exception is counted and logged, not fatal.

What a stranger may get wrong is expected, and dealt with where it is read. Whatever else is raised at a border (a
datagram, a timer, a round of upkeep) is a bug, and a stranger may have found how to trigger it. The input is dropped.
Under `python -X dev` and with `SKYMESH_STRICT=1` in the environment it is raised all the same: there, bugs are loud.

A program that has such a border of its own gives its handler, so that there is one count: `set_handler`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

Handler = Callable[[str, Exception], None]

counts: Counter[str] = Counter()
"""By kind, in this process. Kinds are constants of the program, never text from outside."""
MAX_LOGGED = 64  # different errors; further ones are counted only, since a log that a stranger can fill helps nobody
MAX_TEXT = 200
_logged: set[tuple[str, type[Exception]]] = set()


def count_and_log(kind: str, error: Exception) -> None:
    """The handler unless another one is set. Raises the error again when bugs are to be loud."""
    if isinstance(error, MemoryError) or sys.flags.dev_mode or os.environ.get("SKYMESH_STRICT", "") not in ("", "0"):
        raise error
    counts[kind] += 1
    key = (kind, type(error))
    if key in _logged or len(_logged) >= MAX_LOGGED:
        return
    _logged.add(key)
    # The text may quote a stranger's bytes: no control characters, no endless lines.
    text = ascii(str(error))[:MAX_TEXT]
    log.warning("unexpected error in %s, dropped: %s: %s (once only)", kind, type(error).__name__, text)
    log.debug("traceback of the error in %s", kind, exc_info=error)


_handler: Handler = count_and_log


def set_handler(handler: Handler | None) -> None:
    """Where faults go from now on; None: back to `count_and_log`."""
    global _handler
    _handler = handler if handler is not None else count_and_log


def fault(kind: str, error: Exception) -> None:
    """Call this from the `except Exception` of a border."""
    _handler(kind, error)


@contextmanager
def border(kind: str) -> Iterator[None]:
    """Do not let an unexpected exception of this block go on."""
    try:
        yield
    except Exception as error:
        fault(kind, error)
