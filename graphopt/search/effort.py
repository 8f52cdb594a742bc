"""How much an optimisation may do, and what part of it each stage gets: the one place for that.

Without a limit in seconds the effort is counted: kernels to price, rewrites to try, rounds to measure. The counts go by the model
alone (its nodes, and what an inference takes on a typical machine), so a busy machine does the same work and takes longer. With a
limit in seconds nothing is counted, and :class:`TimePlan` shares the time out. The measurements themselves may end either early:
they stop when they are precise enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from graphopt.errors import SessionError
from graphopt.runtime.rounds import MIN_CYCLES, MIN_ROUNDS
from graphopt.runtime.timing import Paired
from graphopt.search.problem import Budget

LEAST_ROUNDS = 2 * MIN_CYCLES
"""Rounds for a comparison to mean anything: in each cycle both models run first once."""
LEAST_SECONDS = 1.0
"""The same by the clock; less where that is more than a quarter of what is left for comparisons."""
LEAST_CANDIDATES = 200
"""Rewrites that a search tries whatever the limit in seconds."""


@dataclass(frozen=True)
class TimePlan:
    """Who gets what. Shares, unless it says seconds.

    What models need differs: one has many kernels to price, another one much to compare. So the first three are what each may use at
    most, together more than there is, and comparing has what the others leave.

    Attributes:
        pricing: Of the limit at most, for measuring the kernels that nobody has measured yet; also in the middle of the search.
        search: Of the limit at most, for searching, all rounds together.
        comparing: Of the limit at most, for comparing what was found: alternatives, and families of rules.
        verdict: Of the limit, what the last measurement gets at least ...
        rest: ... and of what is left by then, if that is more.
        second: Of the limit, for a second look where noise hides a gain or a tie.
        second_s: Seconds that this look takes at most.
        overtime: Of the limit, how far beyond it this look may go.
        waiting: Of the limit, for processors that are far from each other to come near; all told ...
        waiting_s: ... and no more seconds than this, limit or not.
        elsewhere: Of the limit, and on top of it, for each further set of sizes.
        hurry_s: Seconds for the last measurement after Ctrl-C.
        round: Of what is left for searching and for comparing, what a round may use: the rest is for rounds with corrected prices.
        alternatives: Of a round's comparing, for the other plans that it found.
        look: Of a round's comparing, for the first look at the original.
        again: The same after a family has gone.
        end: Of all comparing, what must be left for another round to begin.
        patience: How many times its comparing a round may take while its graph is slower than the original.
    """

    pricing: float = 0.40
    search: float = 0.25
    comparing: float = 0.45
    verdict: float = 0.20
    rest: float = 0.6
    second: float = 0.5
    second_s: float = 10.0
    overtime: float = 0.1
    waiting: float = 0.05
    waiting_s: float = 60.0
    elsewhere: float = 0.2
    hurry_s: float = 2.0
    round: float = 0.6
    alternatives: float = 0.25
    look: float = 0.2
    again: float = 0.1
    end: float = 0.1
    patience: float = 4.0

    def done(self, searched: float = 0.0, compared: float = 0.0) -> float:
        """How far an optimisation has come when the model is priced, as a share of all.

        Args:
            searched: Share of the search that is done.
            compared: Share of the comparisons that is done.
        """
        parts = self.pricing + self.search * min(1.0, searched) + self.comparing * min(1.0, compared)
        return (1 - self.verdict) * parts / (self.pricing + self.search + self.comparing)


PLAN = TimePlan()
"""The plan of every optimisation."""

# What is done where no limit is given. On the machine of docs/results.md this takes ten seconds to a minute.
_KERNELS = 400
_CANDIDATES, _CANDIDATES_PER_NODE = 2500, 4  # most searches end before (graphopt.search.backtracking.PATIENCE)
# In place of the first where no clock judges: 2,000 find no more on nine models, 500 the same on eight and 1.455 in place of 1.568 on the ninth.
_UNMEASURED = 1000
# Of all comparisons together, at least and at most. 400, and 40,000 of the milliseconds below, find the same in more time (decisions).
_ROUNDS = (4 * LEAST_ROUNDS, 120)
_COMPARING_MS = 12_000.0  # typical milliseconds for them, opening included
_OPEN_MS, _OPEN_MS_PER_MB = 10.0, 1.2  # to open a session, typically
_TURN_MS = 6.0  # a turn takes no less (graphopt.runtime.rounds)
# With each pair of sessions of the last measurement. Of models of 4 and 6 ms eight say 1.2 times as precisely, in the same time,
# what five say (a Zen 4): there rounds differ by more than sessions do.
_SESSION_ROUNDS = (MIN_ROUNDS, 8)
_SESSION_MS = 100.0  # typical milliseconds for them
_SESSIONS = (6, 12)  # of each model in the last measurement, at most: fewer of slow ones, whose runs differ less
_VERDICT_MS = 12_000.0  # typical milliseconds for them


@dataclass(frozen=True)
class Effort:
    """What an optimisation may do.

    Attributes:
        seconds: Limit of search and measurement together; ``None`` where the work is counted instead.
        kernels: Kernels to measure, ``None`` for no limit.
        candidates: Rewrites to try, all rounds of the search together; ``None`` for no limit.
        rounds: Rounds of all comparisons together; ``None`` for no limit.
        session_rounds: Rounds with each pair of sessions of the last measurement; where seconds are limited at least, and for as long as it took
            to open them.
        sessions: Of each model that the last measurement opens at most, where the rounds are counted.
        comparison_s: Seconds that a comparison takes at the least, by what opening and running the model took.
        plan: Who gets what.
    """

    seconds: float | None = None
    kernels: int | None = None
    candidates: int | None = None
    rounds: int | None = None
    session_rounds: int = MIN_ROUNDS
    sessions: int = 40
    comparison_s: float = 0.0
    plan: TimePlan = PLAN

    @classmethod
    def within(cls, seconds: float, opening_s: float, run_s: float) -> Effort:
        """The effort that a limit allows.

        Args:
            seconds: The limit.
            opening_s: What opening the model took.
            run_s: What running it took.
        """
        # Sessions of both graphs are opened anew for each cycle, and each graph once before, out of harm's way.
        comparison_s = 2 * (MIN_CYCLES + 1) * opening_s + 2 * LEAST_ROUNDS * run_s
        return cls(seconds, session_rounds=_rounds_with_each(1e3 * run_s), comparison_s=comparison_s)

    @classmethod
    def of(cls, nodes: int, typical_ms: float, nbytes: int = 0, measured: bool = True) -> Effort:
        """The effort for a model, where no limit is given.

        Args:
            nodes: Of the model.
            typical_ms: An inference by a roofline with typical numbers: the same on a busy machine.
            nbytes: Of the model: opening a large one takes longer than a few rounds.
            measured: Whether the clock judges what the search finds.
        """
        turns, each = 2 * max(_TURN_MS, typical_ms), _rounds_with_each(typical_ms)
        opening = 2 * (_OPEN_MS + _OPEN_MS_PER_MB * nbytes / 1e6)
        return cls(
            None,
            _KERNELS,
            (_CANDIDATES if measured else _UNMEASURED) + _CANDIDATES_PER_NODE * nodes,
            _between(_ROUNDS, _COMPARING_MS / (turns + opening / MIN_ROUNDS)),
            each,
            _between(_SESSIONS, _VERDICT_MS / (each * turns)),
        )

    @property
    def pricing_s(self) -> float:
        """Seconds for measuring kernels."""
        return math.inf if self.seconds is None else self.plan.pricing * self.seconds

    @property
    def waiting_s(self) -> float:
        """Seconds to wait for processors that are far from each other."""
        return min(self.plan.waiting_s, math.inf if self.seconds is None else self.plan.waiting * self.seconds)

    def searching(self, interrupted: Callable[[], bool] | None = None) -> Budget:
        """What all rounds of the search may spend."""
        seconds = None if self.seconds is None else self.plan.search * self.seconds
        return Budget(seconds, self.candidates, interrupted, least=LEAST_CANDIDATES)

    def comparing(self) -> Purse:
        """What all comparisons may spend."""
        if self.seconds is None:
            return Purse(None, self.rounds, self.plan)
        return Purse(self.plan.comparing * self.seconds, None, self.plan, self.comparison_s)

    def told(self) -> dict[str, Any]:
        """The effort as a report tells it."""
        counted = {"kernels": self.kernels, "candidates": self.candidates, "rounds": self.rounds}
        return {"seconds": self.seconds, **counted, "plan": asdict(self.plan)}


@dataclass
class Purse:
    """What comparisons may spend together: rounds where those are limited, else seconds.

    Args:
        seconds: The limit in seconds; time that is spent on searching does not count.
        rounds: The limit in rounds.
        plan: Who gets what.

    Attributes:
        dear: What the dearest comparison took, or is expected to; opening a large model takes longer than running it.
    """

    seconds: float | None = None
    rounds: int | None = None
    plan: TimePlan = PLAN
    dear: float = 0.0
    _used: int = 0
    _away: float = 0.0
    _began: float = field(default_factory=lambda: time.monotonic())

    @property
    def limit(self) -> float:
        """All of it, in its own unit."""
        if self.rounds is not None:
            return self.rounds
        return math.inf if self.seconds is None else self.seconds

    @property
    def spent(self) -> float:
        """What is gone, in the purse's unit."""
        return self._used if self.rounds is not None else time.monotonic() - self._began - self._away

    @property
    def left(self) -> float:
        """What is left, in the purse's unit; by the clock no more than there is until the last measurement is due."""
        return max(0.0, min(self.limit - self.spent, self.room))

    @property
    def least(self) -> float:
        """What a comparison takes to mean anything, in the purse's unit."""
        return LEAST_ROUNDS if self.rounds is not None else min(LEAST_SECONDS, self.left / 4)

    @property
    def room(self) -> float:
        """Seconds until the last measurement is due, whoever has spent those before; no bound where rounds are limited."""
        if self.rounds is not None or self.seconds is None:
            return math.inf
        whole = self.seconds / self.plan.comparing
        return (1 - self.plan.verdict) * whole - (time.monotonic() - self._began)

    @property
    def fits(self) -> bool:
        """Whether another comparison ends before the last measurement is due."""
        return self.dear <= self.room

    @property
    def closed(self) -> bool:
        """Whether there is too little left for another round of the search."""
        return self.left <= self.plan.end * self.limit

    def share(self, amount: float) -> tuple[float, int | None]:
        """Seconds and rounds of a comparison that may spend so much."""
        if self.rounds is None:
            return amount, None
        return math.inf, max(LEAST_ROUNDS, int(amount))

    def take(self, before: float, rounds: int, questions: int = 1) -> None:
        """Put down a comparison.

        Args:
            before: What was spent when it began.
            rounds: That it measured.
            questions: That it answered at once; each counts as if it had been asked by itself.
        """
        self._used += questions * rounds
        self.dear = max(self.dear, 2 * (self.spent - before) / (questions + 1))  # a comparison is of two graphs

    def pay(self, amount: float, pair: Callable[[float, int | None], Paired]) -> Paired | None:
        """A comparison; ``None`` where one of the two does not run.

        Args:
            amount: What it may spend, in the purse's unit.
            pair: Compares in at most so many seconds and rounds.
        """
        before, rounds = self.spent, 0
        try:
            found = pair(*self.share(amount))
            rounds = found.rounds
            return found
        except SessionError:
            return None
        finally:
            self.take(before, rounds)

    def set_aside(self, seconds: float) -> None:
        """Seconds that were spent on something else."""
        self._away += seconds


def _rounds_with_each(ms: float) -> int:
    """Rounds with each pair of sessions, for a model that takes so many milliseconds."""
    return _between(_SESSION_ROUNDS, _SESSION_MS / (2 * max(_TURN_MS, ms)))


def _between(bounds: tuple[int, int], value: float) -> int:
    return int(min(max(value, bounds[0]), bounds[1]))
