"""IPv6: whatever is printed can be read again, and a mesh on [::1] works with the commands that it prints itself."""

from __future__ import annotations

import re
import shlex
import socket

import pytest
import trio

import peer
from dht.addresses import endpoint_text, parse_endpoint
from peer.errors import FeedError
from peer.feeds.plan import parse_tcp
from peer.listening import default_listen
from peer.optionspec import address
from tests.peer.cli.command import PATIENCE, REPOSITORY, root
from tests.peer.cli.inprocess import call_here


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[::1]:4600", ("::1", 4600)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ("[::ffff:192.0.2.1]:65535", ("::ffff:192.0.2.1", 65535)),
        ("192.0.2.1:0", ("192.0.2.1", 0)),
        ("seed.example.org:4700", ("seed.example.org", 4700)),
    ],
)
def test_an_address_that_is_shown_can_be_read_again(text, found):
    for read in (parse_endpoint, address, lambda word: parse_tcp(word, f"tcp://{word}")):
        assert read(text) == found
    assert endpoint_text(found) == text
    assert endpoint_text((*found, 0, 0)) == text


@pytest.mark.parametrize(
    "text",
    ["::1:4600", "::1", "[::1]", "[::1]:", "[::1]:x", "[::1]:65536", "[::1:4600", "::1]:1", "[192.0.2.1]:1", "[]:1",
     "host", "host:", "host:-1", "host:٣", "host:000001", "a:b:1", "[[::1]]:1", ""],
)  # fmt: skip
def test_a_wrong_address_is_refused_by_every_reader(text):
    for read in (parse_endpoint, address):
        with pytest.raises(ValueError, match=r"HOST:PORT|\[::1\]:4700"):
            read(text)
    with pytest.raises(FeedError, match=r"tcp://"):
        parse_tcp(text, f"tcp://{text}")


def test_nobody_puts_an_address_together_by_hand():
    """Found: `demo`, `bench` and an error of dcp wrote ::1:4600, which nobody can read."""
    by_hand = re.compile(r"""f["'][^"'\n]*\{(?:\w+\.)*(?:\w+\[0\]|host)\}:\{""")
    assert by_hand.search('f"{address[0]}:{address[1]}"')
    folders = [REPOSITORY / name for name in ("bench", "dcp", "demo", "dht", "peer", "pipeline", "xmlswitch")]
    found = [
        (str(path.relative_to(REPOSITORY)), line.strip())
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for line in path.read_text().splitlines()
        if by_hand.search(line)
    ]
    assert {name for name, _ in found} == {"dht/addresses.py"}, found


def test_every_interface_can_be_named_by_the_port_alone():
    assert address(":9000") == ("0.0.0.0", 9000)
    assert parse_tcp(":9000", "tcp-listen://:9000") == ("", 9000)
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_endpoint(":9000")


@pytest.mark.parametrize(
    ("bootstrap", "listen"),
    [
        ([], "127.0.0.1"),
        ([("127.0.0.1", 1)], "127.0.0.1"),
        ([("localhost", 1)], "127.0.0.1"),
        ([("::1", 1)], "::1"),
        ([("::1", 1), ("127.0.0.1", 1)], "::"),
        ([("192.0.2.1", 1)], "0.0.0.0"),
        ([("2001:db8::1", 1)], "::"),
        ([("seed.example.org", 1)], "0.0.0.0"),
    ],
)
def test_a_peer_listens_where_it_can_reach_what_it_is_to_begin_with(bootstrap, listen):
    assert default_listen(bootstrap) == (listen, 0)


@needs_ipv6
@pytest.mark.net
async def test_packets_go_from_a_root_through_a_router_over_ipv6():
    async with (
        peer.root("feed", listen=("::1", 0), capacity=1, beacon=False) as top,
        peer.join("feed", bootstrap=[top.address], parents=1, start="oldest", beacon=False) as router,
    ):
        assert router.address[0] == "::1"
        with trio.fail_after(PATIENCE):
            await router.wait_parents(1)
        reach = {"bootstrap": [router.address], "parents": 1, "capacity": 0, "start": "oldest"}
        async with peer.join("feed", beacon=False, **reach) as leaf:
            await top.send(b"<a/>")
            with trio.fail_after(PATIENCE):
                await leaf.wait_parents(1)
                async for item in leaf:
                    if isinstance(item, peer.Packet):
                        break
            assert item == peer.Packet(1, b"<a/>")
            (parent,) = leaf.statistics().parents
            assert parent.address == endpoint_text(router.address)


@needs_ipv6
@pytest.mark.net
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_root_on_every_interface_is_reached_by_either_family(host):
    async with peer.root("feed", listen=("::", 0), beacon=False) as top:
        port = top.address[1]
        async with peer.join("feed", bootstrap=[(host, port)], parents=1, beacon=False) as leaf:
            with trio.fail_after(PATIENCE):
                await leaf.wait_parents(1)
                await top.send(b"<a/>")
                async for item in leaf:
                    if isinstance(item, peer.Packet):
                        break


@needs_ipv6
@pytest.mark.net
@pytest.mark.slow
@pytest.mark.xdist_group("cli")
def test_a_root_on_ipv6_is_joined_with_the_command_that_it_prints(capfd):
    with root("--feed", "demo:45", "--listen", "[::1]:0") as (running, where):
        assert re.fullmatch(r"\[::1\]:\d+", where)
        command = shlex.split(running.says("join it with: ").partition("join it with: skymesh ")[2])
        done = call_here(capfd, *command, "--no-beacon", "--count", "2", "--timeout", str(PATIENCE), "--parents", "1")
        assert (done.code, len(done.out.splitlines())) == (0, 2), done.err
        reach = ("--roots-key", "asdi", "--no-beacon", "--bootstrap", where)
        done = call_here(capfd, "status", *reach)
        assert done.code == 0
        assert where in done.out.decode()
        assert "does not answer" not in done.out.decode()
    done = call_here(capfd, "join", *reach, "--find-timeout", "0.3")
    assert f"nobody answered at {where}" in done.err
