"""`python -m peer`."""

from __future__ import annotations

from peer.cli import run

if __name__ == "__main__":
    run()
