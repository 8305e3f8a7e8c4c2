"""News-sized documents (about 4 KB, 100 elements) and structural queries over them, seeded."""

from __future__ import annotations

import random

SECTIONS = ["politics", "business", "sport", "science", "culture", "world", "local", "weather", "travel", "health"]
WORDS = [
    "market",
    "minister",
    "storm",
    "flight",
    "record",
    "election",
    "rate",
    "court",
    "match",
    "study",
    "price",
    "plan",
    "report",
    "city",
    "border",
]
# Which elements may stand inside which: a news vocabulary with recursion (block, list) and shared names.
INSIDE = {
    "news": ["head", "body", "rights"],
    "head": ["title", "meta", "docdata", "pubdata", "keywords"],
    "docdata": ["id", "date", "urgency", "series", "location"],
    "pubdata": ["name", "date", "edition"],
    "keywords": ["keyword", "keyword", "keyword"],
    "body": ["headline", "byline", "abstract", "content", "end"],
    "headline": ["hl1", "hl2"],
    "byline": ["person", "org", "location"],
    "abstract": ["p", "p"],
    "content": ["block", "block", "p", "media", "table", "list"],
    "block": ["p", "p", "media", "block", "quote", "list", "hl2"],
    "quote": ["p", "person"],
    "media": ["reference", "caption", "credit"],
    "caption": ["p"],
    "table": ["row", "row"],
    "row": ["cell", "cell"],
    "list": ["item", "item"],
    "item": ["p", "list"],
    "p": ["em", "person", "org", "location", "link"],
    "end": ["tagline"],
    "rights": ["owner", "date"],
}
NESTING = {"body", "content", "block", "list", "item", "quote"}
ATTRIBUTES = {
    "meta": ["name", "content"],
    "date": ["norm"],
    "urgency": ["level"],
    "media": ["type", "id"],
    "link": ["href"],
    "block": ["id", "class"],
    "keyword": ["key"],
    "location": ["code"],
    "person": ["role"],
}
VALUES = {
    "level": [str(number) for number in range(1, 9)],
    "key": WORDS,
    "role": ["author", "speaker", "subject", "editor"],
    "type": ["image", "video", "audio"],
    "class": SECTIONS,
    "norm": [f"2001-10-{day:02}" for day in range(1, 29)],
}


def document(rng: random.Random, elements: int = 100) -> bytes:
    budget = [elements]
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_element(rng, "news", 0, budget)}\n'.encode()


def _element(rng: random.Random, name: str, depth: int, budget: list[int]) -> str:
    budget[0] -= 1
    attributes = "".join(f' {key}="{_value(rng, key)}"' for key in ATTRIBUTES.get(name, []) if rng.random() < 0.7)
    inside = ""
    if depth < 9:
        for child in INSIDE.get(name, []):
            if budget[0] > 0 and rng.random() < (0.97 if depth < 3 else 0.72):
                inside += _element(rng, child, depth + 1, budget)
    if name in ("p", "title", "hl1", "hl2", "tagline", "cell", "person", "org", "location", "em", "keyword", "owner"):
        inside = " ".join(rng.choices(WORDS, k=rng.randint(1, 9))) + inside
    return f"<{name}{attributes}>{inside}</{name}>"


def _value(rng: random.Random, key: str) -> str:
    return rng.choice(VALUES.get(key, [f"{key}{rng.randint(1, 40)}"]))


def documents(seed: int, number: int) -> list[bytes]:
    rng = random.Random(seed)
    return [document(rng) for _ in range(number)]


def _walk(rng: random.Random, depth: int, deeper: float = 0.0) -> list[str]:
    """Names from the root down; `deeper` is how often it goes where elements nest without end, if it can."""
    names = ["news"]
    while len(names) < depth and INSIDE.get(names[-1]):
        inside = INSIDE[names[-1]]
        names.append(rng.choice([name for name in inside if name in NESTING and rng.random() < deeper] or inside))
    return names


