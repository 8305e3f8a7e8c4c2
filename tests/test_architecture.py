"""The rules of the house that a machine can hold: who imports whom, what stays pure, and that nothing lies around."""

from __future__ import annotations

import ast
import tomllib

import pytest

from tests.imports import MODULES, PACKAGES, REPOSITORY, cycles, files, graph, imports, name_of, source

pytestmark = pytest.mark.xdist_group("architecture")  # in one worker, each file is read once

# Which packages each package may import.
ALLOWED = {
    "asdi": {"asdi"},
    "dcp": {"dcp"},
    "xmlswitch": {"xmlswitch"},
    "dht": {"dht"},
    "skymesh": {"peer"},
    "peer": {"asdi", "dcp", "xmlswitch", "dht", "peer"},
    "pipeline": {"asdi", "dcp", "xmlswitch", "dht", "peer", "pipeline"},
    "demo": {"asdi", "dcp", "xmlswitch", "dht", "peer", "demo"},
    "bench": set(PACKAGES),
}
# Rooms that know nothing of the rest of their package, but for what is listed.
ROOMS = {
    "peer.mesh": {"peer.mesh"},
    "peer.goals": {"peer.goals"},
    "peer.optimizer": {"peer.optimizer", "peer.goals", "peer.mesh"},
    "peer.packetlog": {"peer.packetlog"},
    "asdi.flights": {"asdi"},
}
# What only the command line may need: a program that embeds a peer loads none of it.
ONLY_THE_COMMAND_LINE = "peer.cli"

# Where the clock, sockets, event loops, threads and logs may be known. Everything else in these packages is pure.
SHELL = {
    "asdi": (),
    "dcp": (
        *("dcp.udp", "dcp.driver", "dcp.endpoint", "dcp.guard", "dcp.testing"),
        *("dcp.carriers.connection", "dcp.carriers.opening", "dcp.carriers.pool", "dcp.carriers.tcp"),
        "dcp.carriers.multicast",
    ),
    "xmlswitch": ("xmlswitch.__main__", "xmlswitch.cli"),
    "dht": ("dht.cli", "dht.faults", "dht.shell", "dht.testing"),
    "peer": (
        *("peer.api", "peer.blocking", "peer.combine", "peer.connections", "peer.guest", "peer.guest_hosts"),
        *(
            "peer.listeners",
            "peer.lookups",
            "peer.mailbox",
            "peer.node",
            "peer.opening",
            "peer.ownership",
            "peer.directory",
        ),
        *(
            "peer.publications",
            "peer.session",
            "peer.sockets",
            "peer.tcp",
            "peer.cli",
            "peer.__main__",
            "peer.packetlog.writer",
        ),
        *("peer.observe.goals", "peer.feeds.rss", "peer.feeds.rss_memory", "peer.goal_file"),
        *("peer.feeds.content_work", "peer.feeds.numbers", "peer.feeds.serve", "peer.feeds.sources"),
        *(
            "peer.gateway.app",
            "peer.gateway.serve",
            "peer.observe.crawl",
            "peer.observe.status",
            "peer.observe.trace",
            "peer.trust.files",
        ),
    ),
}
IMPURE = {"trio", "asyncio", "socket", "time", "logging", "threading", "subprocess", "selectors", "select"}
IMPURE |= {"multiprocessing", "ssl", "signal", "concurrent", "trio_asyncio"}

# Modules that users import by name and nothing here does: each is documented, or runs by `python -m`.
ENTRANCES = {
    *("pipeline.asdi", "pipeline.flights", "pipeline.archive_jobs"),  # the names of version 0.1
    "asdi.flights.data.build_table",  # run by hand to make the table of flights
    "peer.cli.reference",  # run by `make format`
}
# Who may look behind a Peer: it itself, what it makes its record and its statistics of, and simulations of the core.
MAY_USE_THE_CORE = {"peer.node", "peer.own_record", "peer.publications", "peer.observe.statistics", "peer.testing"}
MAX_LINES = 500


