"""RSS and Atom documents as items, each a small XML document of one shape, and OPML as a list of feeds.

    <item><feed>URL</feed><channel>..</channel><id>..</id><title>..</title><link>..</link><published>..</published>
    <author>..</author><category>..</category>...<summary>..</summary></item>

So one XPath serves RSS 0.9x, 1.0, 2.0 and Atom. What is not there is left out. Documents come from anybody: entities,
DTDs and the network are off, and everything has a limit.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import sha256

from lxml import etree

SCHEMES = ("http://", "https://")
MAX_DOCUMENT_BYTES = 4 << 20
MAX_ITEMS = 1_000
"""Items of one document that are looked at."""
MAX_TEXT_BYTES = 32 << 10
"""Of one field; a longer one is cut."""
MAX_CATEGORIES = 32
MAX_FEEDS = 10_000
MAX_SEEN = 2_000
NAME_DIGITS = 24
"""Items of one feed that are remembered as published; feeds show a few dozen at a time."""
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# Where each field is, by local name: RSS first, then Atom and Dublin Core.
_FIELDS = {
    "id": ("guid", "id"),
    "title": ("title",),
    "link": ("link",),
    "published": ("pubDate", "published", "date", "updated"),
    "author": ("author", "creator"),
    "summary": ("description", "summary", "content", "encoded"),
}


class BadFeedDocument(ValueError):
    """A document that is not RSS, Atom or OPML, or that does more than one should."""


def items_of_untrusted(document: bytes, url: str) -> list[tuple[str, bytes]]:
    """Identity and packet of each item, from the last to the first: feeds begin with the newest."""
    root = _parse_untrusted(document)
    if _local(root) not in ("rss", "RDF", "feed"):
        raise BadFeedDocument(f"expected RSS or Atom, got <{_local(root)[:40]}>")
    found = [e for e in root.iter() if isinstance(e.tag, str) and _local(e) in ("item", "entry")][:MAX_ITEMS]
    channel = next((e for e in root.iter() if isinstance(e.tag, str) and _local(e) == "title"), None)
    title = _text(channel) if channel is not None else ""
    return [_item(element, url, title) for element in reversed(found)]


def feeds_of_untrusted(document: bytes, where: str) -> list[str]:
    """The feeds that an OPML document lists, each once. One that came from a server names no files of this machine."""
    root = _parse_untrusted(document)
    if _local(root) != "opml":
        raise BadFeedDocument(f"expected OPML, got <{_local(root)[:40]}>")
    urls = [e.get("xmlUrl", "") for e in root.iter("outline")]
    if where.startswith(SCHEMES):
        urls = [url for url in urls if url.startswith(SCHEMES)]
    return list(dict.fromkeys(url for url in urls if url))[:MAX_FEEDS]


def is_opml_untrusted(document: bytes) -> bool:
    return _local(_parse_untrusted(document)) == "opml"


def _parse_untrusted(document: bytes) -> etree._Element:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise BadFeedDocument(f"at most {MAX_DOCUMENT_BYTES} bytes are read")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
    )
    try:
        root = etree.fromstring(document, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise BadFeedDocument(f"not XML: {str(error)[:120]}") from None
    if root.getroottree().docinfo.doctype:
        raise BadFeedDocument("a DOCTYPE is not accepted")
    return root


def _local(element: etree._Element) -> str:
    return etree.QName(element).localname


def _text(element: etree._Element) -> str:
    """All text below, without markup, with one space between words."""
    text = " ".join("".join(element.itertext(with_tail=False)).split())
    return _NOT_XML.sub("", text).encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def _item(element: etree._Element, url: str, channel: str) -> tuple[str, bytes]:
    children: dict[str, list[etree._Element]] = {}
    for child in element:
        if isinstance(child.tag, str):
            children.setdefault(_local(child), []).append(child)
    values = {"feed": url, "channel": channel}
    for field, names in _FIELDS.items():
        first = next((children[name][0] for name in names if name in children), None)
        if first is not None:
            values[field] = first.get("href") or _text(first) if field == "link" else _text(first)
    packet = etree.Element("item")
    for field in ("feed", "channel", *_FIELDS):
        if field == "summary":
            for category in children.get("category", [])[:MAX_CATEGORIES]:
                etree.SubElement(packet, "category").text = _clean(category.get("term") or _text(category))
        if values.get(field):
            etree.SubElement(packet, field).text = _clean(values[field])
    data = etree.tostring(packet)
    identity = values.get("id") or values.get("link") or sha256(data).hexdigest()
    return identity, data


def _clean(text: str) -> str:
    return _NOT_XML.sub("", text)[:MAX_TEXT_BYTES]


class SeenItems:
    """Which items of one feed were published, by short hashes. The oldest is forgotten beyond `MAX_SEEN`."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict.fromkeys(seen)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._seen)

    def fresh(self, items: list[tuple[str, bytes]]) -> Iterator[bytes]:
        """The packets of those that were not there before, each once. One counts as seen when the next is asked for."""
        for identity, packet in items:
            name = sha256(identity.encode(errors="replace")).hexdigest()[:NAME_DIGITS]
            if name not in self._seen:
                yield packet
            self._seen[name] = None
            self._seen.move_to_end(name)
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