def linear_query(rng: random.Random) -> str:
    """A path along the vocabulary, with steps left out (`//`) and names hidden (`*`): in some few, in some many."""
    names = _walk(rng, rng.randint(3, 10), deeper=0.8)
    leave_out, hide = rng.choice(((0.1, 0.08), (0.2, 0.15), (0.35, 0.3)))
    text, skipped = "", False
    for number, name in enumerate(names):
        last = number == len(names) - 1
        if not last and rng.random() < leave_out:
            skipped = True
            continue
        text += ("//" if skipped else "/") + ("*" if rng.random() < hide else name)
        skipped = False
    if rng.random() < 0.15:
        text += f"/@{rng.choice(ATTRIBUTES.get(names[-1], ['id']))}"
    return text


def mixed_query(rng: random.Random) -> str:
    """A path with nested path predicates and tests on attributes and texts."""
    names = _walk(rng, rng.randint(3, 7))
    text = ""
    predicates = rng.randint(1, 2)
    for number, name in enumerate(names):
        text += ("//" if rng.random() < 0.15 and number else "/") + ("*" if rng.random() < 0.08 else name)
        if predicates and number and rng.random() < 0.5:
            predicates -= 1
            text += f"[{_predicate(rng, name)}]"
    return text


def predicate_query(rng: random.Random) -> str:
    """A path with one to three tests on values, as YFilter's generator makes them."""
    names = _walk(rng, rng.randint(3, 6))
    places = rng.sample(range(1, len(names)), min(rng.randint(1, 3), len(names) - 1))
    text = ""
    for number, name in enumerate(names):
        text += ("//" if rng.random() < 0.2 else "/") + ("*" if rng.random() < 0.1 else name)
        if number in places:
            key = rng.choice(ATTRIBUTES.get(name, ["id"]))
            operator = rng.choice(["=", "=", "!=", ">=", "<"]) if key in ("level", "id") else "="
            text += f"[@{key} {operator} '{_value(rng, key)}']" if rng.random() < 0.7 else f"[text() = '{_word(rng)}']"
    return text


def nested_query(rng: random.Random) -> str:
    """A path with one to three paths nested in it, one perhaps inside another."""
    names = _walk(rng, rng.randint(3, 6))
    places = rng.sample(range(len(names)), rng.randint(1, 3))
    text = ""
    for number, name in enumerate(names):
        text += ("//" if rng.random() < 0.2 else "/") + ("*" if rng.random() < 0.1 else name)
        if number in places:
            below = _walk_from(rng, name)
            inside = f"[{_walk_from(rng, below.rpartition('/')[2])}]" if rng.random() < 0.25 else ""
            text += f"[{below}{inside}]"
    return text


def _word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def _predicate(rng: random.Random, name: str) -> str:
    key = rng.choice(ATTRIBUTES.get(name, ["id"]))
    below = _walk_from(rng, name)
    chance = rng.random()
    if chance < 0.35:
        return f"@{key} = '{_value(rng, key)}'"
    if chance < 0.6:
        return below
    if chance < 0.8:
        return f"contains({below}, '{rng.choice(WORDS)}')"
    if chance < 0.9:
        return f"{below} = '{rng.choice(WORDS)}'"
    return f"not({below})"


def _walk_from(rng: random.Random, name: str) -> str:
    names = [rng.choice(INSIDE.get(name, ["p"]))]
    while rng.random() < 0.5 and INSIDE.get(names[-1]):
        names.append(rng.choice(INSIDE[names[-1]]))
    return ("" if rng.random() < 0.8 else ".//") + "/".join(names)


KINDS = {"linear": linear_query, "mixed": mixed_query, "predicates": predicate_query, "nested": nested_query}


def queries(seed: int, number: int, kind: str) -> list[str]:
    """`number` different queries of a kind; wildcards make up the number when the vocabulary runs out."""
    rng = random.Random(seed)
    make = KINDS[kind]
    found: dict[str, None] = {}
    while len(found) < number:
        found[make(rng)] = None
    return list(found)