def within(name: str, roots: tuple[str, ...] | set[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package):
    for path in files(package):
        for name in imports(path):
            top = name.partition(".")[0]
            assert top not in PACKAGES or top in ALLOWED[package], f"{path} imports {name}"


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_know_nothing_of_the_house(room):
    package = room.partition(".")[0]
    for name, path in MODULES.items():
        if within(name, {room}):
            strange = {other for other in imports(path) if within(other, {package}) and not within(other, ROOMS[room])}
            assert not strange, f"{path} imports {strange}"


def test_nothing_imports_in_a_circle():
    assert cycles(graph()) == []


def test_the_check_for_circles_can_fail():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert cycles(edges) == [["a", "b", "c"]]


def test_imports_by_name_are_seen():
    """`importlib` with a name in a table, as peer's command line and its lazy API use it."""
    assert "peer.cli.join" in imports(MODULES["peer.cli.main"])
    assert "peer.api" in imports(MODULES["peer"])


def test_the_api_loads_no_command_line():
    for name, path in MODULES.items():
        if within(name, {"peer"}) and not within(name, {ONLY_THE_COMMAND_LINE, "peer.__main__"}):
            assert not any(within(other, {ONLY_THE_COMMAND_LINE}) for other in imports(path)), path


def test_no_module_is_used_by_tests_alone():
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    used = set(ENTRANCES) | {target.partition(":")[0] for target in pyproject["scripts"].values()}
    for group in pyproject["entry-points"].values():
        used |= {target.partition(":")[0] for target in group.values()}
    for name, others in graph().items():
        used |= others
        if name.endswith(".__main__"):
            used.add(name)
    for name in MODULES:
        is_testing = ".testing" in name or name.partition(".")[0] == "bench"
        is_package = MODULES[name].name == "__init__.py"
        assert name in used or is_testing or is_package, f"only tests import {name}"


@pytest.mark.parametrize("package", ["asdi", "dcp", "xmlswitch", "dht", "peer", "demo"])
def test_only_pipeline_knows_spark(package):
    for path in files(package):
        assert not any(within(name, {"pyspark", "py4j"}) for name in imports(path)), path


@pytest.mark.parametrize("package", sorted(SHELL))
def test_pure_files_do_no_io(package):
    for path in files(package):
        if not within(name_of(path), SHELL[package]):
            impure = {name for name in imports(path) if name.partition(".")[0] in IMPURE}
            assert not impure, f"{path} is pure and must not import {impure}"


def test_files_have_one_concern():
    """A file of more than 500 lines has a second one."""
    tests = sorted((REPOSITORY / "tests").rglob("*.py"))
    long = {path for path in [*MODULES.values(), *tests] if path.read_text().count("\n") > MAX_LINES}
    assert sorted(str(path.relative_to(REPOSITORY)) for path in long) == []


def reaches_into_a_peer(tree: ast.Module) -> set[int]:
    """Lines that use `<something>.core.<attribute>`, or keep `<something>.core` under another name."""
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "core":
            lines.add(node.lineno)
        if isinstance(node, ast.Assign):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            lines |= {value.lineno for value in values if isinstance(value, ast.Attribute) and value.attr == "core"}
    return lines


def test_nobody_reaches_through_a_peer_into_its_machines():
    for name, path in MODULES.items():
        if not within(name, MAY_USE_THE_CORE):
            lines = reaches_into_a_peer(source(path)[1])
            assert not lines, f"{path}, lines {sorted(lines)}: give Peer a method instead of reaching into its core"


def test_the_check_for_reaching_can_fail():
    assert reaches_into_a_peer(ast.parse("stream.core.sender.publish_hole(3)")) == {1}
    assert reaches_into_a_peer(ast.parse("core, now = self._peer.core, 3")) == {1}
    assert reaches_into_a_peer(ast.parse("core = peer.core\noptions.core()")) == {1}


def test_no_test_package_shadows_a_package():
    for folder in [
        path for path in (REPOSITORY / "tests").rglob("*") if path.is_dir() and list(path.glob("test_*.py"))
    ]:
        assert (folder / "__init__.py").exists(), f"{folder} needs an __init__.py"


def test_every_module_says_what_it_is_for():
    for name, path in MODULES.items():
        assert ast.get_docstring(source(path)[1]), f"{name} has no docstring"


def test_groups_of_tests_stay_together(request):
    """pytest 9.2 with xdist 3.8 lost them without a word: two Sparks, and every demo and browser started twice."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@architecture")
