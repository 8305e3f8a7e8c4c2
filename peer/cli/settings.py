"""The settings of each command: one table, from which flags, environment, file and help are made."""

from __future__ import annotations

from ipaddress import ip_network

from peer.cli.config import Setting, address, binding, positive, seconds

FORMATS = ("xml", "jsonl", "raw", "none")


def _start(text: str) -> str:
    if text not in ("now", "oldest") and not text.isdecimal():
        raise ValueError(f"expected now, oldest or an AN, not {text!r}")
    return text


def _replay_start(text: str) -> str:
    """An AN or `oldest` as it is, a time as seconds behind an @."""
    from datetime import UTC, datetime

    if text == "oldest" or text.isdecimal():
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected oldest, an AN or a time such as 2026-11-16T12:30:00Z, not {text!r}") from None
    return f"@{(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()}"


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"expected a number from 0 up, not {text!r}")
    return value


def _children(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 4_096:
        raise ValueError(f"expected 0 to 4096 children, not {text!r}")
    return value


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"expected a network such as 10.0.0.0/8, not {text!r} ({error})") from None


def _parents(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 16:
        raise ValueError(f"expected 1 to 16 parents, not {text!r}")
    return value


STREAM = Setting(
    "roots_key", "the stream, by its name in the directory: asdi, or asdi.FINGERPRINT", metavar="NAME", required=True
)
BOOTSTRAP = Setting(
    "bootstrap",
    "a peer or DHT node to begin with (may be repeated); without one, this host and LAN are searched",
    address,
    metavar="HOST:PORT",
    many=True,
)
BEACON = Setting(
    "beacon",
    "find peers on this host and LAN by multicast (default)",
    default=True,
    is_switch=True,
    negative="no-beacon",
)
OWNER_ID = Setting(
    "owner_id",
    "fingerprint of the stream's owner, when roots of several owners serve the name (a root prints its owner)",
    metavar="FINGERPRINT",
)
FIND = Setting(
    "find_timeout", "seconds to look for a DHT before giving up (default 5)", seconds, 5.0, metavar="SECONDS"
)
WAIT = Setting("wait", "keep looking for a DHT for ever in place of giving up", default=False, is_switch=True)
LOG_LEVEL = Setting(
    "log_level",
    "what is told on stderr: error, warning (default), info, debug",
    default="warning",
    choices=("error", "warning", "info", "debug"),
)
LOG_JSON = Setting("log_json", "log as JSON, a line an event", default=False, is_switch=True)
NETWORK = Setting(
    "network",
    "how long a silence is borne: lan (default), or wan for long, lossy paths; the same at every peer of a mesh",
    default="lan",
    choices=("lan", "wan"),
)
REACH = (
    STREAM,
    OWNER_ID,
    BOOTSTRAP,
    Setting(
        "listen",
        "UDP address of this peer; `:0` opens it to the network (default: this host alone, or every interface when "
        "--bootstrap names another host)",
        address,
        metavar="HOST:PORT",
    ),
    Setting(
        "identity", "key file of this peer, made when it is not there (default: a key for this run)", metavar="FILE"
    ),
    Setting(
        "state",
        "folder in which contacts, pinned owners and a root's last AN are kept (default: the last AN alone, in "
        "~/.local/share/skymesh/roots)",
        metavar="DIR",
    ),
    BEACON,
    FIND,
    WAIT,
    NETWORK,
    Setting("dictionary", "zstd dictionary that the stream's packets are compressed with", metavar="FILE"),
    Setting("metrics", "serve Prometheus metrics over HTTP", address, metavar="HOST:PORT"),
    Setting("status_file", "write the peer's state to this file every second, as JSON", metavar="FILE"),
    LOG_LEVEL,
    LOG_JSON,
)
CHILDREN_FROM = Setting(
    "children_from",
    "carry only children from this network (may be repeated; default: from anywhere)",
    _network,
    metavar="NETWORK",
    many=True,
)
WANT = (
    Setting("parents", "how many parents to hold: one less can die without a stall (default 2)", _parents, 2, "N"),
    Setting(
        "resilient_parents",
        "take only parents that hold as many parents themselves, up to the roots",
        default=False,
        is_switch=True,
    ),
    Setting(
        "selection",
        "how parents are chosen: scored (default), or walk: from the roots down, through whoever is full",
        default="scored",
        choices=("scored", "walk"),
    ),
    Setting("query", "XPath: only packets that match are wanted", metavar="XPATH"),
    Setting("namespace", "bind a prefix of the query (may be repeated)", binding, metavar="P=URI", many=True),
    Setting("from", "where to begin: now (default), an AN, or oldest", _start, "now", "now|AN|oldest"),
)
JOIN = (
    *REACH,
    *WANT,
    Setting(
        "fallback",
        "XPath: a narrower query to step down to when stdout can't take all of it (may be repeated, the widest first)",
        metavar="XPATH",
        many=True,
    ),
    Setting("capacity", "how many children to carry (default 6)", _children, 6, "N"),
    Setting("leaf", "carry no children at all", default=False, is_switch=True),
    CHILDREN_FROM,
    Setting("carry", "XPath: carry no more than this part of the stream for others", metavar="XPATH"),
    Setting("format", "what goes to stdout: xml (default), jsonl, raw, none", default="xml", choices=FORMATS),
    Setting("count", "stop after so many packets", positive, metavar="N"),
    Setting("timeout", "stop after so many seconds", seconds, metavar="SECONDS"),
    Setting(
        "dynamic",
        "as a router, ask parents only for what is wanted here; --static carries everything (default)",
        default=False,
        is_switch=True,
        negative="static",
    ),
    Setting(
        "trace",
        "append deliveries, gaps, stalls and repairs to this file, JSON lines for `python -m pipeline analyze mesh`",
        metavar="FILE",
    ),
)
ROOT = (
    *REACH,
    Setting(
        "feed",
        "FILE, -, tcp://HOST:PORT, tcp-listen://HOST:PORT, asdi:SOURCE, archive:PATH, log:DIR, demo, demo:COPIES",
        metavar="SOURCE",
        required=True,
    ),
    Setting("rate", "packets a second (files: 1000 by default; 0: as fast as they can be read)", _number, metavar="N"),
    Setting("speed", "times the speed of the packets' own times", _number, metavar="X"),
    Setting("loop", "begin a file again at its end", default=False, is_switch=True),
    Setting(
        "framing",
        "how packets lie in bytes: auto, xml, length, nul, lines",
        default="auto",
        choices=("auto", "xml", "length", "nul", "lines"),
    ),
    Setting(
        "numbering",
        "where ANs come from: auto, asdi, position, content",
        default="auto",
        choices=("auto", "asdi", "position", "content"),
    ),
    Setting("date", "a day near the first message of an ASDI file (default: today)", metavar="YYYY-MM-DD"),
    Setting(
        "first", "number by content without looking for other roots: this is the first", default=False, is_switch=True
    ),
    Setting(
        "keep_numbers",
        "keep the last AN on disk, so that a restart does not repeat numbers that clients have seen (default)",
        default=True,
        is_switch=True,
        negative="forget-numbers",
    ),
    Setting("sync_timeout", "seconds that a root may take to find its numbers (default 60)", seconds, 60.0, "SECONDS"),
    Setting("compress", "zstd, zlib or none (default)", default="none", choices=("zstd", "zlib", "none")),
    Setting("stamp", "put the time of sending into each packet, for latency", default=False, is_switch=True),
    Setting("capacity", "how many children to carry (default 6)", _children, 6, "N"),
    CHILDREN_FROM,
    Setting(
        "owner",
        "key file of the stream's owner, made when it is not there; roots with one owner serve together",
        metavar="FILE",
    ),
    Setting("grant", "file with the owner's grant for this peer's --identity", metavar="FILE"),
    Setting(
        "exit_at_end", "stop when the feed has ended, in place of serving its history", default=False, is_switch=True
    ),
)
BRIDGE = (
    *REACH,
    *WANT,
    Setting("to", "where programs connect to read: tcp-listen://HOST:PORT", metavar="URL", required=True),
    Setting(
        "separator", "what ends each document: newline (default) or nul", default="newline", choices=("newline", "nul")
    ),
    Setting(
        "queue", "packets that wait for a slow reader before it is disconnected (default 4096)", positive, 4_096, "N"
    ),
)
RECORD = (
    *REACH,
    *WANT,
    Setting("out", "folder of the packet log", metavar="DIR", required=True),
    Setting("max_bytes", "remove the oldest segments beyond this size", positive, metavar="N"),
    Setting("max_age", "remove segments older than this", seconds, metavar="SECONDS"),
    Setting(
        "sync_seconds",
        "longest time that a packet is not on the disk yet (default 1; 0: each one)",
        seconds,
        1.0,
        "SECONDS",
    ),
    Setting("count", "stop after so many packets", positive, metavar="N"),
    Setting("timeout", "stop after so many seconds", seconds, metavar="SECONDS"),
)
REPLAY = (
    Setting("format", "what goes to stdout: xml (default), jsonl, raw, none", default="xml", choices=FORMATS),
    Setting(
        "from",
        "where to begin: oldest (default), an AN, or a time (UTC unless it says otherwise)",
        _replay_start,
        "oldest",
        "AN|TIME|oldest",
    ),
    Setting("count", "stop after so many packets", positive, metavar="N"),
    LOG_LEVEL,
    LOG_JSON,
)
STATUS = (
    STREAM,
    OWNER_ID,
    BOOTSTRAP,
    Setting("listen", "UDP address to ask from (default: as for join)", address, metavar="HOST:PORT"),
    BEACON,
    FIND,
    Setting("json", "one JSON document", default=False, is_switch=True),
    Setting("dot", "a graph for Graphviz", default=False, is_switch=True),
    Setting("watch", "again every few seconds, until stopped", default=False, is_switch=True),
    Setting("interval", "seconds between two looks of --watch (default 2)", seconds, 2.0, "SECONDS"),
    LOG_LEVEL,
    LOG_JSON,
)
QUERY_CHECK = (
    Setting("namespace", "bind a prefix (may be repeated)", binding, metavar="P=URI", many=True),
    Setting("sample", "XML documents to try it on, back to back; - is stdin", metavar="FILE"),
    Setting("json", "one JSON document", default=False, is_switch=True),
)

COMBINE = (
    STREAM,
    Setting(
        "source",
        "a stream to combine, or NAME=XPATH for a part of it: the same at every combiner (may be repeated)",
        metavar="NAME",
        many=True,
    ),
    Setting("namespace", "bind a prefix of the queries (may be repeated)", binding, metavar="P=URI", many=True),
    BOOTSTRAP,
    Setting("listen", "UDP address; each peer of the combiner takes a free port there", address, metavar="HOST:0"),
    BEACON,
    FIND,
    WAIT,
    NETWORK,
    Setting("parents", "how many parents to hold in each source (default 2)", _parents, 2, "N"),
    Setting("capacity", "how many children to carry of each sub-stream (default 6)", _children, 6, "N"),
    Setting(
        "owner",
        "key file of the combined stream's owner, made when it is not there; combiners share it",
        metavar="FILE",
    ),
    LOG_LEVEL,
    LOG_JSON,
)

BY_COMMAND: dict[str, tuple[Setting, ...]] = {
    "join": JOIN,
    "root": ROOT,
    "status": STATUS,
    "query check": QUERY_CHECK,
    "bridge": BRIDGE,
    "record": RECORD,
    "replay": REPLAY,
    "combine": COMBINE,
}
ALL_NAMES = frozenset(setting.name for settings in BY_COMMAND.values() for setting in settings)
