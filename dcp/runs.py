"""When the numbering of a stream has begun again below our position: a root was restarted and did not know its numbers.

Everything that such a root publishes lies at or below our position, and would be dropped as old, in silence. Two signs:

  a run       the owner says which run of the stream each parent is fed from (`set_run`): when all parents that are
              heard agree on another run than ours, the stream has begun again
  stranded    without runs: all parents that are heard have ended below our position for `stranded_after`, have
              advanced meanwhile, and will not reach it in as long again. They may be catching up, so this is only
              reported (`Stranded`), and the owner decides

One parent alone triggers neither while another one that is heard stands at our position or belongs to our run.
"""

from __future__ import annotations

from collections.abc import Mapping

from dcp.config import Config
from dcp.parent import Parent


class RunWatch:
    def __init__(self, config: Config, parents: Mapping[int, Parent]) -> None:
        self.run: bytes | None = None
        """The run that our position belongs to; None while it is unknown."""
        self._config = config
        self._parents = parents
        self._below_since: float | None = None
        self._head_then = 0
        self._reported = False

    def begin(self) -> None:
        self._below_since = None
        self._reported = False

    def other_run(self, now: float) -> bytes | None:
        """The run that all parents agree on, when it is not ours."""
        heard = self._heard(now)
        runs = {parent.run for parent in heard}
        if len(runs) != 1:
            return None
        (run,) = runs
        if self.run is None:
            self.run = run
        return run if run != self.run else None

    def is_stranded(self, position: int, now: float) -> bool:
        """Whether to report that no parent has anything beyond our position: once, until that changes."""
        heads = [parent.head for parent in self._heard(now)]
        if not heads or max(heads) >= position:
            if heads:
                self.begin()
            return False
        head = max(heads)
        if self._below_since is None or head < self._head_then:
            self._below_since, self._head_then = now, head
        if self._reported or now - self._below_since < self._config.stranded_after:
            return False
        advanced = head - self._head_then
        if not 0 < advanced < position - head:
            self._below_since, self._head_then = now, head  # at rest, or about to arrive: look again later
            return False
        self._reported = True
        return True

    def next_timeout(self) -> float | None:
        if self._below_since is None or self._reported:
            return None
        return self._below_since + self._config.stranded_after

    def _heard(self, now: float) -> list[Parent]:
        within = 3 * self._config.keep_alive_interval
        return [
            parent
            for parent in self._parents.values()
            if parent.up and parent.begun and now - parent.link.heard_at < within
        ]
