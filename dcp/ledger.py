"""One parent's words, kept by its child (rule L5): which stretches it has spoken about, and which ANs it listed there.

A parent *says* (prev, until] with some ANs: exactly these match the query of this epoch. It may also say that it will
never supply a stretch (a hole): then it has spoken about it, and nothing can be held against it there. What a parent
says later adds to what it said before: an AN that it lists is there, whatever it claimed earlier. That is how a router
corrects itself (rule L8).

Pure, and bounded: at most `MAX_STRETCHES` stretches of each kind, the farthest forgotten first, and `MAX_ANS` numbers,
the oldest forgotten first. What is forgotten is as if it had not been said; the owner asks for it again, or has given
it up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from dcp.control import Range
from dcp.stretches import MAX_STRETCHES, Stretches

# As many as a parent's log holds: older ones it can't supply anyway.
MAX_ANS = 65_536


class Ledger:
    __slots__ = ("ans", "floor", "holes", "said")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """Nothing at or below this position is asked of it, or held against it."""
        self.said = Stretches()
        self.holes = Stretches()
        self.ans: list[int] = []
        """What it listed, in order."""

    # --- what it says -------------------------------------------------------------------------------------------------

    def say(self, prev: int, until: int, ans: Sequence[int]) -> None:
        """In (prev, until] exactly these match. The usual claim follows the one before: that costs almost nothing."""
        if prev < self.floor:
            prev, ans = self.floor, ans[bisect_right(ans, self.floor) :]
            if until <= prev:
                return
        said = self.said
        ends = said.ends
        if ends and said.starts[-1] <= prev <= ends[-1]:
            if until > ends[-1]:
                ends[-1] = until
        else:
            said.add(prev, until)
            if len(said) > MAX_STRETCHES:
                said.forget_last()
        if ans:
            listed = self.ans
            if not listed or ans[0] > listed[-1]:
                listed.extend(ans)
            else:
                self._list(ans)
            if len(listed) > MAX_ANS:
                self.forget(listed[len(listed) - MAX_ANS * 7 // 8])

    def _list(self, ans: Sequence[int]) -> None:
        listed = self.ans
        for an in ans:
            index = bisect_left(listed, an)
            if index == len(listed) or listed[index] != an:
                listed.insert(index, an)

    def say_hole(self, start: int, end: int) -> None:
        """It will never supply (start, end]."""
        self.holes.add(max(start, self.floor), end)
        if len(self.holes) > MAX_STRETCHES:
            self.holes.forget_last()

    def unsay(self, ans: Sequence[int]) -> None:
        """It listed these, and we lack them: about each of them alone it has not spoken until it brings them."""
        for an in ans:
            index = bisect_left(self.ans, an)
            if index < len(self.ans) and self.ans[index] == an:
                del self.ans[index]
            if self.said.has(an):
                self._cut(an)

    def _cut(self, an: int) -> None:
        said = self.said
        index = bisect_left(said.ends, an)
        start, end = said.starts[index], said.ends[index]
        pieces = [(a, b) for a, b in ((start, an - 1), (an, end)) if a < b]
        said.starts[index : index + 1] = [a for a, _ in pieces]
        said.ends[index : index + 1] = [b for _, b in pieces]

    # --- what follows from it -----------------------------------------------------------------------------------------

    def lists(self, an: int) -> bool:
        index = bisect_left(self.ans, an)
        return index < len(self.ans) and self.ans[index] == an

    def is_empty_at(self, an: int) -> bool:
        """It has said that `an` is not there."""
        return an > self.floor and self.said.has(an) and not self.lists(an)

    def listed(self, start: int, end: int) -> list[int]:
        """The ANs that it listed in (start, end]."""
        ans = self.ans
        return ans[bisect_right(ans, start) : bisect_right(ans, end)]

    def tail_from(self, position: int) -> int:
        """How far it says that nothing matches from `position` on."""
        end = self.said.end_from(position)
        if end > position:
            ans = self.ans
            index = bisect_right(ans, position)
            if index < len(ans) and ans[index] <= end:
                return ans[index] - 1
        return end

    def quiet_since(self, prev: int) -> int:
        """From where on it has said, up to `prev`, that nothing matches: its next claim reaches back so far."""
        start = self.said.start_of(prev)
        if start < prev:
            ans = self.ans
            index = bisect_right(ans, prev)
            if index and ans[index - 1] > start:
                return ans[index - 1]
        return start

    def hole_at(self, position: int) -> bool:
        """It has said that it will not supply what follows `position`."""
        return self.holes.end_from(position) > position

    def spoken_until(self, position: int) -> int:
        """How far it has spoken about everything from `position` on, claims and holes together."""
        said, holes = self.said, self.holes
        while True:
            end = said.end_from(position)
            if holes.starts:
                end = holes.end_from(end)
            if end == position:
                return position
            position = end

    def unspoken(self, end: int, most: int) -> list[Range]:
        """The first stretches up to `end` that it has said nothing about."""
        found: list[Range] = []
        for start, until in self.said.missing(self.floor, end):
            found += self.holes.missing(start, until) if self.holes.starts else [(start, until)]
            if len(found) >= most:
                break
        return found[:most]

    def forget(self, below: int) -> None:
        """Everything at or below a position is settled, or given up."""
        if below <= self.floor:
            return
        self.floor = below
        self.said.forget(below)
        self.holes.forget(below)
        del self.ans[: bisect_right(self.ans, below)]
