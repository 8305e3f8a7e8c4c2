"""The operator's commands: run a bare node, inspect the directory, manage keys, grants and pins."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dht.errors import DhtError

if TYPE_CHECKING:
    from dht.record import PeerRecord

DEFAULT_HOME = Path("~/.local/share/skymesh")
EXAMPLES = """\
examples:
  python -m dht node                                 # for this host only
  python -m dht node --listen 0.0.0.0:4700           # for the network
  python -m dht node --listen '[::]:4700' --bootstrap seed.example.org:4700 --no-beacon
  python -m dht get asdi --bootstrap 127.0.0.1:4700 --json
  python -m dht keygen owner.key
  python -m dht grant --owner owner.key --peer PEER_ID --stream asdi --days 30 > root.grant
  python -m dht pin asdi FINGERPRINT

exit codes: 0 success; 1 failure (one line on stderr), or `get` found nothing; 2 invalid command line; 130 Ctrl-C
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dht",
        description="Signed peer records in a Kademlia DHT: the roots of a stream, and the peers that can be parents.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    node = commands.add_parser("node", help="run a bare DHT node until Ctrl-C: a meeting point for a mesh")
    node.add_argument(
        "--listen",
        type=_endpoint,
        default=("127.0.0.1", 4700),
        metavar="HOST:PORT",
        help="default 127.0.0.1:4700, this host only",
    )
    node.add_argument("--key", type=Path, metavar="FILE", help="identity; created on first use (default HOME/node.key)")
    node.add_argument("--home", type=Path, default=DEFAULT_HOME, metavar="DIR", help="default %(default)s")
    node.add_argument(
        "--status", type=float, default=60.0, metavar="SECONDS", help="interval between status lines; 0: none"
    )
    node.add_argument("--json", action="store_true", help="status lines as JSON")
    _add_network_arguments(node)
    node.set_defaults(run=_node)

    get = commands.add_parser("get", help="show every record of a stream, verified, with its age")
    get.add_argument("stream", help="asdi, or asdi.FINGERPRINT of its owner")
    get.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    get.add_argument(
        "--wait", type=float, default=10.0, metavar="SECONDS", help="how long to wait for the DHT (default 10)"
    )
    get.add_argument("--home", type=Path, default=DEFAULT_HOME, metavar="DIR", help="default %(default)s")
    _add_network_arguments(get)
    get.set_defaults(run=_get)

    keygen = commands.add_parser("keygen", help="create a key pair in a new file of mode 0600")
    keygen.add_argument("file", type=Path)
    keygen.add_argument("--json", action="store_true")
    keygen.set_defaults(run=_keygen)

    grant = commands.add_parser("grant", help="sign a grant, one line of text, that makes a peer a root of a stream")
    grant.add_argument("--owner", type=Path, required=True, metavar="FILE", help="the stream owner's key")
    grant.add_argument("--peer", required=True, metavar="PEER_ID", help="as `keygen` and `peer` print it")
    grant.add_argument("--stream", required=True, help="asdi, or asdi.FINGERPRINT of the owner")
    grant.add_argument("--days", type=float, default=30.0, help="days until it expires (default 30)")
    grant.set_defaults(run=_grant)

    pin = commands.add_parser("pin", help="accept an owner for an open stream name, replacing the pinned one")
    pin.add_argument("stream")
    pin.add_argument("owner", metavar="FINGERPRINT")
    pin.add_argument(
        "--pins", type=Path, default=DEFAULT_HOME / "pins.json", metavar="FILE", help="default %(default)s"
    )
    pin.set_defaults(run=_pin)
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse_args(argv)
    level = logging.INFO if args.command == "node" else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        code: int = args.run(args)
    except (DhtError, ValueError, OSError) as exc:
        print(f"dht: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _endpoint(text: str) -> tuple[str, int]:
    from dht.addresses import parse_endpoint

    try:
        return parse_endpoint(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_network_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        action="append",
        type=_endpoint,
        default=[],
        metavar="HOST:PORT",
        help="a node to start from; may be repeated",
    )
    parser.add_argument("--no-beacon", action="store_true", help="do not look for peers on this LAN by multicast")


def _keygen(args: argparse.Namespace) -> int:
    from dht.issuing import key_in_words, new_key

    identity = new_key(args.file.expanduser())
    shown = json.dumps({"file": str(args.file), "peer_id": identity.fingerprint}) if args.json else None
    print(shown or key_in_words(identity))
    return 0


def _grant(args: argparse.Namespace) -> int:
    from dht.identity import Identity
    from dht.issuing import root_grant

    owner = Identity.load(args.owner.expanduser())
    print(root_grant(owner, stream=args.stream, peer=args.peer, days=args.days, now=time.time()))
    return 0


def _pin(args: argparse.Namespace) -> int:
    from dht.identity import id_text, parse_id_text
    from dht.pins import Pins

    pins = Pins(args.pins.expanduser())
    before = pins.owner(args.stream)
    pins.accept(args.stream, parse_id_text(args.owner))
    was = f" (was {id_text(before)})" if before is not None else ""
    print(f"{args.stream} belongs to {args.owner}{was}")
    return 0


def _node(args: argparse.Namespace) -> int:
    from dht.addresses import endpoint_text
    from dht.identity import Identity
    from dht.shell.service import DirectoryOptions, DirectoryService

    home = args.home.expanduser()
    key_file = args.key.expanduser() if args.key is not None else home / "node.key"
    identity = Identity.load_or_create(key_file)
    options = DirectoryOptions(
        bootstrap=tuple(args.bootstrap),
        contacts_file=home / "node-contacts.json",
        beacon=not args.no_beacon,
    )

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        service = await DirectoryService.open(identity, options, loop=loop, listen=args.listen)
        try:
            host, port = service.address
            if args.json:
                _print_json({"event": "listening", "host": host, "port": port, "peer_id": identity.fingerprint})
            else:
                place = endpoint_text(service.address)
                print(f"node {identity.fingerprint} listening on {place}; Ctrl-C stops it", flush=True)
            while not stop.is_set():
                try:
                    await asyncio.wait_for(stop.wait(), args.status or None)
                except TimeoutError:
                    _print_status(service, as_json=args.json)
        finally:
            await service.close()

    _run_asyncio(run())
    return 0


def _print_status(service: Any, *, as_json: bool) -> None:
    node = service.node
    status = {
        "event": "status",
        "contacts": len(node.contacts),
        "isolated": node.is_isolated,
        "records": len(node.store),
        "refused": {reason.name.lower(): count for reason, count in sorted(node.store.refused.items())},
        "counters": dict(sorted(node.counters().items())),
    }
    if as_json:
        _print_json(status)
    else:
        refused = sum(node.store.refused.values())
        print(
            f"{status['contacts']} contacts, {status['records']} records, {refused} refused, "
            f"{node.protocol.counters['served']} requests served",
            flush=True,
        )


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def _get(args: argparse.Namespace) -> int:
    from dht.contacts import load_contacts
    from dht.shell.inspection import read_stream
    from dht.streams import check_stream_name

    check_stream_name(args.stream)
    remembered = load_contacts(args.home.expanduser() / "node-contacts.json")
    view = _run_asyncio(
        read_stream(args.stream, bootstrap=[*args.bootstrap, *remembered], beacon=not args.no_beacon, wait=args.wait)
    )
    now = time.time()
    if args.json:
        document = {
            "stream": args.stream,
            "records": [_as_json(record, now) for record in view.records],
            "refused": [{"reason": reason.name.lower(), "bytes": len(wire)} for wire, reason in view.refused],
            "nodes_asked": view.queries,
        }
        print(json.dumps(document))
    else:
        _print_table(view.records, now)
        for line in _owners(view.records):
            print(line)
        for wire, reason in view.refused:
            print(f"refused: {reason.name.lower()} ({len(wire)} bytes)")
        print(f"{len(view.records)} records, {len(view.refused)} refused, {view.queries} requests")
    return 0 if view.records else 1


def _as_json(record: PeerRecord, now: float) -> dict[str, Any]:
    from dht.addresses import endpoint_text
    from dht.identity import id_text

    return {
        "peer_id": id_text(record.peer_id),
        "role": record.role.name.lower(),
        "addresses": [endpoint_text(address) for address in record.addresses],
        "level": record.level,
        "hops": record.hops,
        "children": record.children,
        "capacity": record.capacity,
        "free_slots": record.free_slots,
        "free_repair_slots": record.free_repair_slots,
        "wanted_parents": record.wanted_parents,
        "held_parents": record.held_parents,
        "send_rate": record.send_rate,
        "query": record.query.text if record.query is not None else None,
        "query_hash": record.query.hash.hex() if record.query is not None else None,
        "owner": id_text(record.owner) if record.role.name == "ROOT" else None,
        "withdrawn": record.withdrawn,
        "version": record.version,
        # A version is the clock's milliseconds when the record was signed: see docs/dht.md.
        "age_s": round(max(now - record.version / 1000, 0.0), 1),
        "expires_in_s": round(record.expires_at - now, 1),
    }


def _print_table(records: list[PeerRecord], now: float) -> None:
    columns = ("peer", "role", "address", "level", "hops", "children", "free", "repair", "parents", "age", "expires")
    rows = [columns]
    for record in records:
        shown = _as_json(record, now)
        rows.append(
            (
                shown["peer_id"][:12],
                shown["role"] + (" (withdrawn)" if record.withdrawn else ""),
                shown["addresses"][0],
                str(record.level),
                str(record.hops),
                f"{record.children}/{record.capacity}",
                str(record.free_slots),
                str(record.free_repair_slots),
                f"{record.held_parents}/{record.wanted_parents}",
                f"{shown['age_s']:.0f}s",
                f"{shown['expires_in_s']:.0f}s",
            )
        )
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _owners(records: list[PeerRecord]) -> list[str]:
    """The owners of the roots, in full: `pin` and `--owner-id` take these."""
    from collections import Counter

    from dht.identity import id_text

    roots = Counter(record.owner for record in records if record.role.name == "ROOT" and not record.withdrawn)
    return [f"owner {id_text(owner)}: {count} root{'s' * (count > 1)}" for owner, count in sorted(roots.items())]


def _run_asyncio(work: Any) -> Any:
    return asyncio.run(work)
