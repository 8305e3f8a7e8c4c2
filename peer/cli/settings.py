"""The settings of each command: the options of the peer and its feed, and what only the command line has.

A setting is declared once: an option of a peer in `peer.options`, one of a feed in `peer.feeds.options`, the rest here.
"""

from __future__ import annotations

from typing import Any

from peer.cli.config import Setting
from peer.feeds.options import FeedOptions
from peer.options import MAX_TREE_DEGREE, PeerOptions
from peer.optionspec import address, binding, decimal, default_of, options_of, path, whole

FORMATS = ("xml", "jsonl", "raw", "none")
MAX_PIPE_NAME = 128
"""Bytes, as `dcp.handshake.MAX_STREAM_BYTES`, which is not loaded for a help text."""
_positive = whole(1)


def settings_of(kind: type, command: str) -> tuple[Setting, ...]:
    """What a dataclass of options declares for a command."""
    return tuple(
        Setting(
            spec.flag or declared.name,
            spec.help,
            spec.read,
            _plain(default_of(declared)),
            spec.metavar,
            spec.choices,
            many=spec.many,
            is_switch=declared.type in ("bool", bool),
            negative=spec.negative,
            of=kind,
            field=declared.name,
            default_text=spec.default_text,
        )
        for declared, spec in options_of(kind, command, "cli")
    )


def _plain(default: Any) -> Any:
    return None if default == () or default == {} else default


def _replay_start(text: str) -> str:
    """An AN or `oldest` as it is, a time as seconds behind an @."""
    from datetime import UTC, datetime

    if text == "oldest" or text.isdecimal():
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected oldest, an AN or a time such as 2026-11-16T12:30:00Z, got {text!r}") from None
    return f"@{(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()}"


def _pipe_name(text: str) -> str:
    if not 1 <= len(text.encode()) <= MAX_PIPE_NAME:
        raise ValueError(f"expected a name of 1 to {MAX_PIPE_NAME} bytes, got {text!r:.40}")
    return text


_STREAM = Setting("roots_key", "the stream, by its name in the directory: asdi, or asdi.FINGERPRINT", metavar="NAME",
                  required=True, positional="STREAM", alias="stream")  # fmt: skip
_FIND = Setting("find_timeout", "seconds to look for a DHT before giving up", decimal, 5.0, "SECONDS")
_WAIT = Setting("wait", "keep looking for a DHT forever instead of giving up", default=False, is_switch=True)
_LOGS = (
    Setting("log_level", "what to log to stderr: error, warning, info, debug", default="warning",
            choices=("error", "warning", "info", "debug")),
    Setting("log_json", "log one JSON object per line", default=False, is_switch=True),
)  # fmt: skip
_RUNS = (
    _FIND,
    _WAIT,
    Setting("metrics", "serve Prometheus metrics over HTTP", address, metavar="HOST:PORT"),
    Setting("status_file", "write the peer's state to this file every second, as JSON", metavar="FILE"),
    *_LOGS,
)
_JSON = Setting("json", "print one JSON document", default=False, is_switch=True)
_FORMAT = Setting("format", "what to write to stdout: xml, jsonl, raw, none", default="xml", choices=FORMATS)
_COUNT = Setting("count", "stop after N packets", _positive, metavar="N")
_TIMEOUT = Setting("timeout", "stop after this many seconds", decimal, metavar="SECONDS")
_PIPE_NAME = Setting("name", "the name of the byte stream", _pipe_name, "bytes", "NAME")

