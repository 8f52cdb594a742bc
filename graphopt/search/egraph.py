"""Equality saturation: a control that chooses among all alternatives at once, in place of one rewrite after the other.

Yang et al., "Equality Saturation for Tensor Graph Superoptimization" (TENSAT), MLSys 2021. An e-graph of what rewrites make is filled from a
bounded set of graphs (:mod:`graphopt.search.saturation`); the cheapest graph in it is chosen by a 0/1 program that counts what is shared once
(:mod:`graphopt.search.extraction`). States are reduced by symmetry, as in the other searches, and what is found is carried out everywhere.

Two things have no place in such a program, so it proposes and the true rewriter decides:

- *Prices* belong to windows, not to nodes, and a few e-nodes share what they cost. Each proposal is made, priced truly, and told to the fit of the nodes' prices; then the next best
  is asked for. The truly cheapest stays, whatever was made on the way.
- *Steps.* A plan is a sequence of rewrites that a trace can replay. So a proposal is made by the rewrites that its e-nodes came from, and those that
  these came from, in the order in which they were found, then in the reverse. Here something can be lost: where two rewrites need the same node, the first one takes it away
  (the e-graph has both), and the proposal is reached in part only.
"""

from __future__ import annotations

from importlib.util import find_spec

from graphopt.errors import MissingExtraError
from graphopt.ir.memo import collector_paused
from graphopt.search.extraction import Extraction
from graphopt.search.plans import PlanSearch, Report, in_rounds
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, State
from graphopt.search.saturation import Exploration
from graphopt.search.strategies import StrategySpec

EXPLORING = 0.7
"""Share of a round's budget for filling the e-graph; what is left of it makes what was extracted."""
TRUE_WEIGHT = 3.0
"""How much more the price of a whole proposal counts than that of a step, when prices of nodes are fitted."""


class EqualitySaturation:
    """Fill an e-graph, extract from it, make what was extracted.

    Args:
        turns: Of filling it: how many rewrites follow from each other at most.
        worlds: Graphs in which matches are looked for, in each turn.
        nodes: E-nodes at most, besides those of the model.
        proposals: Extractions of a round.
        patience: Extractions in a row without a cheaper graph after which a round ends.
        seconds: For an extraction, at most; what it tries is bounded as well, and the same on a busy machine.
        keep: Best plans to carry out and to measure.

    Raises:
        MissingExtraError: SciPy, whose solver extracts, is not installed.
    """

    name = "egraph"

    def __init__(
        self,
        turns: int = 12,
        worlds: int = 24,
        nodes: int = 10_000,
        proposals: int = 8,
        patience: int = 3,
        seconds: float = 5.0,
        keep: int = 4,
    ) -> None:
        if find_spec("scipy") is None:
            raise MissingExtraError("egraph", "scipy")
        self.turns, self.worlds, self.nodes = turns, worlds, nodes
        self.proposals, self.patience, self.seconds, self.keep = proposals, patience, seconds, keep

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`.

        Round by round, see :func:`graphopt.search.plans.in_rounds`.
        """

        def extracted(origin: State, part: Budget) -> Outcome:
            with collector_paused():
                return self._round(problem, origin, part, report)

        return in_rounds(extracted, start, budget, self.keep)

    def _round(self, problem: Problem, start: State, budget: Budget, report: Report | None) -> Outcome:
        exploring = budget.part(EXPLORING)
        search = PlanSearch(problem, start, exploring, self.keep)
        exploration = Exploration(search, self.worlds, self.nodes)
        reason = exploration.saturate(self.turns)
        budget.spent += exploring.spent
        search.budget = budget
        self._extract(exploration)
        return search.outcome(budget.exhausted() or f"{reason}: {len(exploration.egraph)} e-nodes", report)

    def _extract(self, exploration: Exploration) -> None:
        """Propose, make, learn from the true price, and again."""
        egraph, search = exploration.egraph, exploration.search
        program = Extraction(egraph.nodes, egraph.wanted, egraph.given)
        idle = 0
        for _ in range(self.proposals if egraph.applications else 0):
            if idle == self.patience or search.budget.exhausted() is not None:
                return
            best = search.best
            seconds = self.seconds
            if search.budget.seconds is not None:
                seconds = min(seconds, max(0.0, search.budget.seconds - search.budget.elapsed))
            prices = egraph.prices()[: program.size]
            chosen = program.cheapest(prices, seconds)
            if chosen is None:
                return
            # What differs by nodes that cost nothing is the same proposal.
            program.forbid([i for i in chosen if prices[i] > NEGLIGIBLE_SHARE * search.start.cost] or chosen)
            steps = egraph.derivation(chosen)
            for order in (steps, steps[::-1]):
                made = exploration.together(order).state
                nodes = egraph.choice(made)
                egraph.priced(nodes - egraph.start, egraph.start - nodes, made.cost - search.start.cost, TRUE_WEIGHT)
                if chosen <= nodes:
                    break
            idle = 0 if search.best < best * (1 - NEGLIGIBLE_SHARE) else idle + 1


SPEC = StrategySpec(
    "egraph",
    "equality saturation: a control",
    lambda s: EqualitySaturation(),
    needs=("scipy",),
)
