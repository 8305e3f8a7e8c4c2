"""Paths on a file system, and addresses that only look like one."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.session import PipelineError

# Path makes one slash of two. A single letter before the colon is no address.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def is_address(text: str | Path) -> bool:
    return _ADDRESS.match(str(text)) is not None


def local_path(text: str | Path) -> Path:
    """The path; `PipelineError` for an address such as `s3://bucket/folder`, of which `Path` would make a folder `s3:`.

    Commits rename files and hold locks, and logs are appended to: an object store can do none of that.
    """
    if is_address(text):
        raise PipelineError(
            f"{text} is not a path: archives, logs and inputs must be on a file system "
            "(`python -m pipeline delta ARCHIVE --copy-to URL` copies an archive's tables to an object store)"
        )
    return Path(text)
