"""Hostile queries, the same in every run: texts that once stopped a peer, or that somebody would try.

`hostile_queries()` is for all packages: join, Children, records, the command line and the page must answer or refuse
each of them quickly. Hand-written texts first, then families of growing size. XPath 1.0 and 3.1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

Hostile = tuple[str, dict[str, str]]
_NONE: dict[str, str] = {}
_SIZES = (3, 20, 47, 64, 200, 900)

_BY_HAND: list[Hostile] = [
    (text, _NONE)
    for text in (
        "",
        " ",
        "\x00",
        "/",
        "//",
        "/" * 500,
        "..",
        "." * 999,
        "[",
        "]]]]",
        "'",
        '"unclosed',
        "$x",
        "$" * 100,
        "/a = '\x01'",
        "/a = '\x0b\x0c'",
        "/a = '\ufffe'",
        "/a = '\ud800'",
        "/a = '\udfff\ud800'",
        "/a = '\x85\u2028'",
        "/\u00e9\u00e8 = '\U0001f600'",
        "/\U0001f600",
        "/a\u0300\u0301",
        "\ufeff/a",
        "/a\u200b/b",
        "/\u202ea",
        "/a[1e999]",
        "/a = 1e999",
        "/a < " + "9" * 5000,
        "/a < 0." + "0" * 5000 + "1",
        "/a = -" + "9" * 400,
        "1 div 0 = /a",
        "-1 div 0 < /a",
        "0 div 0 != /a",
        "/a mod 0 = /a",
        "number('" + "9" * 4000 + "') = /a",
        "id('a b c d')/..",
        "id(//*)",
        "id(id(id(id(//*))))",
        "id(concat(/, ' ', /, ' ', /))",
        "lang('en')",
        "//*[lang('" + "e" * 4000 + "')]",
        "//namespace::*",
        "//*/namespace::node()[. = //namespace::*]",
        "count(//namespace::*) > count(//*)",
        "processing-instruction('" + "p" * 3000 + "')",
        "name(//*[last()]) = name(//*)",
        "local-name(/) = namespace-uri(//@*)",
        "//*[not(not(not(not(//*))))]",
        "string(//*) = string(//*[string(//*) = string(.)])",
        "//*[. = //*]",
        "//* = //*",
        "//node() = //node()",
        "//* != //*",
        "//* < //*",
        "sum(//*) = sum(//node())",
        "count(//*[count(//*) = count(.//*)]) > 0",
        "//*[position() = last()][position() = last()][last()]",
        "//*[position() mod 2 = 1][position() mod 3 = 2]",
        "//*[count(preceding::*) = count(following::*)]",
        "//*[following::*[preceding::*]]",
        "//*/ancestor::*/descendant::*/ancestor::*",
        "//*/preceding::*/following::*",
        "//preceding::node()/following::node()/preceding::node()",
        "(//*)[(//*)[(//*)]]",
        "((((//*)[1])[1])[1])[1]",
        "//*[../../../..//*]",
        "//@*/..//@*/..//@*",
        "translate(/, /, /)",
        "translate(concat(/, /), concat(/, /), concat(/, /)) = /",
        "contains(/, concat(/, 'x'))",
        "contains(concat(/, /, /, /), concat(/, /, /))",
        "substring-before(/, substring-after(/, /)) = /",
        "string-length(concat(/, /, /, /, /, /, /, /)) > 0",
        "normalize-space(concat(/, ' ', /)) = normalize-space(/)",
        "starts-with(//*, //*)",
        "(1 = 2) = (3 = 4) = //*",
        "boolean(//*) = (//* = //*)",
        "round(-0.5) = floor(//*) + ceiling(//*)",
        "not(/a) and not(/a) or not(/a) and /a",
        "true() or false() and doc('x')",
        "document('http://127.0.0.1/x')",
        "/a | 1",
        "count(1)",
        "f(1)",
        "/a/b/c::d",
        "child::child::child",
        "and and and",
        "or or or or or",
        "div div div mod mod",
        "* * * * *",
        "*[*[*[*]]] * *[*]",
        "/a[",
        "/a[]",
        "/a[b",
        "concat('a')",
        "concat(" + ", ".join(["/"] * 64) + ")",
        "concat(" + ", ".join(["/"] * 65) + ")",
        "- - - - - - -/a",
        "-" * 2100 + "1",
        "/a/@*/@*/@*",
        "/self::node()/self::node()[self::node()]",
        "/descendant-or-self::node()/descendant-or-self::node()/descendant-or-self::node()",
        "/a/text()/text()/../text()",
        "/comment()/comment()",
        "xml:a",
        "/xml:lang",
        "/a:b",
        "/a:*",
        "/*:b",
        "Q{urn:x}a",
        "/Q{}a",
    )
]

_NAMESPACES: list[Hostile] = [
    ("/p:a", {"p": uri})
    for uri in (
        "",
        " ",
        "x}y",
        "{",
        "}",
        "{}",
        "a b",
        "\x00",
        "\n",
        "\ud800",
        "\uffff",
        "u" * 3000,
        "http://www.w3.org/XML/1998/namespace",
        "http://www.w3.org/2000/xmlns/",
        "urn:skymesh:xmlswitch",
        "http://www.w3.org/2005/xpath-functions",
        "urn:x'",
        'urn:x"',
        "urn:<x>",
        "urn:&amp;",
        "\u00e9",
    )
]
_NAMESPACES += [
    ("/sm:a", {"sm": "urn:x"}),
    ("/n1:a/n2:b", {"n1": "urn:b", "n2": "urn:a"}),
    ("/p:a", {"p": "urn:x", "": "urn:y"}),
    ("/a", {"": "urn:y"}),
    ("/p:a", {}),
    ("/p:a", {"P": "urn:x"}),
    ("/p:a", {"p": "urn:x", **{f"q{n}": f"urn:{n}" for n in range(100)}}),
    (" | ".join(f"/q{n}:a" for n in range(60)), {f"q{n}": f"urn:{n}" for n in range(60)}),
    ("/p:a/p:*/@p:x[p:y]", {"p": "urn:x"}),
    ("sm:compare(/, false(), '<', 5)", {"sm": "urn:skymesh:xmlswitch"}),
]

_LATER: list[Hostile] = [
    (text, _NONE)
    for text in (
        "round(5, -999999999) = 0 or exists(1 to 2)",
        "round(5, 999999999) = 0",
        "round-half-to-even(//a, -99999999999) = 1",
        "round(/a, xs:integer(/b)) = 1",
        "matches(/a, '" + "a?" * 40 + "a" * 40 + "')",
        "matches(/a, '(a+)+$')",
        "matches(/a, '(a*)*b')",
        "matches(/a, '(a|a)*b')",
        "matches(/a, '" + "(a|aa)" * 30 + "b')",
        "matches(/a, '" + ".*" * 30 + "b')",
        "matches(/a, 'a{1,99999}{1,99999}')",
        "matches(/a, '((((((a)))))){9}')",
        "matches(/a, '[')",
        "matches(/a, '\\p{Lu}{500}')",
        "matches(/a, /b)",
        "tokenize(/a, '" + "a?" * 30 + "') = 'x'",
        "replace(" * 3 + "'aaaa'" + ", 'a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaa')" * 3 + " = ''",
        "replace('" + "a" * 99 + "', 'a', '" + "b" * 4000 + "') = ''",
        "replace(/a, '.', '$0$0$0$0$0$0$0$0') = replace(/a, '.', '$0$0$0$0$0$0$0$0')",
        "count(1 to 1000000000) > 1",
        "count(1 to 9999) > 1 and exists(1 to 9999)",
        "sum(for $a in 1 to 9999, $b in 1 to 9999 return $a * $b) = 1",
        "some $a in 1 to 9999, $b in 1 to 9999 satisfies $a + $b = 0",
        "every $a in 1 to 9999 satisfies $a idiv 7 = $a",
        "(1 to 9999) = (1 to 9999)[. = 10000]",
        "distinct-values(1 to 9999) = 0",
        "index-of(1 to 9999, 7) = 0",
        "sort(reverse(1 to 9999)) = 0",
        "string-join((1 to 9999) ! 'aaaaaaaaaaaaaaaaaaaaaaaaaaa', '') = ''",
        "string-join((1 to 9999) ! '" + "a" * 5000 + "', '') = ''",
        "deep-equal(1 to 9999, 1 to 9999)",
        "let $a := 9, $b := $a * $a, $c := $b * $b, $d := $c * $c return $d > 1",
        "let $a := '"
        + "x" * 900
        + "', $b := concat($a, $a, $a, $a, $a, $a, $a, $a) return concat($b, $b, $b, $b) = ''",
        "9999999999999999999 * 9999999999999999999 * 9999999999999999999 = 0",
        "1 eq " + "9" * 5000,
        "xs:integer('" + "9" * 5000 + "') eq 1",
        "xs:decimal('1E999999') eq 1",
        "xs:double('1e999') eq 1",
        "1e999 eq 1e9999999",
        "xs:dateTime('999999999999-01-01T00:00:00Z') eq xs:dateTime('2026-01-01T00:00:00Z')",
        "xs:duration('P99999999999999Y') eq xs:duration('P1Y')",
        "year-from-dateTime(xs:dateTime('2026-01-01T00:00:00Z') + xs:dayTimeDuration('P99999999D')) = 1",
        "codepoints-to-string(1 to 9999) = 'x'",
        "string-to-codepoints('" + "x" * 4000 + "') = 7",
        "normalize-unicode('" + "\u0300" * 4000 + "') = 'x'",
        "doc('file:///etc/passwd')",
        "unparsed-text('file:///etc/passwd') = ''",
        "collection()",
        "environment-variable('HOME') = ''",
        "parse-xml('<a/>')",
        "parse-json('[[[[[]]]]]')",
        "function($x) { $x }(1)",
        "apply(doc#1, ['x'])",
        "function-lookup(xs:QName('fn:doc'), 1)",
        "fold-left(1 to 9999, 0, function($a, $b) { $a + $b }) = 0",
        "for-each(1 to 9999, function($x) { $x }) = 0",
        "map { 'a' : 1 }?a = 1",
        "array { 1 to 9999 }?* = 1",
        "random-number-generator()?number > 0",
        "current-dateTime() = 0",
        "generate-id() = ''",
        "format-number(1, '" + "#" * 4000 + "') = ''",
        "serialize(/) = ''",
        "path(/) = ''",
        "innermost(//*) = outermost(//*)",
        "//*[. is //*]",
        "//* << //*",
        "//*[every $x in //* satisfies $x = .]",
        "compare(/a, 'b', 'de_DE.UTF-8') = 1",
        "/a eq /b eq /c",
        "/a instance of element(*, xs:untyped)*",
        "/a treat as empty-sequence()",
        "if (/a) then",
        "for $x in",
        "(: " * 400 + " :)" * 400 + " /a eq 1",
        "(: unclosed /a eq 1",
        "/a ! /a ! /a ! /a ! /a",
        "/a => b() => c()",
    )
]


def _deep() -> Iterator[str]:
    for size in _SIZES:
        yield "(" * size + "/a" + ")" * size
        yield "(" * size
        yield "/a" + "[b" * size + "]" * size
        yield "/a" + "[b = 1 + 1 or c" * size + "]" * size
        yield "not(" * size + "/a" + ")" * size
        yield "concat(/, " * size + "/" + ")" * size
        yield "concat(/, /, " * size + "/" + ")" * size
        yield "translate(" * size + "/" + ", /, /)" * size
        yield "substring-after(" * size + "/" + ", 'a')" * size
        yield "normalize-space(" * size + "/" + ")" * size
        yield "(/)[. < " * size + "5" + "]" * size
        yield "sum((/)[" * size + "/" + "])" * size + " > 1"
        yield "count(//*[" * size + "." + "])" * size + " > 1"
        yield "id(" * size + "'x'" + ")" * size
        yield "string(" * size + "/a" + ")" * size + " = 'x'"
        yield "number(" * size + "/a" + ")" * size + " = 1"
        yield "-(" * size + "1" + ")" * size
        yield "//*[1]" * size
        yield "//*[last()][" * size + "1" + "]" * size
        yield "//*[count(preceding::*[" * size + "1" + "])]" * size


def _long() -> Iterator[str]:
    for size in _SIZES:
        for op in ("+", "-", "*", " div ", " mod ", "=", "!=", "<", ">="):
            yield op.join(["1"] * size)
            yield op.join(["/a"] * size)
        for op in (" or ", " and ", " | "):
            yield op.join(f"/a{n}" for n in range(size))
            yield op.join(f"//*[x{n}]" for n in range(size))
        yield " or ".join(f"(/a{n} and /b{n})" for n in range(size))
        yield " and ".join(f"(/a{n} or //b{n})" for n in range(size))
        yield " and ".join(f"(/a{n} | //b{n}) = {n}" for n in range(size))
        yield "/a" * size
        yield "//a" * size
        yield "//*" * size
        yield "/.." * size
        yield "/ancestor::*" * size
        yield "/following::*/preceding::*" * size
        yield "//*/preceding-sibling::*/following-sibling::*" + "/.." * size
        yield "/a" + "[b]" * size
        yield "/a" + "[1]" * size
        yield "//*" + "[position() > 1]" * size
        yield "//*" + "[. = //*]" * size
        yield "/a = '" + "x" * size * 8 + "'"
        yield "contains(//*, '" + "ab" * size * 4 + "')"
        yield "translate(//*, '" + "ab" * size * 3 + "', '" + "ba" * size + "') = 'x'"
        yield "concat(" + ", ".join(["//*"] * min(size, 64)) + ") = 'x'"
        yield "//" + "n" * size * 8
        yield "//*[" + " or ".join(f"contains(translate(., '{n % 10}', 'x'), '{n}')" for n in range(size)) + "]"
        yield "//*[" + " and ".join(f"not(@a{n})" for n in range(size)) + "]"
        yield " or ".join(f"//*[a{n}][b{n}]/c[d]" for n in range(size))
        yield "+" * size
        yield "/a eq " * size + "1"
        yield " eq 1 or ".join(["/a"] * size) + " eq 1"
        yield "/a ! " * size + "1"
        yield "/a => string()" + " => string()" * size
        yield "if (/a) then 1 else " * size + "2"
        yield "let $a := 1 return " * size + "$a"
        yield "for $a in //* return " * size + "$a"
        yield "exists(" * size + "/a" + ")" * size
        yield "matches(/a, '" + "(" * size + "a" + ")" * size + "')"
        yield "matches(/a, '" + "a?" * size + "')"
        yield "(" + ", ".join(["1"] * size) + ") = /a"


_WORDS = [
    *(
        "/",
        "//",
        "/a",
        "//*",
        "[",
        "]",
        "(",
        ")",
        ".",
        "..",
        "@",
        "@*",
        "*",
        "|",
        "+",
        "-",
        "=",
        "!=",
        "<",
        ">=",
        "and",
        "or",
    ),
    *(
        "not(",
        "concat(",
        "count(",
        "'x'",
        '"y"',
        "1",
        "-1",
        "0.5",
        ",",
        "::",
        "ancestor::",
        "self::",
        "$x",
        "preceding::",
    ),
    *("position()", "last()", "string(", "sum(", "translate(", "id(", "text()", "node()", "p:a", "eq", "to", "!", "=>"),
    *("for", "if", "then", "else", "some", "satisfies"),
]


def _noise() -> Iterator[str]:
    rng = random.Random(14)
    for _ in range(120):
        yield " ".join(rng.choice(_WORDS) for _ in range(rng.choice((3, 10, 40, 300))))
    for _ in range(30):
        yield "".join(
            chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) for _ in range(rng.choice((5, 50, 500)))
        )


def hostile_queries() -> list[Hostile]:
    """Texts with their namespaces; none of them twice."""
    generated = [(text, _NONE) for family in (_deep(), _long(), _noise()) for text in family]
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Hostile] = {}
    for text, namespaces in _BY_HAND + _NAMESPACES + _LATER + generated:
        found.setdefault((text, tuple(namespaces.items())), (text, namespaces))
    return list(found.values())
