"""RSS and Atom as a feed: what becomes of a document, when feeds are asked, and a server on loopback."""

from __future__ import annotations

import os
import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from peer.errors import FeedError
from peer.feeds.options import FeedOptions
from peer.feeds.plan import plan_feed
from peer.feeds.rss import RssSource, Unavailable, fetch
from peer.feeds.rss_items import (
    MAX_SEEN,
    BadFeedDocument,
    SeenItems,
    feeds_of_untrusted,
    is_opml_untrusted,
    items_of_untrusted,
)
from peer.feeds.rss_memory import FeedMemory, load_memory, save_memory
from peer.feeds.rss_schedule import MAX_BACKOFF, PolledFeed, Schedule
from tests.peer.cli.inprocess import call_here, root_here
from xmlswitch import Query, Switch

RSS = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>News &amp; more</title>
<item><title>Second</title><link>http://x/2</link><guid>2</guid><category>sky</category><category>air</category>
<description>&lt;b&gt;bold&lt;/b&gt; text</description><pubDate>Mon, 16 Nov 2026 12:00:00 GMT</pubDate></item>
<item><title>First</title><link>http://x/1</link><guid>1</guid></item></channel></rss>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry><id>urn:1</id><title>One</title>
<link href="http://y/1"/><updated>2026-11-16T12:00:00Z</updated><author><name>Ann</name></author>
<category term="sky"/><summary>words</summary></entry></feed>"""
OPML = b"""<opml version="2.0"><body><outline text="a"><outline xmlUrl="%s/a"/></outline><outline xmlUrl="%s/b"/>
<outline xmlUrl="%s/a"/></body></opml>"""


def fields(packet: bytes) -> dict[str, str]:
    return {element.tag: element.text for element in etree.fromstring(packet)}


def test_rss_and_atom_become_items_of_one_shape():
    first, second = items_of_untrusted(RSS, "http://x/rss")
    assert (first[0], fields(first[1])["title"]) == ("1", "First")
    assert fields(second[1]) == {
        "feed": "http://x/rss", "channel": "News & more", "id": "2", "title": "Second", "link": "http://x/2",
        "published": "Mon, 16 Nov 2026 12:00:00 GMT", "category": "air", "summary": "<b>bold</b> text",
    }  # fmt: skip
    (entry,) = items_of_untrusted(ATOM, "http://y/atom")
    assert fields(entry[1]) == {
        "feed": "http://y/atom", "channel": "T", "id": "urn:1", "title": "One", "link": "http://y/1",
        "published": "2026-11-16T12:00:00Z", "author": "Ann", "category": "sky", "summary": "words",
    }  # fmt: skip
    switch: Switch[int] = Switch()
    switch.add_link(0)
    switch.subscribe(0, Query.parse("/item/category = 'sky'"))
    assert [bool(switch.match_mask(packet)) for packet in (first[1], second[1], entry[1])] == [False, True, True]


@pytest.mark.parametrize(
    "document",
    [
        b"", b"<rss", b"<html/>", b"\x00", b"<rss>&x;</rss>",
        b'<!DOCTYPE rss [<!ENTITY x "y">]><rss><channel><item><title>&x;</title></item></channel></rss>',
        b'<!DOCTYPE rss SYSTEM "http://127.0.0.1:1/x.dtd"><rss/>',
        b'<!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]><rss><title>&x;</title></rss>',
        b"<rss>" + b"x" * (5 << 20) + b"</rss>",
    ],
    ids=["empty", "cut off", "HTML", "binary", "entity", "own entity", "DTD", "file", "too long"],
)  # fmt: skip
def test_documents_that_are_no_feed_are_refused(document):
    with pytest.raises(BadFeedDocument):
        items_of_untrusted(document, "u")
    with pytest.raises(BadFeedDocument):
        feeds_of_untrusted(document, "u")


@given(st.binary(max_size=300).map(lambda tail: b"<rss>" + tail))
def test_any_bytes_are_items_or_refused(document):
    try:
        found = items_of_untrusted(document, "u")
    except BadFeedDocument:
        found = []
    assert all(etree.fromstring(packet).tag == "item" for _, packet in found)


def test_opml_lists_feeds_once_each():
    assert feeds_of_untrusted(OPML % (b"h", b"h", b"h"), "feeds.opml") == ["h/a", "h/b"]
    assert is_opml_untrusted(OPML)
    assert not is_opml_untrusted(RSS)


def test_a_list_from_a_server_names_no_files_of_this_machine():
    """Found by reading: a server's list could have a root publish local documents, or hang on a pipe."""
    listed = OPML % (b"https://x", b"file:///etc", b"/etc")
    assert feeds_of_untrusted(listed, "https://x/feeds.opml") == ["https://x/a"]
    assert feeds_of_untrusted(listed, "feeds.opml") == ["https://x/a", "file:///etc/b", "/etc/a"]


