"""Everything that can be chosen about a peer, declared once: see `peer.optionspec` for what follows from a declaration.

Light on purpose: `--help` loads this file, and nothing of what it describes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from peer.mesh.config import MAX_NAME_BYTES, MAX_PARENTS
from peer.mesh.hostport import HostPort
from peer.optionspec import address, binding, check_whole, decimal, file_bytes, is_address, option, path, whole
from peer.optionspec import network as read_network
from peer.placements import PLACEMENTS
from peer.role import Role
from peer.start import start_of, start_text

if TYPE_CHECKING:
    from pathlib import Path

    from dcp import Config, Start
    from dht.ids import PeerId
    from peer.coreconfig import CoreConfig
    from peer.flow import FlowConfig
    from peer.mesh.config import MeshConfig

DEFAULT_CAPACITY = 6
MAX_CAPACITY = 4_096
"""Children. Each costs a link's buffers and a share of the work per packet; records and messages count in 16 bits."""
MAX_LATERAL_EVERY = 16
MAX_LATERAL_SIBLINGS = 4
"""The limits of `dcp.config`, which `--help` must not load: it would bring an event loop. A test compares them."""
MAX_TREE_DEGREE = 17
MAX_AUDIT_SHARE = 0.1
NETWORKS = ("lan", "wan")
COMPRESSIONS = ("zstd", "zlib", "none")
PROFILES = ("reliable", "latency", "bandwidth", "newest")
ORDERS = ("sequence", "arrival")
CONFIRMS = ("first", "all")

_JOINS = ("join", "record", "bridge", "gateway")
_ROOTS = ("root", "root_from")
_PEERS = (*_JOINS, *_ROOTS)
_GOALS = ("goal set", "goal show")


def _mesh() -> MeshConfig:
    from peer.mesh.config import MeshConfig

    return MeshConfig()


def _dcp() -> Config:
    from dcp import Config

    return Config()


def _flow() -> FlowConfig:
    from peer.flow import FlowConfig

    return FlowConfig()


def transport_text(text: str) -> str:
    from dcp.carriers.registry import carriers_named

    carriers_named(text)
    return text


