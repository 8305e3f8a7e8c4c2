"""Processes that end with the one that started them, however that one ends."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Looked up before any fork: a forked child must not load libraries.
_prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def die_with_parent() -> None:
    """In the new process. Linux: SIGKILL when its parent ends, which reaches even a frozen one; elsewhere nothing."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
