"""One option, one place: what is declared once is found everywhere, and what is written out from it is not stale."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import pytest

import dcp.config
import peer
from peer import options
from peer.cli import reference
from peer.cli.config import resolve
from peer.cli.settings import settings_for
from peer.options import PeerOptions
from peer.optionspec import from_keywords, option, whole
from tests.imports import REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreOptions(PeerOptions):
    """What somebody adds: this and nothing else."""

    patience: int = option(7, "how long to wait", of=("join",), read=whole(1, 9), metavar="N")


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setattr("peer.cli.settings.PeerOptions", MoreOptions)
    monkeypatch.setattr("peer.cli.reference.PeerOptions", MoreOptions)
    monkeypatch.setattr("peer.cli.reference.FUNCTIONS", {"join": ((MoreOptions,), "JoinKeywords")})


def resolved(tmp_path, flags=(), environment=None, file=""):
    (tmp_path / "mesh.toml").write_text(file)
    parser = argparse.ArgumentParser()
    for setting in settings_for("join"):
        setting.add_to(parser)
    given = parser.parse_args(["--roots-key", "asdi", *flags])
    given.config = str(tmp_path / "mesh.toml")
    return parser, resolve(settings_for("join"), given, environment or {}, command="join")


def test_an_option_that_is_declared_once_is_everywhere(added, tmp_path):
    parser, settings = resolved(tmp_path)
    assert settings["patience"] == 7
    assert "--patience N" in parser.format_help()
    assert "how long to wait (default: 7)" in parser.format_help()
    assert resolved(tmp_path, file="patience = 2\n")[1]["patience"] == 2
    assert resolved(tmp_path, environment={"PEER_PATIENCE": "3"}, file="patience = 2\n")[1]["patience"] == 3
    settings = resolved(tmp_path, ["--patience", "4"], {"PEER_PATIENCE": "3"})[1]
    assert MoreOptions(stream="asdi", **settings.fields(MoreOptions)).patience == 4
    assert from_keywords(MoreOptions, "join", {"patience": 5}) == {"patience": 5}
    with pytest.raises(TypeError, match=r"root\(\) got an unexpected keyword argument 'patience'"):
        from_keywords(MoreOptions, "root", {"patience": 5})
    assert "    patience: int\n" in reference.keywords_source()
    assert "| `--patience N` | `patience` | 7 | how long to wait |" in reference.options_page(["join"])


def test_what_is_written_out_is_not_stale():
    """`make format` (or `python -m peer.cli.reference`) writes both."""
    assert (REPOSITORY / "peer" / "keywords.py").read_text() == reference.keywords_source()
    assert (REPOSITORY / "docs" / "options.md").read_text() == reference.options_page()


def test_a_keyword_of_another_function_is_refused():
    with pytest.raises(TypeError, match=r"join\(\) got an unexpected keyword argument 'compress'"):
        peer.join("asdi", compress="zstd")
    with pytest.raises(TypeError, match=r"root\(\) got an unexpected keyword argument 'parents'"):
        peer.root("asdi", parents=2)


def test_the_limits_that_are_repeated_so_that_help_loads_no_dcp_are_dcps():
    for name in ("MAX_LATERAL_EVERY", "MAX_LATERAL_SIBLINGS"):
        assert getattr(options, name) == getattr(dcp.config, name)
