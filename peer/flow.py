"""A client that can't keep up: warned, brought down to a narrower query, or let go. Decided here; nothing is done here.

Join experiments, after layered multicast: the application gives a ladder of queries, the widest (what it wants) first.
While its queue stays full and does not shrink, it steps down a rung. After a calm time it tries the next wider rung
again: if the queue fills within the trial it steps down at once and waits twice as long before the next try, else it
stays. At the bottom of the ladder, or with none, a queue that stays full for long means that nobody listens: the client
is disconnected, and can come back.

Only the client's own queue is looked at: its parents keep a cursor for it and nothing that grows, so neither they nor
its siblings notice any of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """Seconds, and shares of the application's queue (`dcp.Config.max_ready_packets`)."""

    look_interval: float = 0.5
    high: float = 0.5
    """A queue fuller than this, and not shrinking, is congested."""
    patience: float = 2.0
    """Congested for so long: a rung down. Lower steps down for a mere pause of the program."""
    trial: float = 5.0
    """A wider query that goes well for so long is kept."""
    retry: float = 10.0
    """Calm for so long (jittered by a quarter): try the next wider one. Doubled with every failed trial..."""
    max_retry: float = 320.0
    """...up to this."""
    give_up_after: float = 30.0
    """Congested for so long with nothing narrower to ask for: disconnected. Raising it keeps places for the deaf."""

    def __post_init__(self) -> None:
        if not 0 < self.high <= 1:
            raise ValueError(f"high is a share of the queue above 0, 1 at most, not {self.high}")
        if not self.look_interval < self.patience <= self.give_up_after:
            raise ValueError("look_interval, patience and give_up_after must rise in this order")


class Decision(Enum):
    STAY = "stay"
    WARN = "warn"
    """Congestion begins: say so."""
    RECOVERED = "recovered"
    """The queue is short again: say so."""
    STEP_DOWN = "step down"
    TRY_WIDER = "try wider"
    GIVE_UP = "give up"


class JoinExperiments:
    """Where on the ladder a client stands: rung 0 is what it wants."""

    def __init__(self, config: FlowConfig, rungs: int, rng: Random) -> None:
        self.rung = 0
        self.trials_failed = 0
        self._config = config
        self._rungs = rungs
        self._rng = rng
        self._retry = [config.retry] * rungs
        self._share = 0.0
        self._congested_since: float | None = None
        self._warned = False
        self._trial_since: float | None = None
        self._try_at: float | None = None

    def look(self, share: float, now: float) -> Decision:
        """`share`: how full the queue is. To be called every `look_interval`."""
        is_high, is_shrinking = share >= self._config.high, share < self._share
        self._share = share
        if not is_high:
            return self._calm(now)
        if is_shrinking or self._congested_since is None:
            self._congested_since = now  # what there is may be enough: wait for it
        if not self._warned:
            self._warned = True
            return Decision.WARN
        return self._congested(now - self._congested_since, now)

    def _congested(self, waited: float, now: float) -> Decision:
        self._try_at = None
        if self._trial_since is not None and waited >= self._config.look_interval:
            self.trials_failed += 1
            self._retry[self.rung] = min(2 * self._retry[self.rung], self._config.max_retry)
            return self._step_down(now)
        if waited >= self._config.patience and self.rung + 1 < self._rungs:
            return self._step_down(now)
        return Decision.GIVE_UP if waited >= self._config.give_up_after else Decision.STAY

    def _step_down(self, now: float) -> Decision:
        self._trial_since = None
        self._congested_since = now
        self.rung += 1
        return Decision.STEP_DOWN

    def _calm(self, now: float) -> Decision:
        config = self._config
        self._congested_since = None
        if self._warned:
            self._warned = False
            return Decision.RECOVERED
        if self._trial_since is not None:
            if now - self._trial_since < config.trial:
                return Decision.STAY
            self._trial_since = None
            self._retry[self.rung] = config.retry
        if self.rung == 0:
            return Decision.STAY
        if self._try_at is None:
            self._try_at = now + self._retry[self.rung - 1] * self._rng.uniform(0.75, 1.25)
        if now < self._try_at:
            return Decision.STAY
        self._try_at = None
        self._trial_since = now
        self.rung -= 1
        return Decision.TRY_WIDER


# What a program hears.


@dataclass(frozen=True, slots=True)
class FallingBehind:
    """The application is not consuming packets: `backlog` is the share of its queue that is full."""

    backlog: float


@dataclass(frozen=True, slots=True)
class KeepingUp:
    """After FallingBehind: the queue is short again."""


@dataclass(frozen=True, slots=True)
class QueryNarrowed:
    """Stepped down to this fallback (1 is the widest); a `QuerySwitched` in the stream says from where on."""

    rung: int
    query: str


@dataclass(frozen=True, slots=True)
class QueryWidened:
    """An experiment with the next wider query (0: what was asked for)."""

    rung: int
    query: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """This peer gave up its parents, for `reason`. What it has is still handed out; `rejoin` goes on from there."""

    reason: str


@dataclass(frozen=True, slots=True)
class NumbersRestarted:
    """The stream's numbers began again below what this peer had: a root lost its state. A second `Started` follows in
    the stream, and the oldest packets that are there; what was published in between is not known."""

    position: int
    """Where this peer stood."""
    head: int
    """Where its parents stand."""


FlowEvent = FallingBehind | KeepingUp | QueryNarrowed | QueryWidened | Disconnected | NumbersRestarted


def in_words(event: FlowEvent) -> str:
    """For people who did not ask: what happens to the packets they wait for."""
    match event:
        case FallingBehind(backlog):
            return f"packets come faster than they are taken here: the queue is {backlog:.0%} full"
        case KeepingUp():
            return "packets are taken as fast as they come again"
        case QueryNarrowed(_, query):
            return f"asking for less until packets are taken as fast as they come: {query or 'everything'}"
        case QueryWidened(_, query):
            return f"trying to ask for more again: {query or 'everything'}"
        case Disconnected(reason):
            return f"left the mesh: {reason}"
        case NumbersRestarted(position, head):
            return (
                f"the stream's numbers began again: parents are at {head}, this peer was at {position}; starting over"
            )
