"""How an option is declared: once, as a field of a dataclass. Flags, variables, TOML keys, keywords and docs follow.

    parents: int = option(2, "how many parents to hold", of=("join",), read=whole(1, 16), metavar="N")

makes `--parents N`, `PEER_PARENTS`, `parents = N`, `peer.join(parents=N)` and a row of docs/options.md. What a field
without `option` says is for programs that build `PeerOptions` themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, field, fields
from typing import Any, NamedTuple

_KEY = "option"


class Spec(NamedTuple):
    help: str
    of: tuple[str, ...]
    """The commands, and the functions of the API, that have this option."""
    read: Callable[[str], Any] = str
    """From the text of a flag, a variable or a file to the value; ValueError with a sentence."""
    flag: str = ""
    """The name on the command line and in files, where it is not the field's."""
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    many: bool = False
    negative: str | None = None
    """A second flag that turns a switch off."""
    keyword: str = ""
    """The type of the keyword, where a function takes more than the field holds."""
    convert: Callable[[Any], Any] | None = None
    """From the keyword to the field."""
    only: str = ""
    """`cli` or `api` for an option that the other does not have."""
    default_text: str = ""
    """How the default is described, where the value does not say it."""


def option(default: Any, help: str, of: tuple[str, ...], **more: Any) -> Any:  # noqa: A002  argparse's word
    """A dataclass field with its description. A list or dict as default is given as its type."""
    spec = {_KEY: Spec(help, of, **more)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=spec)
    return field(default=default, metadata=spec)


def options_of(kind: type, face: str, side: str) -> Iterator[tuple[Field[Any], Spec]]:
    """The options that a command (`side` "cli") or a function (`side` "api") has, in the order of their declaration."""
    for declared in fields(kind):
        spec = declared.metadata.get(_KEY)
        if spec is not None and face in spec.of and spec.only in ("", side):
            yield declared, spec


def default_of(declared: Field[Any]) -> Any:
    return declared.default_factory() if callable(declared.default_factory) else declared.default


def from_keywords(kind: type, function: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields from the keywords of a call; TypeError for one that the function does not have, as Python words it."""
    known = {declared.name: spec for declared, spec in options_of(kind, function, "api")}
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return {
        name: value if value is None or (convert := known[name].convert) is None else convert(value)
        for name, value in given.items()
    }


# --- checks of what a program gives -----------------------------------------------------------------------------------


def check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be in {least}..{most}, got {value!r}")


def is_address(given: object) -> bool:
    """A program may give anything, and a string has characters where addresses should be."""
    match given:
        case (str(host), int(port)):
            return bool(host) and 0 <= port < 1 << 16
    return False


# --- readers of text --------------------------------------------------------------------------------------------------


def whole(least: int, most: int | None = None, what: str = "a whole number") -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"expected {what}, got {text!r}") from None
        if value < least or (most is not None and value > most):
            limits = f"{least} or more" if most is None else f"{least} to {most}"
            raise ValueError(f"expected {what}, {limits}, got {text!r}")
        return value

    return read


def decimal(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"expected a number, 0 or more, got {text!r}")
    return value


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, [V6]:PORT, or :PORT for every interface."""
    from dht.addresses import parse_endpoint  # help and completion need no address

    return parse_endpoint(text, default_host="0.0.0.0")


def binding(text: str) -> tuple[str, str]:
    prefix, equals, uri = text.partition("=")
    if not (prefix and equals and uri):
        raise ValueError(f"expected PREFIX=URI, got {text!r}")
    return prefix, uri


def network(text: str) -> str:
    from ipaddress import ip_network

    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"expected a network such as 10.0.0.0/8, got {text!r} ({error})") from None


def path(text: Any) -> Any:
    """A file or folder, from the shell or from a program."""
    from pathlib import Path

    return Path(text).expanduser() if isinstance(text, str) else Path(text)


def file_bytes(text: str) -> bytes:
    """What a file holds. OSError."""
    return bytes(path(text).read_bytes())


def day(text: str) -> Any:
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected a date as YYYY-MM-DD, got {text!r}") from None
