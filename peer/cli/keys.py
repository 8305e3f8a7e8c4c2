"""`keys`: make and show keys, and sign what a stream's owner grants, demands and revokes."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from peer.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from dht.identity import Identity
    from dht.ids import PeerId
    from peer.trust.grants import Policy

ACTIONS = {
    "new": "create a key pair in a new file of mode 0600",
    "show": "say what a key, grant or policy file holds",
    "grant": "sign a grant, one line of text, that lets a peer be a root, a router or a subscriber of a stream",
    "policy": "say who needs a grant, in a file for the roots' --policy",
    "revoke": "take back the grants of a peer: a new version of the policy",
}
_EXAMPLES = {
    "new": "skymesh keys new alice.key",
    "show": "skymesh keys show alice.grant",
    "grant": "skymesh keys grant --owner asdi.key --stream asdi --peer PEER_ID --role subscriber > alice.grant\n"
    "  skymesh join asdi --identity alice.key --grant alice.grant",
    "policy": "skymesh keys policy --owner asdi.key --stream asdi --subscribers granted asdi.policy\n"
    "  skymesh root asdi --feed demo --owner asdi.key --policy asdi.policy",
    "revoke": "skymesh keys revoke --owner asdi.key asdi.policy PEER_ID",
}


def add_parsers(commands: Any) -> None:
    keys = commands.add_parser("keys", help="make keys, and sign grants and policies for a stream's peers")
    actions = keys.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, summary in ACTIONS.items():
        parser = actions.add_parser(
            action,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example:\n  {_EXAMPLES[action]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if action in ("new", "show"):
            parser.add_argument("file", metavar="FILE")
            continue
        parser.add_argument("--owner", required=True, metavar="FILE", help="key file of the stream's owner")
        if action == "grant":
            parser.add_argument("--stream", required=True, metavar="NAME", help="asdi, or asdi.FINGERPRINT")
            parser.add_argument(
                "--peer", required=True, metavar="PEER_ID", help="as `keys new` and `keys show` print it"
            )
            parser.add_argument("--role", choices=("root", "router", "subscriber"), default="subscriber",
                                help="what the peer may be; a router may subscribe too (subscriber)")  # fmt: skip
            parser.add_argument("--withheld", action="store_true",
                                help="also receive what roots withhold from others (root --withhold)")  # fmt: skip
            parser.add_argument("--days", type=float, default=30.0, metavar="N", help="days until it expires (30)")
            continue
        parser.add_argument("file", metavar="POLICY", help="the policy file, changed in place")
        if action == "revoke":
            parser.add_argument("peers", nargs="+", metavar="PEER_ID", help="whose grants no longer count")
            continue
        parser.add_argument("--stream", required=True, metavar="NAME", help="asdi, or asdi.FINGERPRINT")
        for who in ("subscribers", "routers"):
            parser.add_argument(f"--{who}", choices=("anyone", "granted"),
                                help=f"which peers may be {who} (as before; at first: anyone)")  # fmt: skip
        parser.add_argument("--tree-degree", type=int, metavar="N",
                            help="for peers in the reference tree; 0: by their options (as before)")  # fmt: skip


def keys(arguments: argparse.Namespace) -> int:
    try:
        _RUN[arguments.action](arguments)
    except ValueError as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    return ExitCode.OK


def _new(arguments: argparse.Namespace) -> None:
    from dht.errors import IdentityError
    from dht.issuing import key_in_words, new_key

    try:
        print(key_in_words(new_key(_path(arguments.file))))
    except IdentityError as error:
        raise CliError(str(error), ExitCode.KEY_FILE) from None


def _show(arguments: argparse.Namespace) -> None:
    path = _path(arguments.file)
    text = _text(path)
    try:
        _show_text(path, text)
    except ValueError as error:
        raise CliError(f"{path}: {error}", ExitCode.KEY_FILE) from None


def _show_text(path: Path, text: str) -> None:
    from dht.identity import Identity, id_text
    from dht.streams import Grant
    from peer.trust.grants import ROUTE, WITHHELD, JoinGrant

    match text.partition(":")[0]:
        case "skymesh-key-v1":
            print(f"key of the peer {Identity.load(path).fingerprint}")
        case "skymesh-grant-v1":
            root = Grant.from_text(text)
            _print_grant("root", root.stream, root.peer_id, id_text(root.owner), root.expires_at)
        case "skymesh-grant-v2":
            grant = JoinGrant.from_text_untrusted(text)
            role = "router" if grant.roles & ROUTE else "subscriber"
            role += ", and receive withheld packets," if grant.roles & WITHHELD else ""
            _print_grant(role, grant.stream, grant.peer_id, id_text(grant.owner), grant.expires_at)
        case "skymesh-policy-v1":
            _print_policy(_policy(path))
        case _:
            raise CliError(f"{path} is not a key, grant or policy of skymesh", ExitCode.KEY_FILE)


def _print_grant(role: str, stream: str, peer_id: PeerId, owner: str, expires_at: int) -> None:
    from dht.identity import id_text

    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expires_at))
    state = "expired on" if expires_at <= time.time() else "until"
    print(f"grant: {id_text(peer_id)} may be a {role} of {stream}, {state} {until}; signed by the owner {owner}")


def _print_policy(policy: Policy) -> None:
    from dht.identity import id_text
    from peer.trust.grants import ROUTERS_NEED_GRANTS, SUBSCRIBERS_NEED_GRANTS

    subscribers = "granted" if policy.rules & SUBSCRIBERS_NEED_GRANTS else "anyone"
    routers = "granted" if policy.rules & ROUTERS_NEED_GRANTS else "anyone"
    tree = f", tree degree {policy.tree_degree}" if policy.tree_degree is not None else ""
    print(f"policy {policy.version} of {policy.stream}: subscribers {subscribers}, routers {routers}{tree}; "
          f"signed by the owner {policy.owner_text}")  # fmt: skip
    for peer_id in policy.revoked:
        print(f"revoked: {id_text(peer_id)}")


def _grant(arguments: argparse.Namespace) -> None:
    from dht.issuing import expiry, root_grant
    from peer.trust.grants import ROLES, WITHHELD, JoinGrant

    owner, stream, now = _owner(arguments), arguments.stream, time.time()
    if arguments.role == "root":
        print(root_grant(owner, stream=stream, peer=arguments.peer, days=arguments.days, now=now))
        return
    peer_id, expires_at = _peer(arguments.peer), expiry(arguments.days, now)
    roles = ROLES[arguments.role] | (WITHHELD if arguments.withheld else 0)
    grant = JoinGrant.issue(owner, stream=stream, peer_id=peer_id, roles=roles, expires_at=expires_at)
    print(grant.to_text())


def _set_policy(arguments: argparse.Namespace) -> None:
    from peer.trust.grants import ROUTERS_NEED_GRANTS, SUBSCRIBERS_NEED_GRANTS, with_tree_degree

    path = _path(arguments.file)
    before = _policy(path) if path.exists() else None
    if before is not None and before.stream != arguments.stream:
        raise ValueError(f"{path} is a policy of {before.stream}, not of {arguments.stream}")
    rules = before.rules if before is not None else 0
    for wanted, bit in (
        (arguments.subscribers, SUBSCRIBERS_NEED_GRANTS),
        (arguments.routers, ROUTERS_NEED_GRANTS),
    ):
        if wanted is not None:
            rules = rules | bit if wanted == "granted" else rules & ~bit
    if arguments.tree_degree is not None:
        rules = with_tree_degree(rules, arguments.tree_degree or None)
    revoked = before.revoked if before is not None else ()
    _write(path, arguments, arguments.stream, rules, revoked, before)


def _revoke(arguments: argparse.Namespace) -> None:
    path = _path(arguments.file)
    before = _policy(path)
    revoked = dict.fromkeys((*before.revoked, *map(_peer, arguments.peers)))
    _write(path, arguments, before.stream, before.rules, tuple(revoked), before)


def _write(
    path: Path,
    arguments: argparse.Namespace,
    stream: str,
    rules: int,
    revoked: tuple[PeerId, ...],
    before: Policy | None,
) -> None:
    import os

    from peer.trust.grants import Policy

    owner = _owner(arguments)
    if before is not None and before.owner != owner.peer_id:
        raise CliError(f"{path} was signed by {before.owner_text}, not by {owner.fingerprint}", ExitCode.WRONG_OWNER)
    version = max(int(time.time() * 1_000), before.version + 1 if before is not None else 0)
    policy = Policy.issue(owner, stream=stream, version=version, rules=rules, revoked=revoked)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(policy.to_text() + "\n")
        aside.replace(path)  # a root that reads it meanwhile sees the one or the other
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", ExitCode.DISK) from None
    _print_policy(policy)


def _owner(arguments: argparse.Namespace) -> Identity:
    from dht.identity import Identity

    return Identity.load(_path(arguments.owner))


def _path(text: str) -> Path:
    from peer.optionspec import path

    found: Path = path(text)
    return found


def _peer(text: str) -> PeerId:
    from dht.identity import parse_id_text

    return parse_id_text(text)


def _policy(path: Path) -> Policy:
    from peer.errors import PeerError
    from peer.trust.files import read_policy

    try:
        return read_policy(path)
    except PeerError as error:
        raise CliError(str(error), ExitCode.KEY_FILE) from None


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", ExitCode.KEY_FILE) from None


_RUN = {"new": _new, "show": _show, "grant": _grant, "policy": _set_policy, "revoke": _revoke}
