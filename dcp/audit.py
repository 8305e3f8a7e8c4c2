"""Checking what parents say against each other, after the stream has moved on (rules L5, L6, L7).

The first copy of a packet wins at once, and so does a lie. But in the end every parent has to make a complete statement
about every stretch. What it has not said by itself, because we asked it to skip that or because it was lost, it is
asked for as numbers alone (an index), every `audit_interval`. A packet that an index lists and that we lack is fetched;
one that somebody left out is held against them (`verdicts`). How far all parents have spoken and agree is what we call
settled, and what a router tells its own children.

With a single parent there is nothing to compare, but others may come soon, and are asked about what it said: the book
is closed only after `ALONE_SECONDS`. A byte stream has nothing that could be left out. After a change of the query the
old book is kept until it is settled, or for `PREVIOUS_QUERY_SECONDS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dcp.child import MAX_PREVIOUS_QUERIES, PREVIOUS_QUERY_SECONDS
from dcp.config import Config
from dcp.control import MAX_FETCHES, MAX_INDEX_RANGES, Index, Range
from dcp.evidence import Account, Book
from dcp.parent import Parent
from dcp.reach import Reach
from dcp.verdicts import OMITTED, Verdicts

# A packet that was listed, and did not come after so many requests: this parent does not deliver.
MAX_FETCHES_OF_ONE = 3
# An index that did not come for so long: this parent does not answer.
UNANSWERED_SECONDS = 5.0
# What is settled is remembered a little longer: a router's correction may have been lost, and comes again.
REMEMBERED_SECONDS = 3.0
# How long a single parent's words are kept for others that may come: a join or a repair takes no longer.
ALONE_SECONDS = 5.0


class Asking(Protocol):
    def ask_index(self, parent: Parent, epoch: int, ranges: list[Range]) -> None: ...

    def fetch(self, parent: Parent, epoch: int, ans: list[int]) -> None: ...

    def recall(self, parent: Parent, epoch: int, query: bytes) -> None: ...


class Audit:
    def __init__(
        self,
        config: Config,
        parents: Mapping[int, Parent],
        reach: Reach,
        verdicts: Verdicts,
        *,
        is_needed: bool,
        query: Callable[[], bytes],
    ) -> None:
        """`is_needed`: whether anything can be left out of this kind of stream."""
        self.book: Book | None = None
        """Of the query in force; None while there is nothing to compare."""
        self.previous: list[Book] = []
        """Of queries before it, the oldest first."""
        self.settled = 0
        """How far our parents have spoken about everything, and agree."""
        self.index_requests = 0
        self.fetched = 0
        self._forgotten = 0  # in books that are closed
        self._config = config
        self._parents = parents
        self._reach = reach
        self._verdicts = verdicts
        self._is_needed = is_needed
        self._query = query
        self._asked_until = 0
        self._alone_since: float | None = None
        self._alone: int | None = None
        """The link of the only parent, if it has been the only one for long: nothing of it is kept."""
        self._agreed: deque[tuple[float, int]] = deque()
        self._held: int | None = None
        """Nothing after this position is forgotten: what was said about it is to be compared with others' words."""

    # --- when there is something to compare ---------------------------------------------------------------------------

    def parents_changed(self, epoch: int, position: int | None) -> None:
        """A parent was added or is up, or the stream has begun: what they say is kept from here on.

        They need not be up yet: what one of them says meanwhile is compared when the other is there.
        """
        if position is None or not self._is_needed:
            return
        up = [parent for parent in self._parents.values() if parent.up]
        is_wanted = len(self._parents) > 1 or self._held is not None or self._alone not in self._parents
        if self.book is None and self._parents and is_wanted:
            self._alone_since = None
            if self._alone not in self._parents:
                self._alone = None
            self.book = Book(epoch, position)
            self._asked_until = position
            self._agreed.clear()
        if self.book is not None:
            for parent in up:
                if parent.confirmed_epoch == epoch:
                    self.book.account(parent.link.id)

    def hold(self, epoch: int, position: int) -> None:
        """Keep all words about what follows `position`, a single parent's too, until `release`."""
        self._held = position
        self.parents_changed(epoch, position)

    def release(self) -> None:
        self._held = None

    @property
    def patience(self) -> float:
        """How long it takes at most until what is held against a parent has been judged."""
        return self._config.unsettled_after + self._config.dispute_after

    def accused_of(self, ans: Sequence[int]) -> dict[int, list[int]]:
        """Which of these each parent said are not there, by its link."""
        accounts = self.book.accounts if self.book is not None else {}
        found = {link: [an for an in ans if an in account.accused] for link, account in accounts.items()}
        return {link: left_out for link, left_out in found.items() if left_out}

    def dispute(self, accused: Mapping[int, Sequence[int]]) -> None:
        """Report parents that left out packets, and were not convicted: they have corrected themselves."""
        for link, ans in accused.items():
            parent = self._parents.get(link)
            if parent is not None and not parent.is_convicted:
                self._verdicts.dispute(parent, list(ans), OMITTED)

    def lacks(self, an: int, position: int) -> bool:
        """Whether we went past this packet, under the query in force, as if it were not there."""
        return self.book is not None and self.book.lacks(an, position)

    def begin(self) -> None:
        """The stream begins, perhaps again: nothing that was said before counts."""
        self._close(self.book, *self.previous)
        self.book = None
        self.settled = 0

    def switch(self, epoch: int, position: int | None, query: bytes, now: float) -> None:
        """Another query is in force after `position`. `query` is the one before."""
        book = self.book
        if book is None or position is None:
            self.book = None
            return
        if position > book.low:  # else nothing was passed under it that could have been left out
            if len(self.previous) >= MAX_PREVIOUS_QUERIES:
                self._close(self.previous[0])
            book.end(position, query, now + PREVIOUS_QUERY_SECONDS)
            self.previous.append(book)
        self.book = Book(epoch, position)
        self._asked_until = position
        self._agreed.clear()
        self.parents_changed(epoch, position)

    def _close(self, *books: Book | None) -> None:
        for book in books:
            if book is not None:
                self._forgotten += book.forgotten
                if book in self.previous:
                    self.previous.remove(book)

    def previous_epoch(self, bits: int) -> int | None:
        """The epoch before the present one that these four bits stand for, while its book is open."""
        return next((book.epoch for book in self.previous if book.epoch & 15 == bits), None)

    def book_of(self, epoch: int) -> Book | None:
        if self.book is not None and self.book.epoch == epoch:
            return self.book
        return next((book for book in self.previous if book.epoch == epoch), None)

    @property
    def unchecked(self) -> int:
        """ANs that were forgotten, for lack of room, before all parents had spoken about them."""
        books = self.previous if self.book is None else [*self.previous, self.book]
        return self._forgotten + sum(book.forgotten for book in books)

    # --- every now and then -------------------------------------------------------------------------------------------

    def look(self, position: int, asking: Asking, now: float) -> None:
        """Compare, ask, settle and judge."""
        self._verdicts.look_for_leaps(now)
        book = self.book
        if book is not None:
            self.parents_changed(book.epoch, position)
            self._look_at(book, position, self._asked_until, asking, now)
            self._verdicts.judge(book, self._query(), now)
            self._asked_until = position
            self._forget_settled(book, now)
        for previous in list(self.previous):
            assert previous.until is not None
            for link, parent in self._parents.items():
                if link not in previous.accounts and parent.up and parent.settled is not None:
                    previous.account(link).knows_query = False
            self._look_at(previous, position, previous.until, asking, now)
            self._verdicts.judge(previous, previous.query, now)
            if now >= previous.closes_at or self._is_settled(previous, now):
                self._close(previous)
        self._settle(position, now)
        self._close_if_alone(position, now)

    def _close_if_alone(self, position: int, now: float) -> None:
        book = self.book
        if len(self._parents) > 1:
            self._alone_since = self._alone = None
        elif self._held is not None:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif book is not None and now - self._alone_since > ALONE_SECONDS and self._has_nothing_left(book, position):
            self._close(book)
            self.book = None
            self._alone = next(iter(self._parents), None)

    def _look_at(self, book: Book, position: int, until: int, asking: Asking, now: float) -> None:
        for link in [link for link in book.accounts if link not in self._parents]:
            del book.accounts[link]
        for link, account in book.accounts.items():
            parent = self._parents[link]
            book.compare(account, position, now)
            if parent.up and parent.settled is not None:  # an earlier version knows no index
                self._ask(book, account, parent, until, asking, now)

    def _ask(self, book: Book, account: Account, parent: Parent, until: int, asking: Asking, now: float) -> None:
        """An index of what it has not spoken about, as far as it has it; and the packets that it owes."""
        ranges = account.ledger.unspoken(min(until, parent.head), MAX_INDEX_RANGES)
        if not ranges:
            account.unanswered_since = None
        elif account.unanswered_since is not None and now - account.unanswered_since > UNANSWERED_SECONDS:
            for start, end in ranges:  # given up: it neither holds anybody up nor says anything
                account.ledger.say_hole(start, end)
            account.unanswered_since = None
        else:
            if account.unanswered_since is None:
                account.unanswered_since = now
            self.index_requests += 1
            if not account.knows_query:
                asking.recall(parent, book.epoch, book.query)
            asking.ask_index(parent, book.epoch, ranges)
        wanted: list[int] = []
        for an, owed in list(account.owed.items()):
            if owed.fetches >= MAX_FETCHES_OF_ONE or now - owed.since > UNANSWERED_SECONDS:
                del account.owed[an]
                account.ledger.unsay([an])
                account.ledger.say_hole(an - 1, an)
            elif len(wanted) < MAX_FETCHES:
                owed.fetches += 1
                wanted.append(an)
        if wanted:
            asking.fetch(parent, book.epoch, wanted)

    def hear_index(self, parent: Parent, index: Index, position: int, asking: Asking, now: float) -> None:
        """A parent lists what it has of a stretch that we passed."""
        book = self.book_of(index.epoch)
        account = book.accounts.get(parent.link.id) if book is not None else None
        if book is None or account is None or parent.is_convicted:
            return
        account.unanswered_since = None
        account.knows_query = True
        until = position if book.until is None else book.until
        if index.until > until:
            return  # never asked for
        lacking = book.listed_in_index(account, index.start, index.until, index.ans, position)
        fresh = [an for an in lacking if an not in account.owed][:MAX_FETCHES]
        for an in fresh:
            account.owe(an, now)
            if an in account.owed:
                account.owed[an].fetches += 1
        if fresh:
            self.fetched += len(fresh)
            asking.fetch(parent, index.epoch, fresh)

    # --- how far all agree --------------------------------------------------------------------------------------------

    def _settle(self, position: int, now: float) -> None:
        """Rule L7: up to where each parent that counts has spoken about everything, and is itself settled.

        One parent's word alone settles nothing while others may come: a router that was frozen hears a liar first, and
        its children would hold against it what it had no chance to compare. Nor is anything settled by one that says
        nothing about it, as an earlier version does: what was settled before still is.
        """
        book = self.book
        words = [position]
        speaking = 0
        for link, parent in self._parents.items():
            if not parent.up or parent.is_convicted:
                continue
            if book is not None and not self._reach.counts(parent, book.epoch, now):
                continue
            words.append(parent.settled or 0)
            if book is not None and link in book.accounts:
                speaking += 1
                words.append(book.accounts[link].spoken_until)
        if book is not None and speaking < 2 and (len(self._parents) > 1 or self._alone not in self._parents):
            return
        for previous in self.previous:
            words += [account.spoken_until for account in previous.accounts.values()]
        self.settled = max(self.settled, min(words))

    def _is_settled(self, book: Book, now: float) -> bool:
        """Whether nothing is open about a query that is over, and was not for as long as a correction may take."""
        assert book.until is not None
        is_open = any(
            account.accused or account.owed or min(account.spoken_until, self._agreed_by(link, account)) < book.until
            for link, account in book.accounts.items()
        )
        if is_open:
            book.settled_at = None
        elif book.settled_at is None:
            book.settled_at = now
        return book.settled_at is not None and now - book.settled_at >= REMEMBERED_SECONDS

    def _forget_settled(self, book: Book, now: float) -> None:
        """What every parent has spoken about, and calls settled itself, was compared: a little later it can go."""
        if len(self._parents) <= 1:
            return  # with one parent nothing was compared
        agreed = min((self._agreed_by(*each) for each in book.accounts.items()), default=book.low)
        self._agreed.append((now, agreed))
        while self._agreed and self._agreed[0][0] <= now - REMEMBERED_SECONDS:
            agreed = self._agreed.popleft()[1]
            book.forget(agreed if self._held is None else min(agreed, self._held))

    def _agreed_by(self, link: int, account: Account) -> int:
        settled = self._parents[link].settled
        agreed = account.checked if settled is None else min(account.checked, settled)
        return min(agreed, min(account.owed) - 1) if account.owed else agreed

    def _has_nothing_left(self, book: Book, position: int) -> bool:
        return not self.previous and all(
            account.spoken_until >= position and not account.accused for account in book.accounts.values()
        )
