"""The transports of the ADAMANT paper as arithmetic over dice: one source, several readers, no machine of ours.

    udp, multicast   no repair
    NAK multicast    ordered; a loss is noticed by the next packet, asked for, and sent again until it comes
    Ricochet r       after every r packets received, their XOR to c = 3 other readers; no order
    TCP              ordered; sent again after three duplicate acknowledgments, or a time-out of 200 ms that doubles

Loss strikes data, repairs and requests alike. The paper prints no latencies of its network; here the round trip is 1.6
ms, about what its middleware may have had. Only the order of the transports is compared with the paper's figures. TCP
is that of the paper's machines: a kernel of today notices a loss with the next packet (RACK), and with that Ricochet
with r = 8 is the slowest at 25 Hz, not TCP.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass

from bench._paths import PAYLOAD_BYTES, UDP_IP, Cell, Outcome

UDP = "udp"
MULTICAST = "multicast"
NAK = "NAK multicast"
RICOCHET8 = "Ricochet 8"
RICOCHET4 = "Ricochet 4"
TCP = "TCP"
TRANSPORTS = (UDP, MULTICAST, NAK, RICOCHET8, RICOCHET4, TCP)

DATAGRAM = UDP_IP + PAYLOAD_BYTES
NAK_BYTES = UDP_IP + 24
LATERAL = 3
"""Readers that get each repair of Ricochet."""
MIN_TIMEOUT = 0.2
DUPLICATES = 3
"""Acknowledgments of later segments that make TCP send again."""
NOTICE = 0.001
RETRY = 0.02


@dataclass
class _Reader:
    came: list[float | None]
    """When each packet came for the first time."""


def run(transport: str, cell: Cell, readers: int, seed: int, *, updates: int) -> Outcome:
    rng = random.Random(f"{transport} {seed}")
    sent = [number / cell.hz for number in range(updates)]
    one_way = cell.rtt / 2
    everybody = [
        _Reader([None if rng.random() < cell.loss else at + one_way * (1 + 0.05 * rng.random()) for at in sent])
        for _ in range(readers)
    ]
    outcome = Outcome(expected=updates * readers, plain_bytes=updates * readers * DATAGRAM)
    is_group = transport not in (UDP, TCP)
    outcome.bytes = updates * DATAGRAM * (1 if is_group else readers)
    if transport in (RICOCHET4, RICOCHET8):
        outcome.bytes += _mend_laterally(everybody, int(transport.split()[1]), cell, rng)
    for reader in everybody:
        if transport in (NAK, TCP):
            outcome.bytes += _ask_again(reader, transport, sent, cell, rng)
            outcome.delays += _in_order(reader, sent)
        else:
            outcome.delays += [at - when for at, when in zip(reader.came, sent, strict=True) if at is not None]
    return outcome


def _in_order(reader: _Reader, sent: list[float]) -> list[float]:
    delays, latest = [], 0.0
    for at, when in zip(reader.came, sent, strict=True):
        if at is not None:
            latest = max(latest, at)
            delays.append(latest - when)
    return delays


def _ask_again(reader: _Reader, transport: str, sent: list[float], cell: Cell, rng: random.Random) -> int:
    """Fill in what is missing, the last first, since the next packet shows a loss. The bytes that this takes."""
    size = 0
    later: deque[float] = deque([math.inf] * DUPLICATES, maxlen=DUPLICATES)  # when the packets behind it came
    for number in range(len(sent) - 1, -1, -1):
        came = reader.came[number]
        if came is not None:
            later.appendleft(came)
            continue
        if transport == TCP:
            wait = MIN_TIMEOUT + cell.rtt
            at = min(later[-1] + cell.rtt, sent[number] + wait + cell.rtt / 2)
            while rng.random() < cell.loss:
                at, wait = at + wait, 2 * wait
        else:
            at = later[0] + NOTICE + cell.rtt
            while rng.random() < 1 - (1 - cell.loss) ** 2:
                at += max(1.5 * cell.rtt, RETRY)
        size += NAK_BYTES + DATAGRAM
        reader.came[number] = at if at < math.inf else None
    return size


def _mend_laterally(everybody: list[_Reader], every: int, cell: Cell, rng: random.Random) -> int:
    """Each reader sends the XOR of every few packets to others, who recover the one of them that they lack."""
    size = 0
    inboxes: list[list[tuple[float, list[int]]]] = [[] for _ in everybody]
    for me, reader in enumerate(everybody):
        others = [number for number in range(len(everybody)) if number != me]
        arrived = sorted((at, number) for number, at in enumerate(reader.came) if at is not None)
        for first in range(0, len(arrived) - every + 1, every):
            members = [number for _, number in arrived[first : first + every]]
            for to in rng.sample(others, min(LATERAL, len(others))):
                size += UDP_IP + 4 * every + PAYLOAD_BYTES
                if rng.random() >= cell.loss:
                    inboxes[to].append((arrived[first + every - 1][0] + cell.rtt / 2, members))
    for reader, inbox in zip(everybody, inboxes, strict=True):
        waiting: list[list[int]] = []
        for at, members in sorted(inbox):
            waiting = [*waiting[-63:], members]
            while _recover_one(reader, waiting, at):
                pass
    return size


def _recover_one(reader: _Reader, waiting: list[list[int]], at: float) -> bool:
    """One packet that a repair gives now. It may complete an earlier repair."""
    for members in waiting:
        missing = [number for number in members if (came := reader.came[number]) is None or came > at]
        if len(missing) == 1:
            reader.came[missing[0]] = at
            return True
    return False
