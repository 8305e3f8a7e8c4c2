"""The folder of a demo's keys, and the folders that demos left which were killed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

_NAME = re.compile(r"skymesh-demo-(\d+)-")


def prefix() -> str:
    return f"skymesh-demo-{os.getpid()}-"


def sweep(folder: Path | None = None) -> None:
    """Remove what dead demos of this user left behind."""
    for path in (folder or Path(tempfile.gettempdir())).glob("skymesh-demo-*"):
        match = _NAME.match(path.name)
        if match is None or _is_alive(int(match[1])):
            continue
        try:
            if path.stat().st_uid == os.getuid() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # another demo swept it first


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
