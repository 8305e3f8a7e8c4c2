"""The rules of the house that a machine can hold: who imports whom, and that pure files stay pure."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ["asdi", "dcp", "xmlswitch", "dht", "peer", "pipeline", "demo", "bench"]

# Who may import whom, among our own packages. peer may use the modules of pipeline that make or read packets.
ALLOWED = {
    "asdi": {"asdi"},
    "dcp": {"dcp"},
    "xmlswitch": {"xmlswitch"},
    "dht": {"dht"},
    "peer": {"asdi", "dcp", "xmlswitch", "dht", "peer"},
    "pipeline": {"asdi", "dcp", "xmlswitch", "dht", "peer", "pipeline"},
    "demo": {"asdi", "dcp", "xmlswitch", "dht", "peer", "pipeline", "demo"},
    "bench": set(PACKAGES),
}
PURE_PIPELINE = {"pipeline.replay"}

# The shell: the only files that may know the clock, sockets, event loops or logging. Everything else is pure.
SHELL = {
    "dcp": {"udp", "driver", "endpoint", "guard", "testing"},
    "xmlswitch": {"__main__", "cli"},
    "dht": {
        *("beacon", "campaign", "cli", "faults", "inspection", "kademlia_directory", "node", "protocol", "publisher"),
        *("service", "testing", "trio_directory", "udp"),
    },
    "peer": {
        *(
            "api",
            "blocking",
            "combine",
            "connections",
            "feeds_bytes",
            "feeds_serve",
            "guest",
            "guest_hosts",
            "mailbox",
            "node",
        ),
        *(
            "listeners",
            "numbers",
            "ownership",
            "packetlog",
            "records",
            "session",
            "sockets",
            "status",
            "status_crawl",
            "tcp",
            "trace",
        ),
        *(
            "cli_bridge",
            "cli_combine",
            "cli_join",
            "cli_logs",
            "cli_metrics",
            "cli_output",
            "cli_record",
            "cli_root",
            "cli_run",
            "cli_status",
        ),
    },
}
IMPURE = {"trio", "asyncio", "socket", "time", "logging", "threading", "subprocess", "selectors", "select"}


def modules(package: str) -> list[Path]:
    return sorted((REPOSITORY / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package):
    for path in modules(package):
        for name in imported(path):
            top = name.split(".")[0]
            if top in PACKAGES and top not in ALLOWED[package]:
                assert package == "peer", f"{path} imports {name}"
                assert name in PURE_PIPELINE, f"{path} imports {name}"


@pytest.mark.parametrize("package", ["dcp", "xmlswitch", "dht", "peer", "demo"])
def test_only_pipeline_knows_spark(package):
    for path in modules(package):
        assert not any(name.split(".")[0] == "pyspark" for name in imported(path)), path


@pytest.mark.parametrize("package", sorted(SHELL))
def test_pure_files_do_no_io(package):
    for path in modules(package):
        relative = path.relative_to(REPOSITORY / package)
        if relative.parts[0].removesuffix(".py") in SHELL[package]:
            continue
        impure = {name for name in imported(path) if name.split(".")[0] in IMPURE}
        assert not impure, f"{path} is pure and must not import {impure}"


def test_no_test_package_shadows_a_package():
    for package in PACKAGES:
        assert (
            not (REPOSITORY / "tests" / package).exists() or (REPOSITORY / "tests" / package / "__init__.py").exists()
        ), f"tests/{package} needs an __init__.py"


@pytest.mark.xdist_group("guard")
def test_groups_of_tests_stay_together(request):
    """pytest 9.2 with xdist 3.8 lost them without a word: two Sparks, and every demo and browser started twice."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@guard")
