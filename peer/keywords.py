"""The keywords of `peer.join`, `peer.root` and `peer.root_from`, for type checkers and editors.

Written by `python -m peer.cli.reference` from `peer.options` and `peer.feeds.options`: change them there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal, TypedDict

HostPort = tuple[str, int]
StrPath = str | os.PathLike[str]


class JoinKeywords(TypedDict, total=False):
    """The keywords of `join`."""

    name: str
    owner_id: str | None
    bootstrap: Sequence[HostPort]
    listen: HostPort | None
    identity: StrPath | None
    state: StrPath | None
    beacon: bool
    transport: str
    encryption: Literal["prefer", "require"]
    cleartext: bool
    multicast: bool
    lateral_every: int
    lateral_siblings: int
    network: Literal["lan", "wan"]
    dictionary: bytes | None
    parents: int
    resilient_parents: bool
    selection: Literal["scored", "walk", "tree"]
    tree_degree: int
    query: str | None
    namespaces: Mapping[str, str] | None
    start: str | int
    language: str
    profile: Literal["reliable", "latency", "bandwidth", "newest"]
    deadline: float | None
    loss_budget: float | None
    order: Literal["sequence", "arrival"]
    confirm: Literal["first", "all"]
    audit: float
    timeout: float | None
    fallbacks: Sequence[str]
    capacity: int
    children_from: Sequence[str]
    carry: str | None
    dynamic: bool
    grant: StrPath | None


class RootKeywords(TypedDict, total=False):
    """The keywords of `root`."""

    name: str
    owner_id: str | None
    bootstrap: Sequence[HostPort]
    listen: HostPort | None
    identity: StrPath | None
    state: StrPath | None
    beacon: bool
    transport: str
    encryption: Literal["prefer", "require"]
    cleartext: bool
    multicast: bool
    network: Literal["lan", "wan"]
    dictionary: bytes | None
    namespaces: Mapping[str, str] | None
    language: str
    capacity: int
    children_from: Sequence[str]
    compress: Literal["zstd", "zlib", "none"]
    owner: StrPath | None
    grant: StrPath | None
    policy: StrPath | None
    unsigned: bool
    withhold: Sequence[str]
    keep_numbers: bool
    raw: bool


class RootFromKeywords(TypedDict, total=False):
    """The keywords of `root_from`."""

    rate: float | None
    speed: float | None
    loop: bool
    framing: Literal["auto", "xml", "length", "nul", "lines", "csv"]
    numbering: Literal["auto", "asdi", "position", "content"]
    follow: bool
    poll: float
    lines: bool
    reference: date | None
    name: str
    owner_id: str | None
    bootstrap: Sequence[HostPort]
    listen: HostPort | None
    identity: StrPath | None
    state: StrPath | None
    beacon: bool
    transport: str
    encryption: Literal["prefer", "require"]
    cleartext: bool
    multicast: bool
    network: Literal["lan", "wan"]
    dictionary: bytes | None
    namespaces: Mapping[str, str] | None
    language: str
    capacity: int
    children_from: Sequence[str]
    compress: Literal["zstd", "zlib", "none"]
    owner: StrPath | None
    grant: StrPath | None
    policy: StrPath | None
    unsigned: bool
    withhold: Sequence[str]
    keep_numbers: bool
