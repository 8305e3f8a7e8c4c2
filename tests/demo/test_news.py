"""The news application: real peers, a real web server, and a verdict that can fail."""

from __future__ import annotations

import json
from random import Random

import pytest

from demo.cli import main
from demo.news.mesh import Reader, pick
from demo.news.site import ITEMS_PER_FEED, MEAN_FEED_BYTES, NewsSite

SMALL = ("news", "--feeds", "20", "--readers", "2", "--routers", "1", "--picks", "3", "--json")
QUICK = (*SMALL, "--rate", "8", "--poll", "1", "--seconds", "1")


def test_feeds_are_picked_by_the_law_of_zipf():
    rng = Random(1)
    picks = [pick(700, 5, rng) for _ in range(400)]
    assert all(len(each) == 5 for each in picks)
    often = [sum(feed in each for each in picks) for feed in (0, 4, 30)]
    assert often[0] > 2 * often[1] > 4 * often[2] > 0


def test_the_site_is_as_large_as_the_paper_s_and_owes_nobody_what_nobody_saw():
    site = NewsSite(700, Random(7))
    assert site.mean_bytes == pytest.approx(MEAN_FEED_BYTES, rel=0.1)
    one = NewsSite(1, Random(7))
    _, headers, _ = one.answer("/feed/0.xml", None)
    assert one.answer("/feed/0.xml", headers["ETag"])[0] == 304
    for _ in range(ITEMS_PER_FEED + 2):
        one.add_item()
    owed = [name for name, item in one.items.items() if item.is_owed]
    assert len(owed) == 2 * ITEMS_PER_FEED
    assert [name for name in one.items if name not in owed] == ["0-11", "0-12"]
    assert one.answer("/feed/1.xml", None)[0] == one.answer("/", None)[0] == 404


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_every_reader_gets_the_items_of_its_feeds(capsys):
    assert main(QUICK) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["kept"]
    assert verdict["items"] == 20 * ITEMS_PER_FEED + 8
    assert verdict["delivered"] >= 2 * 3 * ITEMS_PER_FEED
    assert verdict["unchanged"] > 0


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_a_reader_that_misses_items_breaks_the_verdict(capsys, monkeypatch):
    monkeypatch.setattr(Reader, "query", lambda self, site: f"/item/feed = '{site.feed_url(min(self.picks))}'")
    monkeypatch.setattr("demo.news.mesh.PATIENCE", 0.0)
    assert main(QUICK) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert not verdict["kept"]
    assert verdict["missing"] >= 2 * 2 * ITEMS_PER_FEED


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--feeds", "0"), "--feeds must be in 1..10000, got 0"),
        (("--feeds", "3", "--picks", "4"), "--picks 4 is more than there are feeds (3)"),
        (("--poll", "nan"), "--poll must be in 1..3600 seconds, got nan"),
    ],
)
def test_a_wrong_call_is_one_sentence(words, sentence, capsys):
    assert main(("news", *words)) == 2
    assert capsys.readouterr().err == f"demo: {sentence}\n"
