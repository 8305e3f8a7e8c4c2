"""The query languages of streams: XPath over XML, predicates over records, and what applications register.

A language is a `xmlswitch.Profile` with a `parse` method. All peers of a stream use the same one (`--language`,
`language=`); a query of another is refused where it arrives. A package adds one by an entry point in the group
`skymesh.languages`, a program by `register_language`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from dcp import EVERYTHING, PayloadRefused
from peer.envelope import Envelope
from peer.queries import OWN, XPathPolicy
from xmlswitch import RECORD, MalformedDocument, MalformedQuery, Profile, Query, QueryError, Switch

if TYPE_CHECKING:
    from peer.standing import StandingQuery

GROUP = "skymesh.languages"
MARK = b"\xf5"
"""The first byte of a query that is not XPath, before the name of its language and a zero byte."""
MAX_NAME_BYTES = 32


class QueryLanguage(Profile[Any], Protocol):
    """What an application implements: match, merge, covers and index of `xmlswitch.Profile`, and this."""

    def parse(self, text: str) -> Any:
        """`QueryError` for a text that is not a query."""


class Language(Protocol):
    """A language as a peer uses it."""

    def parse(self, text: str, namespaces: Mapping[str, str]) -> StandingQuery: ...
    def policy(self, envelope: Envelope, clock: Callable[[], float] | None = None) -> XPathPolicy: ...


class _XPath:
    def parse(self, text: str, namespaces: Mapping[str, str]) -> StandingQuery:
        return Query.parse(text, namespaces)

    def policy(self, envelope: Envelope, clock: Callable[[], float] | None = None) -> XPathPolicy:
        return XPathPolicy(envelope, clock=clock)


@dataclass(frozen=True, slots=True)
class _Other:
    language: QueryLanguage

    def parse(self, text: str, namespaces: Mapping[str, str]) -> StandingQuery:
        if namespaces:
            raise QueryError(f"queries in the language {self.language.name} have no namespaces")
        return LanguageQuery(self.language, self.language.parse(text))

    def policy(self, envelope: Envelope, clock: Callable[[], float] | None = None) -> XPathPolicy:
        return LanguagePolicy(self.language, envelope, clock=clock)


_REGISTERED: dict[str, QueryLanguage] = {RECORD.name: RECORD}


def register_language(language: QueryLanguage) -> None:
    """Let streams of this program use it, by its name. ValueError for a name that is taken."""
    name = language.name
    if not name.isascii() or not name.isidentifier() or len(name) > MAX_NAME_BYTES:
        raise ValueError(f"the name of a language is 1 to {MAX_NAME_BYTES} letters, digits and _, got {name!r}")
    if name == "xpath" or _REGISTERED.get(name, language) is not language:
        raise ValueError(f"language {name} is already registered")
    _REGISTERED[name] = language


def language_named(name: str) -> Language:
    """ValueError for one that nobody has registered or installed."""
    if name == "xpath":
        return _XPath()
    if name not in _REGISTERED:
        from importlib import metadata

        for entry in metadata.entry_points(group=GROUP, name=name):
            register_language(entry.load())
    if name not in _REGISTERED:
        known = ", ".join(["xpath", *sorted(_REGISTERED)])
        raise ValueError(f"language must be one of {known}, or one that a package adds, got {name!r}")
    return _Other(_REGISTERED[name])


@dataclass(frozen=True)
class LanguageQuery:
    """A query that is not XPath. Satisfies `StandingQuery`."""

    language: QueryLanguage
    query: Any

    @property
    def canonical(self) -> str:
        return self.language.encode(self.query).decode("utf-8", "replace")

    @property
    def matches_everything(self) -> bool:
        return self.language.matches_everything(self.query)

    @property
    def travels(self) -> bool:
        return True

    def need(self) -> LanguageQuery:
        return self

    def encode(self) -> bytes:
        return MARK + self.language.name.encode() + b"\0" + self.language.encode(self.query)


class _Slots:
    """Of a switch: one query per child, in the slot beside its own."""

    def __init__(self, switch: Switch[Any]) -> None:
        self._switch = switch
        self._open: set[int] = set()

    def __contains__(self, slot: int) -> bool:
        return slot in self._open

    def open(self, slot: int, query: Any) -> None:
        self._switch.add_link(slot, slot=slot + 1)
        self._switch.subscribe(slot, query)
        self._open.add(slot)

    def close(self, slot: int) -> None:
        self._switch.remove_link(slot)
        self._open.discard(slot)

    def spread(self, mask: int) -> int:
        return mask >> 1

    def cut_off(self, slot: int) -> int:
        return self._switch.cut_off(slot)


class LanguagePolicy(XPathPolicy):
    """`dcp.QueryPolicy` for a language that is not XPath. A packet that it can't read matches no query."""

    def __init__(
        self, language: QueryLanguage, envelope: Envelope | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(envelope, clock=clock)
        self.language = language
        self.switch = cast("Any", Switch(language, clock=clock))
        self._slots = cast("Any", _Slots(cast("Any", self.switch)))
        self._prefix = MARK + language.name.encode() + b"\0"
        self.nothing = None

    def _decoded_untrusted(self, token: bytes) -> Any:
        if not token.startswith(self._prefix):
            raise MalformedQuery(f"this stream's queries are in the language {self.language.name}")
        try:
            return self.language.decode_untrusted(token[len(self._prefix) :])
        except (QueryError, MalformedQuery):
            raise
        except Exception as error:  # an application's code, on a stranger's bytes
            raise MalformedQuery(f"not a query in the language {self.language.name}: {error}") from None

    def text_of(self, token: bytes) -> str:
        return LanguageQuery(self.language, self._decoded_untrusted(token)).canonical

    def watch(self, query: StandingQuery | None) -> None:
        if self._watched is not None:
            self.switch.remove_link(OWN)
        self._watched = None
        if isinstance(query, LanguageQuery) and not query.matches_everything:
            self.switch.add_link(OWN, slot=0)
            self.switch.subscribe(OWN, query.query)
            self._watched = query

    def check(self, query: bytes) -> str | None:
        try:
            if query != EVERYTHING:
                self._decoded_untrusted(query)
        except (QueryError, MalformedQuery) as error:
            return str(error)
        return None

    def matches(self, query: bytes, payload: bytes) -> bool:
        if query == EVERYTHING:
            return True
        try:
            return self.language.matches(self.envelope.look_untrusted(payload), self._decoded_untrusted(query))
        except (MalformedDocument, PayloadRefused):
            self.unreadable += 1
            return False

    def covers(self, outer: bytes, inner: bytes) -> bool:
        if outer in (EVERYTHING, inner):
            return True
        if inner == EVERYTHING:
            return False
        return self.language.covers(self._decoded_untrusted(outer), self._decoded_untrusted(inner))

    def merged(self, tokens: Iterable[bytes]) -> bytes:
        """A query that matches whatever one of these does."""
        queries = [self._decoded_untrusted(token) for token in sorted(tokens)]
        if not queries:
            return EVERYTHING
        merged = LanguageQuery(self.language, self.language.merge(queries))
        return EVERYTHING if merged.matches_everything else merged.encode()

    def switch_of(self, query: StandingQuery | None) -> Switch[Any] | None:
        if not isinstance(query, LanguageQuery) or query.matches_everything:
            return None
        switch: Switch[Any] = Switch(self.language, exact=True)
        switch.add_link(0, slot=0)
        switch.subscribe(0, query.query)
        return switch

    def open_slot(self, slot: int, query: bytes) -> None:
        self._slots.open(slot, self._decoded_untrusted(query))

    def parts(self, old: bytes | None, new: bytes) -> list[bytes] | None:
        return None  # queries go whole

    def read_part(self, part: bytes) -> None:
        return None

    def joined(self, old: bytes | None, parts: list[Any]) -> None:
        return None
