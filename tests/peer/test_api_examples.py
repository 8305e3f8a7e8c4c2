"""Every example of docs/api.md is run as it stands, but for the address of the mesh; and the page lists every name."""

from __future__ import annotations

import inspect
import re
import subprocess

import pytest

import peer
from peer import api, blocking, guest
from tests.peer.cli.command import REPOSITORY, STRICT
from tests.peer.display import qt_application, tk_display
from tests.peer.meshthread import fed_root

pytestmark = [pytest.mark.net, pytest.mark.slow, pytest.mark.xdist_group("processes")]

PAGE = (REPOSITORY / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"^## ([^\n]+)$|```python\n(.*?)```", PAGE, flags=re.MULTILINE | re.DOTALL)


def titled_examples() -> list[tuple[str, str]]:
    title, found = "", []
    for heading, code in EXAMPLES:
        if heading:
            title = heading
        else:
            found.append((title, code))
    return found


@pytest.fixture(scope="module")
def mesh_port():
    with fed_root() as root:
        yield root.address[1]


@pytest.mark.parametrize(("title", "code"), titled_examples(), ids=[title for title, _ in titled_examples()])
def test_example(title, code, mesh_port, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "PySide6" in code:
        qt_application()  # it stands for those that the examples make: a process has only one
        code = code.replace("= QApplication([])", "= QApplication.instance()")
        code = code.replace("= QCoreApplication([])", "= QCoreApplication.instance()")
    found = 'bootstrap=[("127.0.0.1", 4000)]', '"bootstrap": [("127.0.0.1", 4000)]'
    assert any(text in code for text in found) or "beacon=False" in code, "an example must say where its mesh is"
    code = code.replace(found[0], f'bootstrap=[("127.0.0.1", {mesh_port})], beacon=False')
    code = code.replace(found[1], f'"bootstrap": [("127.0.0.1", {mesh_port})], "beacon": False')
    if "tkinter" in code:
        with tk_display() as environment:
            subprocess.run([*STRICT, "-c", code], cwd=REPOSITORY, env=environment, timeout=100, check=True)
        return
    exec(compile(code, f"docs/api.md: {title}", "exec"), {"__name__": "__main__"})
    if "print" in code:
        assert capsys.readouterr().out.strip()


def test_the_page_lists_exactly_the_public_names():
    listed = re.findall(r"`(\w+)`", PAGE[PAGE.index("\n## Names") :].replace("`reason`, `text`, `position`", ""))
    rows = [name for name in listed if name != "events"]
    assert sorted(rows) == sorted(peer.__all__)
    assert all(getattr(peer, name) is not None for name in peer.__all__)
    with pytest.raises(AttributeError, match="no attribute 'mesh_of_mine'"):
        _ = peer.mesh_of_mine


def test_every_face_takes_the_options_of_join_and_root():
    faces = (api.join, blocking.join, blocking.listen, guest.join_qt, guest.join_tk)
    for face in faces:
        assert inspect.signature(face).parameters["keywords"].annotation == "Unpack[JoinKeywords]"
    for face in (api.root, blocking.root):
        assert inspect.signature(face).parameters["keywords"].annotation == "Unpack[RootKeywords]"


def test_every_member_that_the_page_names_is_there():
    for kind in (blocking.Stream, blocking.Listener, blocking.Publisher):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `blocking.{kind.__name__}` |"))
        for name in re.findall(r"`(\w+)(?:\(\w+\))?`", row.split("|")[2]):
            assert hasattr(kind, name), (kind, name)
    for name in ("change_query", "statistics", "close", "is_closed", "finish"):
        assert hasattr(guest.GuestStream, name)
    fields = re.search(r"`Statistics` has (.*?), and a", PAGE, flags=re.DOTALL)
    assert fields is not None
    for name in re.findall(r"`(\w+)`", fields.group(1)):
        assert hasattr(peer.Statistics, name), name
