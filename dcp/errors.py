"""What can go wrong, by whose fault.

Their mistake is `MalformedDatagram` (or a refused payload): raised by decoding, caught at one line, counted, never
fatal. Your mistake is a `ValueError` at the call. The network's nature (loss, silence, lateness) is not an exception.
"""

from __future__ import annotations


class DcpError(Exception):
    """Base of every error that dcp raises on purpose."""


class MalformedDatagram(DcpError):
    """Bytes from the network that are not a DCP packet. `reason` is a short, countable word."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class PayloadRefused(DcpError):
    """A payload whose envelope or compression is wrong, or that would grow beyond the limit."""


class EnvelopeUnknown(PayloadRefused):
    """Not broken, but nothing that this peer can open: of a later version, or packed with a dictionary it lacks."""


class BytesLost(DcpError):
    """Some bytes of a byte stream can't be had from any sender: those in (after, until]."""

    def __init__(self, after: int, until: int) -> None:
        super().__init__(f"bytes {after + 1} to {until} of the stream can't be had from any sender")
        self.after = after
        self.until = until


class LinkClosed(DcpError):
    """The stream has ended for this receiver: every sender has closed or refused it, with the reasons given."""


class StreamClosed(DcpError):
    """The stream was left: nothing can be published on it any more."""
