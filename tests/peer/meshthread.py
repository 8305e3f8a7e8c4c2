"""A small mesh in this process for tests of the faces: a root in a thread, fed until the block ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from peer import blocking


def document(number: int) -> bytes:
    return b"<p><n>%d</n></p>" % number


@contextmanager
def fed_root(stream: str = "asdi", *, interval: float = 0.01, **options) -> Iterator[blocking.Publisher]:
    """Packet n is `document(n)` and has the AN n."""
    with blocking.root(stream, beacon=False, capacity=32, keep_numbers=False, **options) as root:
        is_over = threading.Event()

        def feed() -> None:
            number = 0
            while not is_over.wait(interval):
                number += 1
                root.send(document(number))

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield root
        finally:
            is_over.set()
            feeder.join()


def reach(root: blocking.Publisher) -> dict:
    """Options to join it with."""
    return {"bootstrap": [root.address], "beacon": False, "parents": 1, "capacity": 0}
