"""What a root gives to the mesh: packets with rising ANs, and holes where its feed lost something."""

from __future__ import annotations

from collections.abc import Sequence

from dcp import control
from dcp.errors import StreamClosed
from dcp.kinds import StreamKind
from dcp.log import Log
from dcp.serial import MAX_POSITION


class PublishedStream:
    """The half of a sender that its owner writes to."""

    def __init__(self, stream: str, log: Log, kind: StreamKind) -> None:
        self.stream = stream
        self.log = log
        self.kind = kind
        self.closed = False
        """The stream was left: nothing can be published any more."""

    def publish(self, payload: bytes, *, an: int | None = None, contiguous: bool = True) -> int:
        """Give the next packet to the mesh (roots only), and return its AN.

        Without `an` the next number is used: one more, or in a byte stream as many more as there are bytes. With
        `contiguous` false what lies between the last AN and this one was lost before it reached us, and is a hole.
        """
        self._check_open()
        log = self.log
        if len(payload) > control.MAX_PACKET_BYTES:
            raise ValueError(f"a packet holds at most {control.MAX_PACKET_BYTES} bytes, got {len(payload)}")
        step = self.kind.step(payload)
        if an is None:
            an = log.head + step
        if an > MAX_POSITION:
            raise ValueError(f"an AN must be at most 2**63 - 1, got {an}")
        if not log.started:
            log.start(an - step)
        if an <= log.head:
            raise ValueError(f"ANs must increase: got {an} after {log.head}")
        if not contiguous:
            log.hole(an - step)
        elif self.kind.is_dense and an != log.head + step:
            raise ValueError(
                f"{step} bytes up to {an} do not follow {log.head}: if bytes were lost, pass contiguous=False"
            )
        log.append(an, payload)
        return an

    def publish_many(self, payloads: Sequence[bytes]) -> int:
        """The same as `publish` for each of them, at a fraction of the cost; the last AN."""
        self._check_open()
        if not payloads:
            return self.log.head
        if self.kind.is_dense or max(map(len, payloads)) > control.MAX_PACKET_BYTES:
            for payload in payloads:
                self.publish(payload)
            return self.log.head
        log = self.log
        if not log.started:
            log.start(log.head)
        log.append_many(range(log.head + 1, log.head + 1 + len(payloads)), payloads)
        return log.head

    def publish_hole(self, until: int) -> None:
        """The feed lost everything up to `until`."""
        self._check_open()
        if not self.log.started:
            self.log.start(until)
        else:
            self.log.hole(until)

    def _check_open(self) -> None:
        if self.closed:
            raise StreamClosed(f"stream {self.stream!r} was left: what is published now would reach nobody")
