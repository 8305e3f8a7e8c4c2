"""Many XPath queries against one packet: the one place where the pipeline decides what matches.

`compile_queries` is the interface; it is lxml's compiled XPath today. The project's switch (`xmlswitch`) fits behind
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lxml import etree

from pipeline.session import PipelineError

Matcher = Callable[[bytes], set[int]]
"""A packet -> the indexes of the queries that match it. A packet that is no XML matches nothing."""


def compile_queries(queries: Sequence[str], namespaces: dict[str, str] | None = None) -> Matcher:
    """A matcher for these queries. `PipelineError` names the first that is no XPath."""
    compiled = []
    for number, query in enumerate(queries, 1):
        try:
            compiled.append(etree.XPath(f"boolean({query})", namespaces=namespaces or None))
        except etree.XPathSyntaxError as error:
            raise PipelineError(f"query {number} is no XPath ({error}): {query}") from None
    # An archive may hold what anybody sent: no entities, no DTD, no network, no giants.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)

    def match(packet: bytes) -> set[int]:
        try:
            root = etree.fromstring(packet, parser)
        except etree.XMLSyntaxError:
            return set()
        tree = root.getroottree()
        found = set()
        for number, query in enumerate(compiled):
            try:
                if query(tree):
                    found.add(number)
            except etree.XPathEvalError:
                continue  # a function or prefix this query needs is unknown: it can't match
        return found

    return match


def read_queries(text: str) -> list[str]:
    """One query a line; blank lines and lines that begin with # are for people."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
