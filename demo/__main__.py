"""`python -m demo`: see `python -m demo --help`."""

from __future__ import annotations

import sys

from demo.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
