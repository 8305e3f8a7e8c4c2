"""`verify`: a recording against the key of the stream's owner."""

from __future__ import annotations

import argparse
from typing import Any

from peer.cli.errors import CliError, ExitCode

MAX_SHOWN = 10


def add_parser(commands: Any) -> None:
    verify = commands.add_parser(
        "verify",
        help="check the signatures of what `record` wrote against the stream's owner",
        description="Check the signatures of what `record` wrote against the stream's owner.",
        epilog="Exit code 1 when a packet is not what a root of that owner signed, or has no signature.\n\n"
        "example:\n  skymesh verify recording --owner-id FINGERPRINT",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify.add_argument("directory", metavar="DIR", help="folder that `record` wrote")
    verify.add_argument(
        "--owner", "--owner-id", required=True, metavar="FINGERPRINT", help="the owner's, as `keys show` prints it"
    )
    verify.add_argument("--dictionary", metavar="FILE", help="zstd dictionary that the packets were compressed with")


def verify(arguments: argparse.Namespace) -> int:
    from dht.identity import parse_id_text
    from peer.errors import PeerError
    from peer.optionspec import file_bytes, path
    from peer.trust.proofs import Finding
    from peer.trust.recording import verify_recording

    try:
        owner = parse_id_text(arguments.owner)
    except ValueError as error:
        raise CliError(f"--owner: {error}", ExitCode.USAGE) from None
    try:
        dictionary = file_bytes(arguments.dictionary) if arguments.dictionary is not None else None
    except OSError as error:
        raise CliError(f"{arguments.dictionary}: {error.strerror}", ExitCode.DISK) from None
    total = signed = shown = roots = 0
    try:
        for verifier, an, finding in verify_recording(path(arguments.directory), owner, dictionary=dictionary):
            total += 1
            roots = verifier.roots
            signed += finding is Finding.SIGNED
            if finding is not Finding.SIGNED and shown < MAX_SHOWN:
                shown += 1
                print(f"packet {an}: {finding.value}")
    except PeerError as error:
        raise CliError(str(error), ExitCode.DISK) from None
    print(f"{signed} of {total} packets were signed by roots of {arguments.owner} ({roots} keys)")
    return ExitCode.OK if signed == total and total else ExitCode.NOT_ALL