def test_a_pipe_is_no_feed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unavailable, match="not a file"):
        fetch(str(tmp_path / "pipe"), {})


def test_items_are_published_once_and_memory_is_bounded():
    seen = SeenItems()
    assert len(list(seen.fresh(items_of_untrusted(RSS, "u")))) == 2
    assert list(SeenItems(seen.names).fresh(items_of_untrusted(RSS, "u"))) == []
    assert len(list(seen.fresh([(str(n), b"") for n in range(2 * MAX_SEEN)]))) == 2 * MAX_SEEN - 2
    assert len(seen.names) == MAX_SEEN


def test_a_feed_that_fails_is_asked_less_and_less_often():
    feed, rng, delays = PolledFeed("u", 300.0), random.Random(1), []
    for _ in range(8):
        feed.failed(retry_after=None, now=0.0, rng=rng)
        delays.append(feed.next_at)
    assert delays[0] < 340 < delays[1] < delays[2]
    assert 0.9 * MAX_BACKOFF <= delays[-1] <= 1.1 * MAX_BACKOFF
    feed.failed(retry_after=7_200.0, now=0.0, rng=rng)
    assert feed.next_at > 6_000
    feed.answered(tag="t", modified="", is_new=True, now=0.0, rng=rng)
    assert feed.next_at < 340
    assert feed.headers() == {"If-None-Match": "t"}


def test_seven_hundred_feeds_are_not_asked_all_at_once():
    schedule = Schedule(300.0, random.Random(1))
    schedule.set_feeds([str(n) for n in range(700)], now=0.0)
    assert 0 < len(schedule.due(6.0)) < 140
    assert len(schedule.due(60.0)) == 700
    schedule.set_feeds(["5", "new"], now=60.0)
    assert set(schedule.feeds) == {"5", "new"}


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        ("rss:", {}, "needs a URL or a file"),
        ("rss:ftp://x/y", {}, "reads http, https and files"),
        ("rss:http://x", {"rate": 5.0}, "takes no --rate"),
        ("rss:http://x", {"poll": 0.1}, "--poll is at least 1 second"),
        ("rss:http://x", {"numbering": "asdi"}, "content or position"),
    ],
)
def test_words_that_make_no_sense_are_one_sentence(source, options, sentence):
    with pytest.raises(FeedError, match=sentence):
        plan_feed(FeedOptions(source=source, **options))


def test_the_words_are_understood():
    plan = plan_feed(FeedOptions(source="rss:http://x/rss", poll=60.0))
    assert (plan.numbering, plan.framing, plan.is_live) == ("content", "xml", True)


# --- a server ---------------------------------------------------------------------------------------------------------


class Site:
    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        self.failing = False
        self.location = ""
        self.url = ""

    def answer(self, path: str, tag: str | None) -> tuple[int, dict[str, str], bytes]:
        if self.failing:
            return 503, {"Retry-After": "7"}, b"later"
        if path == "/moved":
            return 302, {"Location": self.location}, b""
        body = self.pages.get(path)
        if body is None:
            return 404, {}, b""
        own = f'"{hash(body)}"'
        return (304, {}, b"") if tag == own else (200, {"ETag": own}, body)


@contextmanager
def serving():
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, headers, body = site.answer(self.path, self.headers.get("If-None-Match"))
            site.asked.append((self.path, code))
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if code != 304:
                self.wfile.write(body)

        def log_message(self, *arguments) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.net
def test_requests_are_conditional_and_errors_say_when_to_come_again(tmp_path):
    with serving() as site:
        site.pages["/rss"] = RSS
        answer = fetch(site.url + "/rss", {})
        assert answer.body == RSS
        assert fetch(site.url + "/rss", {"If-None-Match": answer.tag}).body is None
        for site.location, reason in (("file:///etc/passwd", "HTTP 302"), ("ftp://127.0.0.1/x", "redirected to ftp")):
            with pytest.raises(Unavailable, match=reason):
                fetch(site.url + "/moved", {})
        site.location = site.url + "/rss"
        assert fetch(site.url + "/moved", {}).body == RSS
        site.failing = True
        with pytest.raises(Unavailable, match="HTTP 503") as caught:
            fetch(site.url + "/rss", {})
        assert caught.value.retry_after == 7.0
    with pytest.raises(Unavailable):
        fetch(site.url + "/rss", {})
    with pytest.raises(Unavailable, match="No such file"):
        fetch(str(tmp_path / "none"), {})


