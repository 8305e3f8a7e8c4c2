"""The line that a packet was made of, carried with it: a processing instruction behind the root element.

    <?skymesh-asdi 1794830400 153016120000CCZVTZ UAL1021 512 290 4928N/12003W ?>

No query sees it, hops pass it on untouched, and programs that don't know it read the packet as before. The seconds are
the message's whole time, of which the line has no month and year. In the line `%`, `?` and all bytes that are not
printable ASCII are written as %XX. Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from asdi.messages import MAX_LINE_CHARS

_OPENING: Final = b"<?skymesh-asdi "
MAX_ORIGIN_BYTES: Final = 3 * MAX_LINE_CHARS + 64
"""What it adds to a packet at most. A longer one is not looked for."""
_ORIGIN = re.compile(rb"<\?skymesh-asdi (-?\d{1,12}) ([ !-$&->@-~]|%[0-9A-F]{2})*\?>\Z")
_YEAR_10000: Final = 253_402_300_800
_SPECIAL = re.compile(rb"[^ !-$&->@-~]")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")


class Original(NamedTuple):
    """A packet without what was carried along, and that."""

    payload: bytes
    time: int | None
    line: bytes | None


def with_origin(payload: bytes, time: int, line: bytes) -> bytes:
    """The packet with its line, without the line's end, and the Unix time of the message."""
    escaped = _SPECIAL.sub(lambda found: b"%%%02X" % found[0][0], line)
    return b"%b%b%d %b?>" % (payload, _OPENING, time, escaped)


def split_origin_untrusted(payload: bytes) -> Original:
    """What is carried along, if it is there and well formed; else the packet is all there is."""
    at = payload.rfind(_OPENING, max(0, len(payload) - MAX_ORIGIN_BYTES))
    found = _ORIGIN.match(payload, at) if at >= 0 else None
    if found is None:
        return Original(payload, None, None)
    written = payload[found.end(1) + 1 : -2]
    line = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), written)
    if len(line) > MAX_LINE_CHARS or not 0 <= int(found[1]) < _YEAR_10000:
        return Original(payload, None, None)
    return Original(payload[:at], int(found[1]), line)
