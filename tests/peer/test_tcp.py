"""TCP out: everybody who is connected gets every packet, and a slow reader hurts only itself."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from peer.tcp import TcpOut
from xmlswitch import parse_document

pytestmark = pytest.mark.net
PATIENCE = 40.0


@asynccontextmanager
async def running(out: TcpOut):
    async with trio.open_nursery() as nursery:
        host, port = await nursery.start(out.serve, "127.0.0.1", 0)
        yield host, port
        nursery.cancel_scope.cancel()


async def connect(address, out: TcpOut, readers: int) -> trio.SocketStream:
    stream = await trio.open_tcp_stream(*address)
    await until(lambda: out.statistics.readers == readers)
    return stream


async def until(condition) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await trio.sleep(0.005)


async def read(stream: trio.SocketStream, end: bytes) -> bytes:
    data = b""
    with trio.fail_after(PATIENCE):
        while not data.endswith(end):
            data += await stream.receive_some()
    return data


async def test_documents_are_lines_or_end_with_nul():
    for separator, expected in ((b"\n", b"<a> <b/></a>\n<c/>\n"), (b"\0", b"<a>\n<b/></a>\0<c/>\0")):
        out = TcpOut(separator=separator)
        async with running(out) as address:
            first = await connect(address, out, 1)
            second = await connect(address, out, 2)
            out.send([b"<a>\n<b/></a>", b"<c/>"])
            for stream in (first, second):
                assert await read(stream, b"<c/>" + separator) == expected
                await stream.aclose()


UTF_16_TEXT = "<?xml version='1.0' encoding='UTF-16'?>\n<a>\u0a15\u010a\r\nĀ</a>"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("separator", [b"\n", b"\0"])
async def test_a_document_in_utf_16_is_not_damaged(encoding, separator):
    """Found: the byte of a line end was replaced inside U+0A15 and U+010A, and every zero byte was taken for an end."""
    out = TcpOut(separator=separator)
    async with running(out) as address:
        stream = await connect(address, out, 1)
        out.send([UTF_16_TEXT.encode(encoding), b"<c/>"])
        first, second, rest = (await read(stream, b"<c/>" + separator)).split(separator)
        await stream.aclose()
    assert (second, rest) == (b"<c/>", b"")
    assert parse_document(first).text.split() == ["\u0a15\u010a", "Ā"]


@pytest.mark.parametrize("payload", [b"\xff\xfe\x00", "<a>\u010a</a>".encode("utf-32"), b"<a>\xe9</a>", b"\0<\xd8\0"])
async def test_what_is_not_utf_16_goes_out_as_it_is(payload):
    out = TcpOut(separator=b"\r")
    async with running(out) as address:
        stream = await connect(address, out, 1)
        out.send([payload])
        assert await read(stream, b"\r") == payload + b"\r"
        await stream.aclose()


async def test_a_slow_reader_is_cut_off_and_the_others_never_notice():
    out = TcpOut(max_queue=50)
    packet = b"<p>" + b"x" * 10_000 + b"</p>"
    async with running(out) as address:
        fast = await connect(address, out, 1)
        slow = await connect(address, out, 2)
        got = 0
        sent = 0
        # The slow one reads nothing: its socket's buffers fill, then its queue, and then it is cut off.
        while not out.statistics.too_slow:
            out.send([packet])
            sent += len(packet) + 1
            while got < sent:
                with trio.fail_after(PATIENCE):
                    got += len(await fast.receive_some())
        out.send([b"<end/>"])
        assert (await read(fast, b"<end/>\n")) == b"<end/>\n"
        assert out.statistics.readers == 1
        assert out.statistics.too_slow == 1
        await fast.aclose()
        await slow.aclose()


async def test_readers_are_bounded_and_leave_when_they_break():
    out = TcpOut(max_readers=1)
    async with running(out) as address:
        first = await connect(address, out, 1)
        second = await trio.open_tcp_stream(*address)
        with trio.fail_after(PATIENCE):
            assert await second.receive_some() == b""
        assert out.statistics.refused == 1
        first.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await first.aclose()  # a reset, not a farewell
        await until(lambda: out.statistics.readers == 0)
        await second.aclose()


async def test_a_reader_that_says_nothing_more_still_reads():
    out = TcpOut()
    async with running(out) as address:
        stream = await connect(address, out, 1)
        await stream.send_eof()
        out.send([b"<a/>"])
        assert await read(stream, b"\n") == b"<a/>\n"
        await stream.aclose()


def test_limits_are_at_least_one():
    with pytest.raises(ValueError, match="at least one"):
        TcpOut(max_queue=0)