_ONLY_HERE: dict[str, tuple[Setting, ...]] = {
    "join": (
        Setting("leaf", "carry no children at all", default=False, is_switch=True),
        _FORMAT,
        _COUNT,
        _TIMEOUT,
        Setting(
            "trace",
            "append deliveries, gaps, stalls and repairs to this file, as JSON lines for `python -m pipeline analyze "
            "mesh`",
            metavar="FILE",
        ),
        *_RUNS,
    ),
    "root": (
        Setting(
            "feed",
            "FILE, -, tcp://HOST:PORT, tcp-listen://HOST:PORT, asdi:SOURCE, rss:URL-or-OPML, archive:PATH, log:DIR, "
            "demo, demo:COPIES",
            metavar="SOURCE",
            required=True,
        ),
        Setting("first", "number by content without looking for other roots: this is the first one", default=False,
                is_switch=True),
        Setting("sync_timeout", "seconds that a root may take to find its numbers", decimal, 60.0, "SECONDS"),
        Setting("stamp", "put the time of sending into each packet, to measure latency", default=False, is_switch=True),
        Setting("exit_at_end", "stop when the feed has ended, instead of serving its history", default=False,
                is_switch=True),
        *_RUNS,
    ),
    "bridge": (
        Setting("to", "where programs connect to read: tcp-listen://HOST:PORT", metavar="URL", required=True),
        Setting("separator", "what ends each document: newline or nul", default="newline", choices=("newline", "nul")),
        Setting("queue", "packets that may wait for a slow reader before it is disconnected", _positive, 4_096, "N"),
        *_RUNS,
    ),
    "gateway": (
        Setting("listen", "TCP address for browsers and other clients; `:8080` opens it to the network", address,
                ("127.0.0.1", 8080), "HOST:PORT", default_text="127.0.0.1:8080"),
        Setting("peer_listen", "UDP address of this peer; `:0` opens it to the network", address, metavar="HOST:PORT",
                default_text="this host only, or every interface when --bootstrap names another host"),
        Setting("token_file", "file with a token that every client must bring", path, metavar="FILE",
                default_text="anybody may listen"),
        Setting("allow_origin", "site whose pages may connect, such as https://example.org, or * (repeatable)",
                metavar="ORIGIN", many=True, default_text="only pages that this gateway serves"),
        Setting("certificate", "TLS certificate (PEM)", path, metavar="FILE", default_text="no TLS"),
        Setting("certificate_key", "its key", path, metavar="FILE", default_text="in the same file"),
        Setting("history_bytes", "bytes of packets kept for clients that resume", _positive, 64 << 20, "N"),
        Setting("max_clients", "clients that are served at once", whole(1, 100_000), 1_000, "N"),
        *_RUNS,
    ),
    "record": (
        Setting("out", "folder of the packet log", metavar="DIR", required=True),
        Setting("max_bytes", "remove the oldest segments beyond this size", _positive, metavar="N"),
        Setting("max_age", "remove segments older than this", decimal, metavar="SECONDS"),
        Setting("sync_seconds", "how long a packet may wait to be synced to disk; 0 syncs each one", decimal, 1.0,
                "SECONDS"),
        _COUNT,
        _TIMEOUT,
        *_RUNS,
    ),
    "replay": (
        _FORMAT,
        Setting("from", "where to begin: oldest, an AN, or a time (UTC unless it says otherwise)", _replay_start,
                "oldest", "AN|TIME|oldest"),
        _COUNT,
        *_LOGS,
    ),
    "status": (
        _JSON,
        Setting("wide", "show level, hops, age, version and all parents too, and cut nothing off", default=False,
                is_switch=True),
        Setting("tree", "show who is where in the reference tree, and whether that is its place", default=False,
                is_switch=True),
        Setting("expect", "with --tree: only the parents that the list of peers gives everybody", default=False,
                is_switch=True),
        Setting("tree_degree", "of --tree, if not the one that most peers say", whole(3, MAX_TREE_DEGREE), None, "N"),
        Setting("goal", "show the stream's goal, what each peer costs and which constraints it breaks", default=False,
                is_switch=True),
        Setting("dot", "print a graph for Graphviz", default=False, is_switch=True),
        Setting("watch", "look again every few seconds, until stopped", default=False, is_switch=True),
        Setting("interval", "seconds between two looks of --watch", decimal, 2.0, "SECONDS"),
        _FIND,
        *_LOGS,
    ),
    "streams": (_JSON, _FIND, *_LOGS),
    "query check": (
        Setting("namespace", "bind a namespace prefix (repeatable)", binding, metavar="P=URI", many=True),
        Setting("namespaces", "bind the prefixes of a TOML file, or of a known set: faa, fixm", metavar="FILE"),
        Setting("sample", "XML documents to try it on, back to back; - is stdin", metavar="FILE"),
        _JSON,
    ),
    "goal check": (_JSON,),
    "goal set": (
        Setting("owner", "key file of the stream's owner, as for `root --owner`", path, metavar="FILE", required=True),
        _JSON,
        _FIND,
        *_LOGS,
    ),
    "goal show": (_JSON, _FIND, *_LOGS),
    "pipe send": (
        _PIPE_NAME,
        Setting("listen", "UDP address to send from; `:0` opens it to the network", address, metavar="HOST:PORT",
                default_text="this host only"),
        Setting("receivers", "wait for N receivers before reading standard input", _positive, 1, "N"),
        *_LOGS,
    ),
    "pipe receive": (
        _PIPE_NAME,
        Setting("sender", "a sender of the stream (repeatable: all of them must be given the same bytes)", address,
                metavar="HOST:PORT", many=True),
        Setting("listen", "UDP address to receive on", address, metavar="HOST:PORT",
                default_text="this host only, or every interface when a sender is elsewhere"),
        *_LOGS,
    ),
    "combine": (
        Setting("source",
                "a stream to combine, or NAME=XPATH for a part of it (repeatable; the same at every combiner)",
                metavar="NAME", many=True),
        _FIND,
        _WAIT,
        *_LOGS,
    ),
}  # fmt: skip
_ABOUT_A_STREAM = ("join", "root", "bridge", "gateway", "record", "status", "combine", "goal set", "goal show")


def settings_for(command: str) -> tuple[Setting, ...]:
    stream = (_STREAM,) if command in _ABOUT_A_STREAM else ()
    return (*stream, *settings_of(PeerOptions, command), *settings_of(FeedOptions, command), *_ONLY_HERE[command])


COMMANDS = tuple(_ONLY_HERE)


def all_names() -> frozenset[str]:
    """Every name that may be a key of a configuration file."""
    return frozenset(name for command in COMMANDS for setting in settings_for(command) for name in setting.names)
