"""What newcomers type: each gets a sentence that says what to write instead, and good queries get none."""

from __future__ import annotations

import pytest

from bench import _faa, _flights, _news
from xmlswitch import Query, QueryError
from xmlswitch.cli import main
from xmlswitch.query.advice import advise
from xmlswitch.query.hints import hint_for, warnings_for
from xmlswitch.query.known_namespaces import KNOWN, read_namespaces


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/flight/id == 'TWA1'", "single ="),
        ("/flight/altitude => 300", ">="),
        ("/flight/altitude =< 300", "<="),
        ("/flight/id <> 'x'", "!="),
        ("/a && /b", "`and`"),
        ("/flight/id = \u201cTWA1\u201d", "quotes"),
        ("/flight/id = \u2018TWA1\u2019", "quotes"),
        ("/a AND /b", "lower case"),
        ("/flight/id like 'TWA%'", "starts-with"),
        ("/flight/id in ('TWA1', 'TWA2')", "or path ="),
        ("/flight/altitude between 300 and 400", ">="),
        ("startswith(/flight/id, 'TWA')", "starts-with("),
        ("startsWith(/flight/id, 'TWA')", "starts-with("),
        ("!/flight/id", "not("),
    ],
)
def test_what_other_languages_say_gets_a_hint(text, wanted):
    with pytest.raises(QueryError):
        Query.parse(text)
    assert wanted in (hint_for(text) or "")


def test_what_stands_in_quotes_gets_no_hint():
    assert hint_for("/a[ = 'x == y AND z && like'") is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/flight/id = TWA123", "'TWA123'"),
        ("/flight/id = DAL", "'DAL'"),
        ("/flight/id = null", "not(path)"),
        ("/flight/on = true", "'true'"),
        ("not /flight/id", "not(...)"),
        ("/flight/altitude > 30,000", "separators"),
        ("/flight/altitude > '300ft'", "not a number"),
        ("'x'", "every packet"),
        ("''", "no packet"),
        ("position() = 1", "every packet"),
        ("1 = 2", "no packet"),
        ("/a/b || /a/c", "`or`"),
    ],
)
def test_what_is_surely_wrong_gets_a_warning(text, wanted):
    assert any(wanted in warning for warning in warnings_for(Query.parse(text))), warnings_for(Query.parse(text))


def test_queries_that_are_meant_get_no_warning():
    for text in (*_flights.queries(1, 200), *_news.queries(1, 100, "mixed"), "true()", "", "/a = /b", "/a = b"):
        assert warnings_for(Query.parse(text)) == [], text
    for text in _faa.queries(1, 100):
        assert warnings_for(Query.parse(text, _faa.NAMESPACES), _faa.NAMESPACES) == [], text


def test_an_empty_query_is_everything():
    assert Query.parse("").matches_everything
    assert Query.parse(" \n") == Query.parse("true()")


PLAIN = b"<flight><id>TWA1</id><leg status='active'><Altitude>310</Altitude></leg></flight>"
SPACED = b"<r xmlns='urn:s'><airport>KBOS</airport></r>"


@pytest.mark.parametrize(
    ("text", "packet", "wanted"),
    [
        ("//airport = 'KBOS'", SPACED, "`airport` exists here in namespace urn:s; try --namespace s=urn:s"),
        ("/flight/ident", PLAIN, "/flight/ident selects nothing in the sample"),
        ("/flight/status = 'active'", PLAIN, "as an attribute: /flight/leg/@status"),
        ("/flight/leg/altitude > 300", PLAIN, "spelled Altitude"),
        ("/flight/Altitude > 300", PLAIN, "exists here as /flight/leg/Altitude"),
        ("/flight/@id = 'TWA1'", PLAIN, "as an element: /flight/id"),
        ("/flight/@status = 'x'", PLAIN, "exists here at /flight/leg"),
        ("exists(/flight/ident)", PLAIN, "/flight/ident selects nothing"),
    ],
)
def test_a_sample_shows_which_step_selects_nothing(text, packet, wanted):
    advice = advise(Query.parse(text), [packet])
    assert (advice.documents, advice.matched) == (1, 0)
    assert any(wanted in hint for hint in advice.hints), advice.hints


def test_a_sample_counts_what_matches_and_what_is_refused():
    advice = advise(Query.parse("/flight/id = 'TWA1'"), [PLAIN, SPACED, b"<a", PLAIN])
    assert (advice.documents, advice.matched, advice.refused) == (4, 2, 1)
    assert advice.hints == ()
    assert len(advise(Query.parse("/s:r", {"s": "urn:other"}), [SPACED]).hints) == 1


def test_namespaces_come_from_a_file_or_a_known_set(tmp_path, capsys):
    assert set(KNOWN) == {"faa", "fixm"}
    assert read_namespaces('s = "urn:s"') == read_namespaces('[namespaces]\ns = "urn:s"') == {"s": "urn:s"}
    for broken in ("s = 1", "s =", 's = ""', "namespaces = 3"):
        with pytest.raises(ValueError, match=r"TOML|must be"):
            read_namespaces(broken)
    file, document = tmp_path / "own.toml", tmp_path / "document.xml"
    file.write_text('s = "urn:s"')
    document.write_bytes(SPACED)
    assert main(["match", "//s:airport = 'KBOS'", str(document), "--namespaces", str(file)]) == 0
    assert "1: //s:airport" in capsys.readouterr().out
    file.write_text("s = 1")
    assert main(["match", "/s:a", str(document), "--namespaces", str(file)]) == 2
    assert "must be a text" in capsys.readouterr().err
    assert main(["explain", "//nxce:airport", "--namespaces", "faa"]) == 0


def test_query_files_have_comments(tmp_path, capsys):
    queries, document = tmp_path / "queries", tmp_path / "document.xml"
    queries.write_text("# flights over the sea\n/flight/id = 'TWA1'\n\n   # and others\n/flight == 1\n")
    document.write_bytes(PLAIN)
    assert main(["match", "--queries", str(queries), str(document)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{document}: 2: /flight/id = 'TWA1'\n"
    assert "line 5" in err
    assert "hint: equality is a single =" in err