def peer_name(text: str) -> str:
    if len(text.encode()) > MAX_NAME_BYTES or not text.isprintable():
        raise ValueError(f"expected a name of at most {MAX_NAME_BYTES} printable bytes, got {text!r:.80}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """Everything that a program may choose about a peer. The defaults join on this host."""

    stream: str
    role: Role = Role.ROUTER
    name: str = option(
        "",
        "a name for this peer, which `status` and the page show; it proves nothing",
        of=_PEERS,
        read=peer_name,
        metavar="NAME",
    )
    owner_id: str | None = option(
        None,
        "fingerprint of the stream's owner, for a name that roots of several owners serve (a root prints its owner)",
        of=(*_PEERS, "status", *_GOALS),
        metavar="FINGERPRINT",
    )
    bootstrap: Sequence[HostPort] = option(
        (),
        "a peer or DHT node to start from (repeatable); without one, this host and LAN are searched",
        of=(*_PEERS, "status", "streams", "combine", *_GOALS),
        read=address,
        metavar="HOST:PORT",
        many=True,
    )
    listen: HostPort | None = option(
        None,
        "UDP address of this peer; `:0` opens it to the network",
        of=("join", "record", "bridge", *_ROOTS, "status", "streams", "combine", *_GOALS),
        read=address,
        metavar="HOST:PORT",
        default_text="this host only, or every interface when --bootstrap names another host",
    )
    identity: Path | None = option(
        None,
        "key file of this peer, created if missing",
        of=(*_JOINS, *_ROOTS),
        read=path,
        metavar="FILE",
        keyword="StrPath | None",
        convert=path,
        default_text="a key for this run only",
    )
    state: Path | None = option(
        None,
        "folder for contacts, pinned owners, the owner's policy and a root's last AN",
        of=_PEERS,
        read=path,
        metavar="DIR",
        keyword="StrPath | None",
        convert=path,
        default_text="only a root's last AN, in ~/.local/share/skymesh/roots",
    )
    beacon: bool = option(
        True,
        "find peers on this host and LAN by multicast",
        of=(*_PEERS, "status", "streams", "combine", *_GOALS),
        negative="no-beacon",
    )
    transport: str = option(
        "auto",
        "what carries packets: udp, tcp, auto (UDP, and TCP where no answer comes), or names separated by commas",
        of=(*_PEERS, "status", "streams", "combine", *_GOALS),
        read=transport_text,
        metavar="NAME",
    )
    encryption: str = option(
        "prefer",
        "encrypt links with peers that can (prefer), or refuse links to those that can't (require)",
        of=_PEERS,
        choices=("prefer", "require"),
    )
    cleartext: bool = option(False, "do not encrypt links: for measurements, and to read a capture", of=_PEERS)
    multicast: bool = option(
        True,
        "send to children on one LAN with the same query by IP multicast, and listen to parents that do",
        of=(*_PEERS, "combine"),
        negative="no-multicast",
    )
    lateral_every: int = option(
        4,
        "with multicast: after this many packets a peer sends a repair to neighbors that lose some (Ricochet's r)",
        of=_JOINS,
        read=whole(1, MAX_LATERAL_EVERY),
        metavar="R",
    )
    lateral_siblings: int = option(
        3,
        "to how many of them; 0: to none (Ricochet's c)",
        of=_JOINS,
        read=whole(0, MAX_LATERAL_SIBLINGS),
        metavar="C",
    )
    network: str = option(
        "lan",
        "how long to wait before giving up on a silent parent: lan, or wan for long, lossy paths; "
        "the same at every peer of a mesh",
        of=(*_JOINS, *_ROOTS, "combine"),
        choices=NETWORKS,
    )
    dictionary: bytes | None = option(
        None,
        "zstd dictionary that the stream's packets are compressed with",
        of=(*_JOINS, *_ROOTS),
        read=file_bytes,
        metavar="FILE",
    )
    parents: int = option(
        2,
        "how many parents to hold: all but one can die without a stall",
        of=(*_JOINS, "combine"),
        read=whole(1, MAX_PARENTS),
        metavar="N",
    )
    resilient_parents: bool = option(
        False, "accept only parents that hold as many parents themselves, up to the roots", of=_JOINS
    )
    selection: str = option(
        "scored",
        "how parents are chosen: scored (and by the goal of the stream's owner, if there is one), walk (from the roots "
        "down, past those that are full), or tree (by peer ids)",
        of=_JOINS,
        choices=tuple(PLACEMENTS),
    )
    tree_degree: int = option(
        3,
        "with --selection tree: neighbors of a node of the tree, unless the policy of the stream's owner says it",
        of=_JOINS,
        read=whole(3, MAX_TREE_DEGREE),
        metavar="N",
    )
    query: str | None = option(None, "XPath: receive only packets that match", of=_JOINS, metavar="XPATH")
    namespaces: Mapping[str, str] = option(
        dict,
        "bind a namespace prefix of the queries (repeatable)",
        of=(*_JOINS, "combine", *_ROOTS),
        flag="namespace",
        read=binding,
        metavar="P=URI",
        many=True,
        keyword="Mapping[str, str] | None",
        convert=dict,
    )
    start: Start | str | int = option(
        "now",
        "where to begin: now, oldest, or the AN of the first packet wanted",
        of=_JOINS,
        flag="from",
        read=start_text,
        metavar="now|AN|oldest",
        keyword="str | int",
    )
    language: str = option(
        "xpath",
        "the language of the stream's queries, the same at all its peers: xpath (for XML), record (for JSON and "
        "msgpack), or one that a package adds",
        of=_PEERS,
        metavar="NAME",
    )
    profile: str | None = option(
        None,
        "what to spend on lost packets: reliable (40 % more bytes at most), latency (100 %), bandwidth (none), "
        "newest (never wait for one)",
        of=("join",),
        choices=PROFILES,
        default_text="reliable; latency with --deadline",
    )
    deadline: float | None = option(
        None,
        "as a leaf, give up a lost packet this many seconds after the first sign of its loss: a gap",
        of=("join",),
        read=decimal,
        metavar="S",
    )
    loss_budget: float | None = option(
        None,
        "the share of packets that may be given up for the deadline, 0.001 for one in a thousand",
        of=("join",),
        read=decimal,
        metavar="SHARE",
    )
    order: str = option(
        "sequence",
        "how packets are handed over: in sequence; or, as a leaf, on arrival, without waiting for earlier ones",
        of=("join",),
        choices=ORDERS,
    )
    confirm: str = option(
        "first",
        "hand a packet over when the first parent brings it, or only when all parents agree about everything up to it",
        of=_JOINS,
        choices=CONFIRMS,
    )
    audit: float = option(
        0.01,
        "of a signed stream: the share compared with what other peers have, to find what all parents left out; 0: none",
        of=_JOINS,
        read=decimal,
        metavar="SHARE",
    )
    timeout: float | None = option(
        None,
        "seconds to find a first parent in, then StreamUnavailable is raised; None waits forever",
        of=("join",),
        only="api",
    )
    fallbacks: Sequence[str] = option(
        (),
        "XPath: a narrower query to fall back to when this program can't keep up (repeatable, widest first)",
        of=("join",),
        flag="fallback",
        metavar="XPATH",
        many=True,
    )
    capacity: int = option(
        DEFAULT_CAPACITY,
        "how many children to carry",
        of=("join", *_ROOTS, "combine"),
        read=whole(0, MAX_CAPACITY, "a number of children"),
        metavar="N",
    )
    children_from: Sequence[str] = option(
        (),
        "accept only children from this network (repeatable)",
        of=("join", *_ROOTS),
        read=read_network,
        metavar="NETWORK",
        many=True,
        default_text="from anywhere",
    )
    carry: str | None = option(
        None, "XPath: carry at most this part of the stream for others", of=("join",), metavar="XPATH"
    )
    dynamic: bool = option(
        False,
        "as a router, ask parents only for what is wanted here; --static carries everything",
        of=("join",),
        negative="static",
    )
    compress: str = option("none", "compress packets: zstd, zlib or none", of=_ROOTS, choices=COMPRESSIONS)
    owner: Path | None = option(
        None,
        "key file of the stream's owner, created if missing; roots with one owner serve together",
        of=(*_ROOTS, "combine"),
        read=path,
        metavar="FILE",
        keyword="StrPath | None",
        convert=path,
    )
    grant: Path | None = option(
        None,
        "file with the owner's grant for this peer's --identity",
        of=(*_JOINS, *_ROOTS),
        read=path,
        metavar="FILE",
        keyword="StrPath | None",
        convert=path,
    )
    policy: Path | None = option(
        None,
        "file with the owner's policy on who needs a grant, read again when it changes (skymesh keys)",
        of=_ROOTS,
        read=path,
        metavar="FILE",
        keyword="StrPath | None",
        convert=path,
    )
    unsigned: bool = option(
        False,
        "do not sign packets although the stream has an owner key: whoever relays them can forge them",
        of=_ROOTS,
    )
    withhold: Sequence[str] = option(
        (),
        "XPath: packets that match reach only peers with a grant for withheld packets (repeatable; same at all roots)",
        of=_ROOTS,
        metavar="XPATH",
        many=True,
    )
    keep_numbers: bool = option(
        True,
        "keep the last AN on disk, so that a restart does not repeat numbers that clients have seen",
        of=_ROOTS,
        negative="forget-numbers",
    )
    raw: bool = option(False, "publish any bytes; queries match only packets that are XML", of=("root",), only="api")
    position: int | None = None
    """With `start=Start.POSITION`: everything up to here is known already."""
    sources: tuple[str, ...] = ()
    """Of a root that stands for a combined stream (`peer.combine`): the sources that it consists of."""
    numbers: Path | None = None
    """Folder in which a root keeps its last AN when `state` names none."""
    deliver: bool = True
    mesh: MeshConfig = field(default_factory=_mesh)
    dcp: Config = field(default_factory=_dcp)
    flow: FlowConfig = field(default_factory=_flow)

    def __post_init__(self) -> None:
        from dht import check_stream_name

        for name, value, known in (
            ("selection", self.selection, PLACEMENTS),
            ("network", self.network, NETWORKS),
            ("compress", self.compress, COMPRESSIONS),
            ("order", self.order, ORDERS),
            ("confirm", self.confirm, CONFIRMS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        check_stream_name(self.stream)
        if self.timeout is not None and not self.timeout >= 0:
            raise ValueError(f"timeout must be a number of seconds, got {self.timeout!r}")
        check_whole("parents", self.parents, 1, MAX_PARENTS)
        check_whole("capacity", self.capacity, 0, MAX_CAPACITY)
        if not 0 <= self.audit <= MAX_AUDIT_SHARE:
            raise ValueError(f"audit must be a share of the stream, 0 to {MAX_AUDIT_SHARE}, got {self.audit!r}")
        check_whole("tree_degree", self.tree_degree, 3, MAX_TREE_DEGREE)
        if self.encryption == "require" and self.cleartext:
            raise ValueError("cleartext and encryption=require are mutually exclusive")
        peer_name(self.name)
        transport_text(self.transport)
        if self.owner_id is not None:
            self.chosen_owner()
        for endpoint in self.bootstrap:
            if not is_address(endpoint) or not endpoint[1]:
                raise ValueError(f"bootstrap entries must be (host, port), got {endpoint!r}")
        if self.listen is not None and not is_address(self.listen):
            raise ValueError(f"listen must be (host, port), got {self.listen!r}")

    def chosen_owner(self) -> PeerId | None:
        """The owner that `owner_id` names; ValueError if it is not a fingerprint, or not the one in the name."""
        from dht import parse_id_text
        from dht.streams import owner_of_name

        if self.owner_id is None:
            return None
        try:
            owner = parse_id_text(self.owner_id)
        except ValueError as error:
            raise ValueError(f"owner_id must be the fingerprint of an owner: {error}") from None
        if (owner_of_name(self.stream) or owner) != owner:
            raise ValueError(f"{self.stream} names another owner than {self.owner_id}")
        return owner

    def numbers_folder(self) -> Path | None:
        """Where a root keeps its last AN over restarts; None: it forgets it."""
        return (self.state or self.numbers) if self.keep_numbers else None

    def on_any_port(self, **changes: Any) -> PeerOptions:
        """The same for a second peer in this process: a socket and a key of its own, and nothing remembered."""
        listen = (self.listen[0], 0) if self.listen is not None else None
        return replace(self, listen=listen, identity=None, state=None, numbers=None, **changes)

    def carriers(self) -> tuple[str, ...]:
        """What `transport` names, the first one to try first."""
        from dcp.carriers.registry import carriers_named

        return carriers_named(self.transport)

    def begin(self) -> tuple[Start, int | None]:
        """Where to begin, as dcp puts it."""
        from dcp import Start

        return (self.start, self.position) if isinstance(self.start, Start) else start_of(self.start)

    def core(self) -> CoreConfig:
        """What the machines inside are given. QueryError for a query that is refused."""
        from ipaddress import ip_network

        from dcp.profile import profile_of
        from peer.coreconfig import CoreConfig
        from peer.languages import language_named

        profile = profile_of(
            self.profile,
            deadline=self.deadline,
            loss_budget=self.loss_budget,
            order=self.order,
            confirm=self.confirm,
            is_client=self.role is Role.LEAF,
        )
        capacity = 0 if self.role is Role.LEAF else self.capacity
        mesh = self.mesh.wan() if self.network == "wan" else self.mesh
        strict = self.resilient_parents or mesh.requires_resilient_parents
        mesh = replace(mesh, parents_wanted=self.parents, capacity=capacity, requires_resilient_parents=strict)
        if self.selection == "tree":
            mesh = mesh.for_tree()
        start, position = self.begin()
        language = language_named(self.language)
        return CoreConfig(
            stream=self.stream,
            role=self.role,
            label=self.name,
            sources=self.sources,
            mesh=mesh,
            dcp=replace(
                self.dcp,
                transports=self.carriers(),
                multicast=self.multicast,
                lateral_every=self.lateral_every,
                lateral_siblings=self.lateral_siblings,
                encryption="off" if self.cleartext else self.encryption,
            ),
            query=language.parse(self.query, self.namespaces) if self.query is not None else None,
            dynamic=self.dynamic,
            carry=language.parse(self.carry, self.namespaces) if self.carry is not None else None,
            children_from=tuple(ip_network(allowed) for allowed in self.children_from),
            deliver=self.deliver,
            start=start,
            position=position,
            fallbacks=tuple(language.parse(query, self.namespaces) for query in self.fallbacks),
            flow=self.flow,
            audit_share=self.audit,
            profile=profile,
        )
