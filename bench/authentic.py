"""What signed packets cost: bytes and waiting at the root, and processor time to sign and to check, by rate.

Packets of 350 random bytes come at an even rate, in virtual time, into the queue that a root has; the waiting is that
of the queue alone. Clients that want all packets, every 10th and every 100th, on average, check what they get. Then one
byte of each of some packets is altered: none may pass, with what the client remembers and without. `floor_us` is what
the signatures alone cost per packet, where a client of everything checks each once: Ed25519 from OpenSSL.

The second part is whole peers in virtual time (`peer.testing.betrayal`): liars that forge, replay, downgrade, omit,
delay and collude, and what they achieve at clients. `innocent_blamed` counts convictions of honest peers.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import asdict
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bench.report import Report, Target
from dcp import Config, Hub
from dht.identity import Identity
from peer.testing.betrayal import KINDS, run_betrayal
from peer.trust.batches import BatchSigner, BatchVerifier, Verdict
from peer.trust.keys import SigningKeys
from peer.trust.signing import SigningQueue

SUMMARY = "what signed packets cost by rate: bytes, waiting, and processor time to sign and to check"

STREAM = "asdi"
SIZE = 350
SHARES = (1.0, 0.1, 0.01)
# Rate: the most bytes, seconds of waiting (p99) and microseconds to check for a client of everything.
TARGETS = {
    10: (93, 0.0, 140.0),
    1_000: (109, 0.0025, 80.0),
    10_000: (173, 0.0025, 15.0),
    100_000: (221, 0.0025, 8.0),
}
ALTERED = 200
SIGNATURES = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--packets", type=int, default=4_000, metavar="N", help="packets per rate (default %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each kind of betrayal (%(default)s)")


def run(args: argparse.Namespace) -> Report:
    rows = [_measure(rate, args.packets) for rate in TARGETS]
    targets = []
    for row in rows:
        most_bytes, most_wait, most_check = TARGETS[row["rate"]]
        name = f"{row['rate']:,}/s"
        targets += [
            Target(f"{name}: bytes", row["bytes"] <= most_bytes, f"{row['bytes']:.1f}, at most {most_bytes}"),
            Target(
                f"{name}: wait p99",
                row["wait_p99_ms"] <= most_wait * 1e3,
                f"{row['wait_p99_ms']:.3f} ms, at most {most_wait * 1e3:g}",
            ),
            Target(
                f"{name}: check",
                row["check_us"] <= most_check,
                f"{row['check_us']:.1f} us, at most {most_check:g}; signatures alone {row['floor_us']:.1f}",
            ),
        ]
    forged = sum(row["forged_accepted"] for row in rows)
    targets.append(Target("forged packets accepted", forged == 0, f"{forged} of {2 * ALTERED * len(rows)}"))
    betrayals = [asdict(run_betrayal(kind, 1 + seed)) for seed in range(args.seeds) for kind in KINDS]
    for name in ("forged_delivered", "innocent_blamed", "silent"):
        found = sum(each[name] for each in betrayals)
        targets.append(Target(name, found == 0, f"{found} in {len(betrayals)} meshes"))
    columns = list(rows[0])
    table = [[row[name] for name in columns] for row in rows]
    notes = [", ".join(f"{name} {value}" for name, value in each.items()) for each in betrayals]
    return Report("authentic", {"rows": rows, "betrayals": betrayals}, columns, table, targets, notes=notes)


def _measure(rate: int, packets: int) -> dict[str, Any]:
    rng = random.Random(rate)
    root = Identity.from_seed(rng.randbytes(32))
    sender = Hub(Config(max_log_packets=packets + 1), rng=rng).serve(STREAM)
    signer = BatchSigner(STREAM, root.public_key, sign=root.sign, salt=lambda: rng.randbytes(8))
    queue = SigningQueue(sender, signer, lambda: 1_700_000_000.0)
    contents = [b"\0" + rng.randbytes(SIZE) for _ in range(packets)]
    waits: list[float] = []
    waiting: list[float] = []

    def flush(now: float) -> None:
        queue.flush(now)
        if not queue:
            waits.extend(now - since for since in waiting)
            waiting.clear()

    began = time.process_time()
    for number, content in enumerate(contents):
        now = number / rate
        while (due := queue.due_at) is not None and due <= now:
            flush(due)
        queue.add(content, an=number + 1, contiguous=True)
        waiting.append(now)
        flush(now)
    flush(queue.due_at or 0.0)
    sign_us = (time.process_time() - began) / packets * 1e6
    log = sender.log
    sealed = [(log.an_at(at), log.payload_at(at)) for at in range(log.first_ordinal, log.next_ordinal)]
    keys = SigningKeys()
    keys.add(root.public_key, expires_at=None)
    row: dict[str, Any] = {
        "rate": rate,
        "batch": round(packets / signer.signatures, 1),
        "bytes": round(sum(len(payload) for _, payload in sealed) / packets - SIZE - 1, 1),
        "wait_p99_ms": round(sorted(waits)[int(len(waits) * 0.99)] * 1e3, 3),
        "sign_us": round(sign_us, 1),
    }
    warm = BatchVerifier(STREAM, keys)
    for share in SHARES:
        chosen = [packet for packet in sealed if rng.random() < share]
        verifier = BatchVerifier(STREAM, keys)
        began = time.process_time()
        good = sum(verifier.verify(an, payload) is Verdict.GOOD for an, payload in chosen)
        used = (time.process_time() - began) / len(chosen) * 1e6
        if good != len(chosen):
            raise RuntimeError(f"{len(chosen) - good} genuine packets were refused")
        name = "check_us" if share == 1 else f"check_us_{share:.0%}"
        row[name] = round(used, 1)
        if share == 1:
            warm = verifier
            row["floor_us"] = round(_signature_us(root, rng) * verifier.signatures / packets, 1)
    row["forged_accepted"] = _accepted(sealed, warm, BatchVerifier(STREAM, keys), rng)
    return row


def _signature_us(root: Identity, rng: random.Random) -> float:
    """To check one signature, and nothing else."""
    message = rng.randbytes(64)
    key, signature = Ed25519PublicKey.from_public_bytes(root.public_key), root.sign(message)
    began = time.process_time()
    for _ in range(SIGNATURES):
        key.verify(signature, message)
    return (time.process_time() - began) / SIGNATURES * 1e6


def _accepted(sealed: list[tuple[int, bytes]], warm: BatchVerifier, cold: BatchVerifier, rng: random.Random) -> int:
    """How many altered packets pass."""
    passed = 0
    for an, payload in rng.choices(sealed[-500:], k=ALTERED):
        at = rng.randrange(len(payload))
        altered = payload[:at] + bytes([payload[at] ^ 1 << rng.randrange(8)]) + payload[at + 1 :]
        passed += sum(verifier.verify(an, altered) is Verdict.GOOD for verifier in (warm, cold))
    return passed
