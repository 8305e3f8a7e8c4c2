"""`python -m dht`: see `python -m dht --help`."""

from __future__ import annotations

import sys

from dht.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
