"""`python -m peer`."""

from __future__ import annotations

from peer.cli.main import run

if __name__ == "__main__":
    run()
