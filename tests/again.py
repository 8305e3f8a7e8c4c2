"""Run what failed in the last run once more, alone: `python -m tests.again`. CI calls it, developers need not.

Tests of real processes share the machine with two other workers, and now and then with something else. What fails there
and passes alone is printed as unsteady: it is a test to be mended, but not a reason to refuse a change. More than a few
failures are not chance, and are not tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 4
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed(text: str) -> list[str]:
    """The ids of the tests, without the group that xdist adds behind the name."""
    return sorted(without_group(name) for name in json.loads(text))


def without_group(name: str) -> str:
    test, at, group = name.rpartition("@")
    return test if at and "]" not in group and "/" not in group else name


def main() -> int:
    try:
        names = failed(LAST_FAILED.read_text())
    except FileNotFoundError:
        return 1  # it did not come to the tests
    if not 0 < len(names) <= MOST:
        print(f"{len(names)} tests failed: not tried again", file=sys.stderr)
        return 1
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *names], check=False).returncode
    if code == 0:
        print("\n".join(f"unsteady: {name} failed at first, and passed alone" for name in names))
    return code


if __name__ == "__main__":
    sys.exit(main())
