"""`python -m peer` and `skymesh`: the process."""

from __future__ import annotations

import gc
import signal


def run() -> None:
    """Ctrl-C while the program is still being loaded ends it without a word; from then on the commands answer it.

    Loading makes no garbage: `peer.cli.main` starts the collector when a command is loaded.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        from peer.cli.main import run

        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:  # ignored, as for a job in the background of a script
        from peer.cli.main import run
    run()


if __name__ == "__main__":
    run()
