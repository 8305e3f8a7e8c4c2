"""Exit codes, and one sentence for each thing that can go wrong. The table for users is in docs/cli.md."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterable
from enum import IntEnum

from peer.errors import leaves


class ExitCode(IntEnum):
    """Append only: scripts depend on them."""

    OK = 0
    NOT_ALL = 1
    """It worked, and the answer is no: a peer lacks parents (status), fewer packets came than were asked for (join)."""
    USAGE = 2
    NO_DHT = 3
    STREAM_UNAVAILABLE = 4
    BAD_QUERY = 5
    PORT_IN_USE = 6
    KEY_FILE = 7
    WRONG_OWNER = 8
    FEED = 9
    DISK = 10
    CONFIG = 11
    NOT_SYNCHRONISED = 12
    BAD_GOAL = 14
    INTERNAL = 70
    """A fault of the program: with a traceback, to be reported."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CliError(Exception):
    """A sentence for the user, and the exit code."""

    def __init__(self, sentence: str, code: ExitCode) -> None:
        super().__init__(sentence)
        self.code = code


class OutputClosed(Exception):
    """The reader of our standard output is gone."""


def explain(error: BaseException) -> tuple[ExitCode, str] | None:
    """Code and sentence for an error that is not the program's fault; None for one that is."""
    for leaf in leaves(error):
        found = _explain_one(leaf)
        if found is not None:
            return found
    return None


def _explain_one(error: BaseException) -> tuple[ExitCode, str] | None:
    if isinstance(error, CliError):
        return error.code, str(error)
    if isinstance(error, OutputClosed | BrokenPipeError):
        return ExitCode.BROKEN_PIPE, ""
    if isinstance(error, OSError):
        return _explain_os(error)
    # Only what is loaded can have been raised: nothing is imported for the sake of an error.
    for module, name, code in _KNOWN:
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            return code, str(error)
    return None


_KNOWN = (
    ("peer.errors", "NotSynchronised", ExitCode.NOT_SYNCHRONISED),
    ("peer.errors", "WrongOwner", ExitCode.WRONG_OWNER),
    ("peer.errors", "FeedError", ExitCode.FEED),
    ("peer.errors", "StreamUnavailable", ExitCode.STREAM_UNAVAILABLE),
    ("dht.errors", "OwnerError", ExitCode.WRONG_OWNER),
    ("dht.errors", "IdentityError", ExitCode.KEY_FILE),
    ("dht.errors", "PinsError", ExitCode.KEY_FILE),
    ("dht.errors", "DirectoryUnavailable", ExitCode.NO_DHT),
    ("xmlswitch.errors", "QueryError", ExitCode.BAD_QUERY),
    ("peer.errors", "QueryNotCarried", ExitCode.BAD_QUERY),
    ("peer.packetlog.files", "PacketLogError", ExitCode.DISK),
    ("peer.errors", "PeerError", ExitCode.KEY_FILE),
)


def _explain_os(error: OSError) -> tuple[ExitCode, str] | None:
    if error.errno == errno.EADDRINUSE:
        return (
            ExitCode.PORT_IN_USE,
            "the address to listen on is in use by another program: choose another with --listen",
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) and error.filename is None:
        return ExitCode.PORT_IN_USE, f"cannot listen there: {error.strerror}; choose another address with --listen"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ExitCode.DISK, f"no room on the disk: {error.filename or error.strerror}"
    if type(error).__name__ == "gaierror":
        return ExitCode.USAGE, f"a host name can't be resolved: {error.strerror}"
    if error.filename is not None:
        return ExitCode.CONFIG, f"{error.filename}: {error.strerror}"
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a word that nobody knows; empty if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, [name for name in known if not name.startswith("-") or name.startswith("--")], n=1)
    return f" (did you mean {near[0]}?)" if near else ""