@pytest.mark.net
async def test_only_new_items_are_handed_over_one_packet_each():
    with serving() as site:
        site.pages = {"/a": RSS, "/b": ATOM}
        site.pages["/opml"] = OPML.replace(b"%s", site.url.encode())
        send, receive = trio.open_memory_channel[bytes | None](100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(RssSource(site.url + "/opml", 0.05).run, send)
            with trio.fail_after(30):
                titles = [fields(await receive.receive())["title"] for _ in range(3)]
                assert sorted(titles) == ["First", "One", "Second"]
                while ("/a", 304) not in site.asked:  # noqa: ASYNC110  # a thread answers, and has no event for us
                    await trio.sleep(0.01)
                third = b"<item><title>Third</title><guid>3</guid></item>"
                site.pages["/a"] = RSS.replace(b"<item>", third + b"<item>", 1)
                assert fields(await receive.receive())["title"] == "Third"
            with pytest.raises(trio.WouldBlock):
                receive.receive_nowait()
            nursery.cancel_scope.cancel()


@pytest.mark.net
async def test_a_restart_publishes_only_what_is_new_and_asks_conditionally(tmp_path):
    memory = tmp_path / "feed-news.json"
    with serving() as site, trio.fail_after(30):
        site.pages = {"/a": RSS}
        assert await first_titles(site.url + "/a", memory, 2, 2) == ["First", "Second"]
        assert memory.stat().st_mode & 0o777 == 0o600
        third = b"<item><title>Third</title><guid>3</guid></item>"
        site.pages["/a"] = RSS.replace(b"<item>", third + b"<item>", 1)
        assert await first_titles(site.url + "/a", memory, 1, 3) == ["Third"]


async def first_titles(url: str, memory, count: int, total: int) -> list[str]:
    """A life of the source that ends once it has handed over `count` items and has seen `total`."""
    send, receive = trio.open_memory_channel[bytes | None](0)
    source = RssSource(url, 0.05, memory)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.run, send)
        titles = [fields(await receive.receive())["title"] for _ in range(count)]
        while not memory.exists() or not source._seen[url].names[total - 1 :]:  # noqa: ASYNC110
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    return titles


def test_a_memory_that_is_damaged_or_of_another_feed_is_empty(tmp_path, caplog):
    path = tmp_path / "feed.json"
    assert load_memory(path, "a") == {}
    save_memory(path, "a", {"u": FeedMemory("tag", "", ("1", "2"))})
    assert load_memory(path, "a") == {"u": FeedMemory("tag", "", ("1", "2"))}
    assert load_memory(path, "b") == {}
    assert not caplog.records
    for damage in (b"{", b"[]", b'{"format": "skymesh rss memory v1", "where": "a", "feeds": {"u": {"tag": 1}}}'):
        path.write_bytes(damage)
        assert load_memory(path, "a") == {}
    assert len(caplog.records) == 3


@pytest.mark.net
async def test_a_first_document_that_cannot_be_had_ends_the_feed():
    with serving() as site:
        site.pages["/empty"] = b"<opml/>"
        for path, reason in (("/none", "HTTP 404"), ("/empty", "lists no feeds")):
            send, receive = trio.open_memory_channel[bytes | None](100)
            with pytest.raises(FeedError, match=reason):
                await RssSource(site.url + path, 0.05).run(send)
            receive.close()


@pytest.mark.net
@pytest.mark.slow
def test_a_root_publishes_items_to_those_that_ask_for_them(tmp_path, capfd):
    (tmp_path / "feed.xml").write_bytes(RSS)
    with root_here(f"rss:{tmp_path / 'feed.xml'}", stream="news", poll=1.0, numbering="position") as address:
        done = call_here(
            capfd, "join", "news", "--bootstrap", address, "--no-beacon", "--leaf", "--from", "oldest", "--count", "1",
            "--timeout", "30", "--query", "/item/category = 'sky'",
        )  # fmt: skip
    assert done.code == 0, done
    assert b"<title>Second</title>" in done.out
