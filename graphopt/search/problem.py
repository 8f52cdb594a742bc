"""The problem that every strategy solves: states are graphs, actions are matches, the price is predicted milliseconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from graphopt.config import provider_name
from graphopt.cost.base import CostModel, Costs
from graphopt.ir.delta import Delta, RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Sites
from graphopt.runtime.environment import rule_block
from graphopt.search.cleaning import rewritten

if TYPE_CHECKING:
    from graphopt.runtime.session import SessionConfig

NEGLIGIBLE_SHARE = 1e-5
"""Share of the total below which a predicted difference counts as none."""
LEEWAY = 2e-3
"""Share of the total that a rule whose hints hold may be predicted to lose."""
NO_LEEWAY = -NEGLIGIBLE_SHARE
_OVERDUE = 1.1  # of a limit in seconds: what is over by then leaves out what is of use and not needed


@dataclass(frozen=True, eq=False)
class State:
    """A graph with all that a search wants to know of it.

    Attributes:
        graph: The graph.
        found: Where rules apply, or how to find that out once someone asks.
        costs: Predicted milliseconds.
    """

    graph: Graph
    found: Sites | Callable[[], Sites]
    costs: Costs

    @cached_property
    def sites(self) -> Sites:
        """Where rules apply."""
        return self.found if isinstance(self.found, Sites) else self.found()

    @property
    def cost(self) -> float:
        """Predicted milliseconds of one inference."""
        return self.costs.total

    def actions(self) -> list[Match]:
        """The matches in an order that depends on the graph alone."""
        return [self.sites.matches[key] for key in sorted(self.sites.matches)]


@dataclass(frozen=True, slots=True)
class Step:
    """One applied rewrite.

    Attributes:
        rule: Rule id.
        family: Family of the rule.
        site: Hash of the place, by which a replay finds it again.
        node: Name of the first value that the rewrite redefined, for people.
        cost_before: Predicted milliseconds before it.
        cost_after: Predicted milliseconds after it.
        alone: Whether nothing was cleaned up around it: so are the steps to the normal form.
        inside: The body that it is made in, see :mod:`graphopt.search.normal`; empty for the graph itself.
    """

    rule: str
    family: str
    site: str
    node: str
    cost_before: float
    cost_after: float
    alone: bool = False
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Problem:
    """Rules, prices and the target.

    Attributes:
        library: The rules.
        cost: Prices a graph.
        block: Channel block of the target's fast convolution layout.
        leeway: Share of the total that greedy lets a rule lose whose hints hold. They are about the CPU provider's kernels: for
            any other it is :data:`NO_LEEWAY`, and what counts is the price.
    """

    library: Library
    cost: CostModel
    block: int = 16
    leeway: float = LEEWAY

    @classmethod
    def where(cls, library: Library, cost: CostModel, config: SessionConfig) -> Problem:
        """The problem of a graph that is to run fast with some provider and options."""
        return cls(library, cost, rule_block(config), LEEWAY if provider_name(config.provider) == "cpu" else NO_LEEWAY)

    def start(self, graph: Graph) -> State:
        """The state of a graph, from scratch."""
        with collector_paused():
            return State(graph, Sites.of(graph, self.library, self.block), self.cost.of(graph))

    def priced(self, graph: Graph, costs: Costs) -> State:
        """The state of a graph whose costs are known; where rules apply is found once someone asks."""
        return State(graph, partial(Sites.of, graph, self.library, self.block), costs)

    def rewrite(self, graph: Graph, match: Match) -> tuple[Graph, Delta]:
        """The graph after a rewrite and the cleaning around it, and what changed.

        Raises:
            RefusedError: The rewrite would break an invariant of the graph, or the processor has no kernel for it.
        """
        return rewritten(graph, match, self.library, self.block)

    def step(self, state: State, match: Match) -> State:
        """The state after a rewrite, in time proportional to what it changes.

        Raises:
            RefusedError: As for :meth:`rewrite`, or the weights would take more memory than they may.
        """
        after = self.reached(state, *self.rewrite(state.graph, match))
        _affordable(after.cost)
        return after

    def reached(self, state: State, graph: Graph, delta: Delta) -> State:
        """The state of a graph that came from another by an edit."""
        return State(graph, state.sites.after(graph, delta), self.cost.after(state.costs, graph, delta))

    def price(self, state: State, match: Match) -> tuple[Graph, float]:
        """The graph and the predicted cost after a rewrite, without its new matches.

        Raises:
            RefusedError: As for :meth:`step`.
        """
        graph, _, cost = self.tried(state, match)
        return graph, cost

    def tried(self, state: State, match: Match) -> tuple[Graph, Delta, float]:
        """As :meth:`price`, and what changed: all that :meth:`reached` needs to go there."""
        graph, delta = self.rewrite(state.graph, match)
        cost = self.cost.total_after(state.costs, graph, delta)
        _affordable(cost)
        return graph, delta, cost

    def record(self, graph: Graph, match: Match, before: float, after: float) -> Step:
        """What a trace says of a rewrite of a graph that was predicted to take ``before`` and then ``after`` milliseconds."""
        return Step(match.rule.id, match.rule.family, match.site, graph.values[match.roots[0]].name, before, after)


def _affordable(cost: float) -> None:
    if cost == math.inf:
        raise RefusedError("the weights would take more memory than they may")


@dataclass
class Budget:
    """What a search may spend; shared by all strategies.

    Attributes:
        seconds: Wall-clock limit, ``None`` for none.
        candidates: Limit on priced rewrites, ``None`` for none.
        interrupted: Asked now and then; true stops the search.
        aside: Seconds of this process that don't count: kernels are measured in the middle of a search, out of another purse.
        spent: Priced rewrites so far.
        least: Priced rewrites that the clock does not keep it from: on a busy machine a second can be gone before anything was tried.
        found_share: Share of it that is left to a search once it has found something better, see :meth:`until_found`; ``None`` for all of it.
    """

    seconds: float | None = None
    candidates: int | None = None
    interrupted: Callable[[], bool] | None = None
    aside: Callable[[], float] = lambda: 0.0
    spent: int = 0
    least: int = 0
    found_share: float | None = None
    _started: float = field(init=False)
    _end: float = field(init=False)  # seconds after which it is overdue

    def __post_init__(self) -> None:
        self._started = time.monotonic() - self.aside()
        self._end = math.inf if self.seconds is None else _OVERDUE * self.seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the budget was made, without those that don't count."""
        return time.monotonic() - self.aside() - self._started

    @property
    def interrupted_now(self) -> bool:
        """Whether someone asked to stop."""
        return self.interrupted is not None and self.interrupted()

    @property
    def overdue(self) -> bool:
        """Whether someone waits: the search was asked to stop, or its time has been gone for a while.

        What is kept for the time after a find is not gone.
        """
        return self.interrupted_now or self.elapsed >= self._end

    def part(self, share: float, most: int | None = None) -> Budget:
        """A budget of a share of what is left, and of so many candidates at most; what is spent of it is to be added to this one's."""
        seconds = None if self.seconds is None else share * max(0.0, self.seconds - self.elapsed)
        candidates = most
        if self.candidates is not None:
            left = math.ceil(share * max(0, self.candidates - self.spent))
            candidates = left if most is None else min(left, most)
        least = math.ceil(share * max(0, self.least - self.spent))
        return Budget(seconds, candidates, self.interrupted, self.aside, least=least, found_share=self.found_share)

    def until_found(self, share: float) -> Budget:
        """All that is left for as long as nothing better is found, and then a share of what is left by then: what comes after needs the rest."""
        return replace(self.part(1.0), found_share=share)

    def found(self) -> None:
        """Something better was found."""
        share, self.found_share = self.found_share, None
        if share is None:
            return
        self.least = self.spent + math.ceil(share * max(0, self.least - self.spent))
        if self.seconds is not None:
            self.seconds -= (1 - share) * max(0.0, self.seconds - self.elapsed)
        if self.candidates is not None:
            self.candidates = self.spent + math.ceil(share * max(0, self.candidates - self.spent))

    def again(self) -> Budget:
        """The same budget, of which nothing is spent."""
        return Budget(self.seconds, self.candidates, self.interrupted, self.aside, least=self.least)

    def exhausted(self) -> str | None:
        """Why the search must stop, ``None`` while it may go on."""
        if self.interrupted_now:
            return "interrupted"
        if self.seconds is not None and self.spent >= self.least and self.elapsed >= self.seconds:
            return "time budget used up"
        if self.candidates is not None and self.spent >= self.candidates:
            return "candidate budget used up"
        return None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a strategy found.

    Attributes:
        state: The best state.
        steps: How it was reached.
        candidates: Rewrites priced.
        seconds: Time spent.
        stop_reason: Why it stopped.
        others: What else it found, the cheapest first: prices err, so the clock is asked about these too.
        waiting: Graphs that were found and not searched from: what more time would be spent on.
    """

    state: State
    steps: tuple[Step, ...]
    candidates: int
    seconds: float
    stop_reason: str
    others: tuple[Outcome, ...] = ()
    waiting: int = 0

    def then(self, later: Outcome) -> Outcome:
        """This, and what was found from where it ended; candidates, time and the reason to stop stay those of the first."""
        return replace(self, state=later.state, steps=(*self.steps, *later.steps), others=())


def cheapest(found: Iterable[Outcome], keep: int) -> list[Outcome]:
    """The cheapest of what was found, each graph once: of equal graphs, and at equal prices, what was found first."""
    different: dict[int, Outcome] = {}
    for outcome in found:
        different.setdefault(outcome.state.graph.hash, outcome)
    return sorted(different.values(), key=lambda outcome: outcome.state.cost)[:keep]


Report = Callable[[State], None]
"""Hears of every better state of a search."""


class Strategy(Protocol):
    """A way to search.

    It keeps the budget itself: ``budget.spent`` grows by one for each rewrite that it prices, and it ends when
    ``budget.exhausted()`` says why. CONTRIBUTING.md has a whole one.
    """

    name: str

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """Search from ``start``; ``report`` hears of every better state. Where there is none the outcome is the start without steps."""
        ...
