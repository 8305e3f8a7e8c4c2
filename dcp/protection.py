"""Two messages about the protection of one link, and their bytes (rules T2, T5, T6 and T8; docs/dcp.md).

    REPAIR   parent to child: the sum of the last packets that were sent, so that a lost one can be computed
    PROTECT  child to parent: which repairs it wants, how many bytes they may cost, and its deadline

A child sends PROTECT only to a parent whose accept says that it takes it (`handshake.ACCEPT_PROTECTS`), a parent REPAIR
only to a child that asked for it: earlier versions see neither. As in `control`: decoding raises `MalformedDatagram`
and nothing else, and checks lengths before it allocates.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from dcp.coding import ROWS
from dcp.control import ControlType
from dcp.errors import MalformedDatagram

MAX_MEMBERS: Final = 64
"""Packets that one repair is made from."""

# type u8, scheme u8, key u8, symbols u8; for each symbol: packets u8 (scheme 2 only), for each packet its step from the
# one before (the first from the header's previous AN): u8 up to 254, or 255 and u32; then the sum, 2 bytes at least
_REPAIR = struct.Struct("!BBBB")
_WIDE_STEP = struct.Struct("!BI")
_NARROW: Final = 254
SINGLE: Final = 1
"""Every symbol is one packet: its length u16, a check of 4 bytes, its payload."""
GROUPED: Final = 2
"""A symbol is the packets of one datagram, each in this way."""
_LENGTH: Final = struct.Struct("!H4s")
OVERHEAD: Final = _LENGTH.size

# type u8, revision u32, every u8, repairs u8, span u8, delay u16 in 0.1 ms, budget u8 in percent, deadline u16 in ms
_PROTECT = struct.Struct("!BIBBBHBH")
DELAY_UNIT: Final = 1e-4
NO_DEADLINE: Final = 0xFFFF

Group = tuple[int, ...]
"""The ANs of one symbol."""


class Repair(NamedTuple):
    """ "In (the header's previous AN, AN] exactly these match, and `coded` is their sum with this key." """

    key: int
    groups: Sequence[Group]
    coded: bytes


class Protect(NamedTuple):
    """ "From now on, after every `every` datagrams, `repairs` repairs over the last `span` times as many."

    `every` 0: none. 1: a copy of each datagram, `delay` seconds after it. Idempotent, and repeated; of two with
    different revisions the later one holds.
    """

    revision: int
    every: int
    repairs: int = 1
    span: int = 1
    delay: float = 0.0
    budget: int = 0
    """More bytes, in percent of the bytes of the stream."""
    deadline: float | None = None
    """After how long the child gives a packet up; 0: at once, and it wants to be at the head rather than complete."""


def encode_repair(prev: int, repair: Repair) -> bytes:
    """`prev` is what the header says. ValueError for a step of more than 32 bits."""
    is_grouped = any(len(group) > 1 for group in repair.groups)
    body = bytearray(
        _REPAIR.pack(ControlType.REPAIR, GROUPED if is_grouped else SINGLE, repair.key, len(repair.groups))
    )
    for group in repair.groups:
        if is_grouped:
            body.append(len(group))
        for an in group:
            step, prev = an - prev, an
            if step <= _NARROW:
                body.append(step)
            elif step <= 0xFFFFFFFF:
                body += _WIDE_STEP.pack(0xFF, step)
            else:
                raise ValueError(f"a step of {step} does not fit a repair")
    body += repair.coded
    return bytes(body)


def decode_repair_untrusted(data: bytes, at: int, prev: int, an: int) -> Repair:
    """The repair whose body begins at `at`; `prev` and `an` are the header's, 64 bits."""
    if len(data) < at + _REPAIR.size:
        raise MalformedDatagram("short", "repair")
    _, scheme, key, symbols = _REPAIR.unpack_from(data, at)
    if scheme not in (SINGLE, GROUPED) or key >= ROWS or not 1 <= symbols <= MAX_MEMBERS:
        raise MalformedDatagram("repair", f"scheme {scheme}, key {key}, {symbols} symbols")
    at += _REPAIR.size
    groups: list[Group] = []
    members = 0
    try:
        for _ in range(symbols):
            size = 1
            if scheme == GROUPED:
                size = data[at]
                at += 1
            members += size
            if not size or members > MAX_MEMBERS:
                raise MalformedDatagram("limit", "repair")
            group = []
            for _ in range(size):
                step = data[at]
                at += 1
                if step > _NARROW:
                    (step,) = struct.unpack_from("!I", data, at)
                    at += 4
                if not step:
                    raise MalformedDatagram("repair", "two packets with one AN")
                prev += step
                group.append(prev)
            groups.append(tuple(group))
    except (IndexError, struct.error):
        raise MalformedDatagram("short", "repair") from None
    if prev != an:
        raise MalformedDatagram("repair", "ends elsewhere than its header says")
    coded = data[at:]
    if len(coded) < OVERHEAD:
        raise MalformedDatagram("short", "repair")
    return Repair(key, groups, coded)


def encode_protect(protect: Protect) -> bytes:
    deadline = NO_DEADLINE
    if protect.deadline is not None:
        deadline = min(round(protect.deadline * 1e3), NO_DEADLINE - 1)
    delay = min(round(protect.delay / DELAY_UNIT), 0xFFFF)
    return _PROTECT.pack(
        ControlType.PROTECT,
        protect.revision & 0xFFFFFFFF,
        protect.every,
        protect.repairs,
        protect.span,
        delay,
        protect.budget,
        deadline,
    )


def decode_protect_untrusted(body: bytes) -> Protect:
    if len(body) < _PROTECT.size:
        raise MalformedDatagram("short", "protect")
    _, revision, every, repairs, span, delay, budget, deadline = _PROTECT.unpack_from(body)
    seconds = None if deadline == NO_DEADLINE else deadline / 1e3
    return Protect(revision, every, repairs, span, delay * DELAY_UNIT, budget, seconds)


# --- symbols ----------------------------------------------------------------------------------------------------------


def symbol_of(payloads: Sequence[bytes]) -> bytes:
    """What is coded of the packets of one datagram: payloads, and not claims, which a retransmission may narrow.

    The check is a hash, which is not linear: a packet that was computed from another copy than the one that was coded
    (roots may stamp a packet differently, or lie) does not pass for a right one.
    """
    return b"".join([_LENGTH.pack(len(payload), _check(payload)) + payload for payload in payloads])


def payloads_of(symbol: bytes, count: int) -> list[bytes] | None:
    """The packets of a symbol that was computed; None when it can't be one: wrong length, check or padding."""
    payloads = []
    at = 0
    for _ in range(count):
        if len(symbol) < at + OVERHEAD:
            return None
        size, check = _LENGTH.unpack_from(symbol, at)
        at += OVERHEAD
        payload = symbol[at : at + size]
        if len(payload) != size or _check(payload) != check:
            return None
        payloads.append(payload)
        at += size
    return None if any(symbol[at:]) else payloads


def _check(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=4).digest()
