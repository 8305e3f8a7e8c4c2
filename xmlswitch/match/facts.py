"""The numbers of a packet that decide what a query may cost on it: from the parsed tree, never from its bytes.

Counting `<` in the bytes is fooled by an encoding in which `<` is another byte. The one number that is about bytes is
the size, which is that of the packet as UTF-8, rounded up: packets of one markup then share verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from lxml import etree

_NODES = etree.XPath("count(//node()) + count(//@*)")
_NAMES = etree.XPath("count(//@*) > 0")
_MAX_DEPTH = 256  # libxml2's own
_UTF8_OF_CHAR = 4
_SIZE_BITS = 3  # sizes are distinguished to an eighth


class Facts(NamedTuple):
    """`depth` counts the document; `fan` is the most children and attributes of a node, texts included.

    `name` is the longest name in bytes, with prefix and namespace. `names` says how many elements have a name, `*` any;
    `@` stands before the names of attributes.
    """

    nodes: int
    depth: int
    fan: int
    size: int
    name: int
    names: Mapping[str, int]


def facts_of(root: Any, size: int) -> Facts:
    """Of a parsed packet. `size`: what `size_of` said of its bytes."""
    names: Counter[Any] = Counter()
    fan = 1
    has_attributes = _NAMES(root)
    for node in root.iter():
        children = len(node)
        attributes = 0
        tag = node.tag
        if isinstance(tag, str):
            names[tag] += 1
            if has_attributes and (keys := node.keys()):
                attributes = len(keys)
                names["@*"] += attributes
                for key in keys:
                    names["@" + key] += 1
        fan = max(fan, 2 * children + 1 + attributes)
    elements = sum(count for name, count in names.items() if name[0] != "@")
    longest = max(map(len, names), default=1)
    if any("{" in name for name in names):
        declared: Any = etree.iterwalk(root, events=("start-ns",))
        longest += max((len(prefix or "") for _, (prefix, _) in declared), default=0)
    names["*"] = elements
    return Facts(int(_NODES(root)) + 2, _depth_of(root) + 2, max(fan, 2), size, _UTF8_OF_CHAR * (longest + 1), names)


def _depth_of(root: Any) -> int:
    """How deep elements are nested: libxml2 looks, level by level would be slower."""
    low, high = 1, 2
    while high < _MAX_DEPTH and _reaches(high)(root):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _reaches(middle)(root):
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=_MAX_DEPTH)
def _reaches(depth: int) -> Any:
    return etree.XPath("boolean(" + "/*" * depth + ")")


def size_of(packet: bytes, root: Any) -> int:
    """Of the packet as UTF-8, rounded up."""
    encoding = (root.getroottree().docinfo.encoding or "UTF-8").upper()
    size = len(packet)
    if encoding.startswith("UTF-16"):
        size = len(packet.decode("utf-16", "replace").encode("utf-8", "replace"))
    elif encoding not in ("UTF-8", "US-ASCII", "ASCII"):
        size += sum(packet.count(bytes([high])) for high in range(128, 256)) if not packet.isascii() else 0
    return size_class(size)


def size_class(size: int) -> int:
    """The size, rounded up so that sizes differ by an eighth or more."""
    shift = max(size.bit_length() - _SIZE_BITS - 1, 0)
    return -(-size >> shift) << shift
