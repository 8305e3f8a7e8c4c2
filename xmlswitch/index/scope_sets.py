"""What is decided at a node: the terms of all scopes that open a frame there, by what was noted in the frame.

A frame is three things. Which paths below the node ended somewhere is a mask: one bit for each set of paths that end
together. Which conditions of nodes further down hold is another mask, of *facts*. And the nodes themselves are kept
where somebody may ask for their values. What both masks settle is remembered by them: most nodes of a document are
like others before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from xmlswitch.index.answers import bits_of, mask_of
from xmlswitch.index.budget import FEW_LOOKS, LOOK_WORK, NODE_WORK
from xmlswitch.index.conjunctions import Block, Bound, Entry, Job, Needs, left, run
from xmlswitch.query.evaluate import string_value

if TYPE_CHECKING:
    from xmlswitch.index.answers import Answer
    from xmlswitch.index.budget import Work
    from xmlswitch.index.columns import ColumnEntry
    from xmlswitch.index.looks import Look
    from xmlswitch.index.paths import Accept, PathEntry
    from xmlswitch.query.atoms import Linear
    from xmlswitch.query.twigs import Twig

_NONE: frozenset[Any] = frozenset()
_OUTLINE_BYTES, _ENTRY_BYTES = 600, 120  # of what is remembered of a frame, and of each thing in it
_MAX_RAISED = 64  # places of which a program knows what to note further up

# Nodes that a frame keeps, by where their paths ended, each with its place in the document.
Kept = dict["Accept", list[tuple[int, Any]]]
# The string-values of elements, by place.
Texts = dict[int, str]
# A condition of nodes that a path leads to.
FactKey = tuple["PathEntry", "Term"]
# At a node, where paths end: in the frame at a depth, which is for these scopes.
Ends = tuple[tuple[int, "ScopeSet", "Accept"], ...]


class Ledger:
    """What all scope sets share: how often terms came and went, what the index may still read of a packet.

    And how many bytes all that they remember takes: at the limit `forget` is called.
    """

    __slots__ = ("_forget", "_max_bytes", "_remembered", "changes", "work")

    def __init__(self, work: Work, max_bytes: int, forget: Callable[[], None]) -> None:
        self.work = work
        self.changes = 0
        self._max_bytes = max_bytes
        self._forget = forget
        self._remembered = 0

    def remember(self, size: int) -> None:
        self._remembered += size
        if self._remembered > self._max_bytes:
            self._remembered = size
            self._forget()


class Term(Entry):
    """Conditions of one place. `uses`: how many terms further up have it as a condition."""

    __slots__ = ("scope", "twig", "uses")

    def __init__(self, scope: Scope, twig: Twig) -> None:
        self.scope = scope
        self.twig = twig
        self.uses = 0
        self.owners = None
        self.bucket = None
        self.place = None
        self.slot = -1


class TermBlock(Block):
    """A block of terms, which may also ask that some node below has a fact, or that none has."""

    __slots__ = ("unwanted", "wanted")

    def __init__(self) -> None:
        super().__init__()
        self.wanted: dict[FactKey, int] = {}
        self.unwanted: dict[FactKey, int] = {}

    def add_term(self, term: Term, needs: Needs, tests: Iterable[Bound], facts: Iterable[tuple[FactKey, bool]]) -> None:
        self.add(term, needs, tests)
        for key, positive in facts:
            held = self.wanted if positive else self.unwanted
            held[key] = held.get(key, 0) | 1 << term.slot

    def take_all(self) -> list[Entry]:
        self.wanted.clear()
        self.unwanted.clear()
        return super().take_all()


class Scope:
    """The terms at one path: those of links, and those that are facts."""

    __slots__ = ("entry", "fact_keys", "facts", "path", "paths", "sets", "terms", "wanted")

    def __init__(self, path: Linear, entry: PathEntry) -> None:
        self.path = path
        self.entry = entry
        self.paths: dict[PathEntry, int] = {}  # below it that its terms name, and how many do
        self.fact_keys: dict[FactKey, int] = {}  # that its terms ask for, and how many do
        self.terms: dict[tuple[Twig, bool], Term] = {}
        self.wanted: list[TermBlock] = []
        self.facts: list[TermBlock] = []
        self.sets: list[ScopeSet] = []

    def hold_fact(self, key: FactKey) -> None:
        self.fact_keys[key] = self.fact_keys.get(key, 0) + 1

    def drop_fact(self, key: FactKey) -> None:
        self.fact_keys[key] -= 1
        if not self.fact_keys[key]:
            del self.fact_keys[key]


class _Outline:
    """What is possible in a frame with these paths; `interest`: the facts that decide more."""

    __slots__ = ("blocks", "interest", "nodes", "programs")

    def __init__(self, nodes: dict[PathEntry, list[Accept]]) -> None:
        self.nodes = nodes  # where a path ended
        self.blocks: list[tuple[TermBlock, int, bool]] = []
        self.interest = 0
        self.programs: dict[int, _Program] = {}


class _Program:
    """What is left to do for a frame with these paths and facts."""

    __slots__ = ("changes", "fact_jobs", "facts", "is_idle", "jobs", "links", "raised")

    def __init__(self) -> None:
        self.links = 0
        self.facts: list[Term] = []
        self.jobs: list[Job] = []
        self.fact_jobs: list[Job] = []
        self.is_idle = False
        self.changes = -1  # of the terms, when `raised` was found
        self.raised: dict[Ends, Sequence[tuple[int, int]]] = {}


class ScopeSet:
    """The scopes that one and the same node opens a frame for."""

    __slots__ = ("_accepts", "_bits", "_fact_bits", "_ledger", "_outlines", "_raises", "is_idle", "relevant", "scopes")

    def __init__(self, scopes: Sequence[Scope], ledger: Ledger) -> None:
        self.scopes = scopes
        self._ledger = ledger
        self.relevant = {path for scope in scopes for path in scope.paths}
        self._bits: dict[Accept, int] = {}
        self._accepts: list[Accept] = []
        self._fact_bits: dict[FactKey, int] = {}
        self._raises: dict[tuple[Accept, Term], int] = {}
        self._outlines: dict[int, _Outline] = {}
        self.is_idle: bool | None = None  # whether a frame in which nothing is noted decides nothing
        for scope in scopes:
            scope.sets.append(self)

    def forget(self) -> None:
        """Its terms changed."""
        self._outlines.clear()
        self._raises.clear()
        self.is_idle = None

    def bit(self, accept: Accept) -> int:
        """What is noted when paths end: 0 where none of these scopes asks for them."""
        bit = self._bits.get(accept)
        if bit is None:
            bit = 0
            if not self.relevant.isdisjoint(accept.paths):
                bit = 1 << len(self._accepts)
                self._accepts.append(accept)
            self._bits[accept] = bit
        return bit

    def keeps(self, accept: Accept) -> bool:
        """Whether somebody may ask for the values of nodes where these paths end."""
        return any(path.columns for path in self.relevant.intersection(accept.paths))

    def _fact_bit(self, key: FactKey) -> int:
        bit = self._fact_bits.get(key)
        if bit is None:
            bit = self._fact_bits[key] = 1 << len(self._fact_bits)
        return bit

    def raised(self, accept: Accept, term: Term) -> int:
        """The facts of a frame of these scopes when a term holds at a node where these paths end."""
        bits = self._raises.get((accept, term))
        if bits is None:
            bits = 0
            keys = {(path, term) for path in self.relevant.intersection(accept.paths)}
            for scope in self.scopes:
                for key in keys & scope.fact_keys.keys():
                    bits |= self._fact_bit(key)
            self._raises[accept, term] = bits
        return bits

    # --- documents ---

    def close(
        self, ends: Ends, noted: int, facts: int, kept: Kept | None, texts: Texts, answer: Answer
    ) -> Sequence[tuple[int, int]]:
        """The walk leaves a node: decide its terms. What to note in the frames further up: where, and which facts."""
        outline = self._outlines.get(noted) or self._outline(noted)
        key = facts & outline.interest
        program = outline.programs.get(key) or self._program(outline, key)
        if program.is_idle:
            return ()
        if program.links:
            answer.mask(program.links)
        raised: Sequence[tuple[int, int]] = self._raise_known(program, ends) if program.facts else ()
        if program.jobs or program.fact_jobs:
            values = _Values(outline.nodes, kept or {}, texts, self._ledger.work)
            held = [job.block.entries[slot] for job in program.fact_jobs for slot in bits_of(left(job, values))]
            if held:
                raised = [*raised, *_raises(ends, held)]  # type: ignore[arg-type]
            if program.jobs:
                run(program.jobs, values, answer)
        return raised

    def _raise_known(self, program: _Program, ends: Ends) -> Sequence[tuple[int, int]]:
        changes = self._ledger.changes
        if program.changes != changes or len(program.raised) >= _MAX_RAISED:
            program.changes = changes
            program.raised.clear()
        raised = program.raised.get(ends)
        if raised is None:
            raised = program.raised[ends] = _raises(ends, program.facts)
        return raised

    def _outline(self, noted: int) -> _Outline:
        nodes: dict[PathEntry, list[Accept]] = {}
        for place in bits_of(noted):
            accept = self._accepts[place]
            for path in self.relevant.intersection(accept.paths):
                nodes.setdefault(path, []).append(accept)
        outline = _Outline(nodes)
        present = set(nodes)
        for scope in self.scopes:
            for held, are_facts in ((scope.wanted, False), (scope.facts, True)):
                for block in held:
                    slots, _ = block.allowed(present, _NONE)
                    if not slots:
                        continue
                    outline.blocks.append((block, slots, are_facts))
                    for asked in (block.wanted, block.unwanted):
                        for key, asking in asked.items():
                            if asking & slots and key[0] in present:
                                outline.interest |= self._fact_bit(key)
        self._ledger.remember(_OUTLINE_BYTES + _ENTRY_BYTES * (len(nodes) + len(outline.blocks)))
        self._outlines[noted] = outline
        return outline

    def _program(self, outline: _Outline, facts: int) -> _Program:
        program = _Program()
        links: list[int] = []
        known = self._fact_bits
        for block, slots, are_facts in outline.blocks:
            for key, asking in block.wanted.items():
                if not known.get(key, 0) & facts:
                    slots &= ~asking
            for key, asking in block.unwanted.items():
                if known.get(key, 0) & facts:
                    slots &= ~asking
            if not slots:
                continue
            job, settled = block.job(slots)
            if job is not None:
                (program.fact_jobs if are_facts else program.jobs).append(job)
            if are_facts:
                program.facts += [block.entries[slot] for slot in bits_of(settled)]  # type: ignore[misc]
            else:
                links += block.links(settled)
        program.links = mask_of(links)
        program.is_idle = not (links or program.facts or program.jobs or program.fact_jobs)
        jobs = len(program.jobs) + len(program.fact_jobs)
        size = _OUTLINE_BYTES + _ENTRY_BYTES * (3 * jobs + len(program.facts)) + program.links.bit_length() // 8
        self._ledger.remember(size)
        outline.programs[facts] = program
        return program

    def find_idle(self) -> bool:
        """Whether a frame in which nothing is noted decides nothing."""
        outline = self._outlines.get(0) or self._outline(0)
        self.is_idle = (outline.programs.get(0) or self._program(outline, 0)).is_idle
        return self.is_idle


def _raises(ends: Ends, terms: Sequence[Term]) -> Sequence[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for at, scopes, accept in ends:
        bits = 0
        for term in terms:
            bits |= scopes.raised(accept, term)
        if bits:
            found.append((at, bits))
    return found


class _Values(dict["ColumnEntry", "Look | list[Look]"]):
    """The values of a frame. `nodes`: where a path ended."""

    __slots__ = ("_kept", "_nodes", "_texts", "_work")

    def __init__(self, nodes: dict[PathEntry, list[Accept]], kept: Kept, texts: Texts, work: Work) -> None:
        self._work = work
        self._nodes = nodes
        self._kept = kept
        self._texts = texts

    def __missing__(self, column: ColumnEntry) -> Look | list[Look]:
        found = self[column] = _read(column, self._nodes.get(column.path), self._kept, self._texts, self._work)
        return found


def _text(place: int, node: Any, texts: Texts, work: Work) -> str:
    """A node's string-value; an element's, which can be long to put together, only once per document."""
    if isinstance(node, str):
        return node
    text = texts.get(place)
    if text is None:
        text = texts[place] = string_value(node)
        work.charge(len(text) + NODE_WORK)
    return text


def _read(column: ColumnEntry, accepts: list[Accept] | None, kept: Kept, texts: Texts, work: Work) -> Look | list[Look]:
    if accepts is None or column.is_muted:
        return column.absent
    if column.first:
        text = _text(*min((kept[accept][0] for accept in accepts), key=lambda pair: pair[0]), texts, work)
        return column.looks.get(text) or column.look(text)
    found: list[Look] = []
    for accept in accepts:
        if len(kept[accept]) > FEW_LOOKS:
            work.charge_column(column, LOOK_WORK * len(kept[accept]))
        for place, node in kept[accept]:
            text = _text(place, node, texts, work)
            found.append(column.looks.get(text) or column.look(text))
    return found[0] if len(found) == 1 else found
