"""Planning on the true rewriter: Gumbel Monte Carlo tree search, a control for :class:`graphopt.search.backtracking.Backtracking`.

Danihelka et al., "Policy improvement by planning with Gumbel", ICLR 2022. At the root of a decision a few actions are drawn without
replacement (Gumbel-top-k over the prior), and sequential halving shares the simulations among them; below, the action is taken whose visits
lag most behind the policy that the prior and the completed values make together. Nothing is rolled out and nothing is modelled: a
simulation makes one more true rewrite, and its value is what the price says.

What is ours:

- States are reduced by symmetry (:mod:`graphopt.search.symmetry`): an action is a rewrite at all equal places.
- There is one player and no luck, so the value of a state is the best that was reached from it, as the logarithm of the start's cost over its
  own, and not a mean. On a detour the difference counts as if the rewrite were made at one place, as in backtracking.
- Pricing a rewrite costs as much as making it. At the root of a decision all are priced, below only as many as the visits warrant
  (progressive widening). Their prior is a softmax over the predicted savings, unless someone gives a :data:`Prior`.
- Graphs reached in several ways are one state, by their hash. When too many are held all are forgotten but for the best plans.
- A plan ends where planning sees nothing better than what is there; the next begins at the start, with other draws and the same tree.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Key
from graphopt.search.plans import MAX_DETOUR_STEPS, Candidate, PlanSearch, in_rounds
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, Report, State
from graphopt.search.strategies import StrategySpec
from graphopt.search.symmetry import ReducedState

Prior = Callable[[State, Sequence[Match]], Sequence[float]]
"""A learned policy: a logit for each match of a state, the larger the likelier. It is asked once for each state and has to be a function of
its arguments, or runs are not reproducible. Without prices: what it does not propose is not priced."""

TEMPERATURE = 2e-3
"""Predicted saving, as a share of the whole, that makes an action e times as likely."""
STEEPEST = 6.0
"""Largest logit of a saving or a loss: nothing is out of the question."""
WIDENING = 3.0
"""Actions that a state below the root offers, times the root of its visits."""
VISIT_OFFSET, VALUE_SCALE = 50.0, 0.1
"""How values and logits compare (the paper's c_visit and c_scale, the latter as in the authors' library for values between 0 and 1)."""
_LEAST_MS = 1e-9


class GumbelSearch:
    """Gumbel MCTS.

    Args:
        prior: A learned policy; by default predicted savings are the prior.
        considered: Actions that a decision draws.
        simulations: Of each decision.
        patience: Plans in a row without a better graph after which a round ends.
        states: States held at most, and those of one decision.
        seed: Of the draws.
        keep: Best plans to carry out and to measure.
    """

    name = "mcts"

    def __init__(
        self,
        prior: Prior | None = None,
        considered: int = 8,
        simulations: int = 24,
        patience: int = 20,
        states: int = 2000,
        seed: int = 0,
        keep: int = 4,
    ) -> None:
        self.prior, self.considered, self.simulations = prior, considered, simulations
        self.patience, self.states, self.seed, self.keep = patience, states, seed, keep

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`.

        Round by round, see :func:`graphopt.search.plans.in_rounds`.
        """
        chance = random.Random(self.seed)
        return in_rounds(
            lambda origin, part: self._round(PlanSearch(problem, origin, part, self.keep), chance, report),
            start,
            budget,
            self.keep,
        )

    def _round(self, search: PlanSearch, chance: random.Random, report: Report | None) -> Outcome:
        tree = Tree(search, self.prior)
        idle = plans = 0
        while idle < self.patience and search.budget.exhausted() is None:
            best = search.best
            self._plan(tree, chance)
            plans += 1
            idle = 0 if search.better_than(best) else idle + 1
            if len(tree.held) >= self.states:
                tree.forget()
        return search.outcome(search.budget.exhausted() or f"no better graph in the last of {plans} plans", report)

    def _plan(self, tree: Tree, chance: random.Random) -> None:
        """Decide action by action, until planning sees nothing better than what is there."""
        node, passed = tree.root, set[int]()
        while len(tree.held) < self.states and node.hash not in passed:
            passed.add(node.hash)
            action = self._decide(tree, node, chance)
            if action is None or action.child is None or node.best <= node.own + NEGLIGIBLE_SHARE:
                return
            node = action.child

    def _decide(self, tree: Tree, node: Position, chance: random.Random) -> Action | None:
        """Gumbel-top-k and sequential halving; ``None`` where nothing can be done."""
        tree.widen(node, math.inf)
        drawn = {id(action): action.logit - math.log(-math.log(1.0 - chance.random())) for action in node.actions}

        def rank(actions: Iterable[Action]) -> list[Action]:
            better = node.improvement()
            return sorted(actions, key=lambda a: drawn[id(a)] + better(a), reverse=True)

        # Of none a value is known yet but by earlier plans, and these must not decide who is drawn.
        alive = [action for action in node.actions if not action.dead]
        remaining = sorted(alive, key=lambda action: drawn[id(action)], reverse=True)[: self.considered]
        phases = max(1, math.ceil(math.log2(max(1, len(remaining)))))
        while remaining:
            for _ in range(max(1, self.simulations // (phases * len(remaining)))):
                for action in remaining:
                    if not action.dead:
                        tree.simulate(node, action)
            remaining = rank(action for action in remaining if not action.dead)
            if len(remaining) <= 1 or tree.search.budget.exhausted() is not None:
                break
            remaining = remaining[: math.ceil(len(remaining) / 2)]
        return remaining[0] if remaining else None


@dataclass(eq=False, slots=True)
class Action:
    """A rewrite of a state.

    Attributes:
        key: Where.
        logit: Of the prior.
        candidate: The rewrite as it was priced, until it is made.
        visits: Simulations that went through it.
        child: Where it leads, once it was made.
        dead: The engine refuses it, or it leads back to where one came from.
    """

    key: Key
    logit: float
    candidate: Candidate | None = None
    visits: int = 0
    child: Position | None = None
    dead: bool = False


@dataclass(eq=False, slots=True)
class Position:
    """A state of the tree.

    Attributes:
        reduced: The state.
        own: Its value: the logarithm of the start's cost over its own.
        best: The best value that was reached from it.
        waiting: Sites that are no actions yet with their logits, the next one last.
        actions: What may be done.
    """

    reduced: ReducedState
    own: float
    best: float
    waiting: list[tuple[Key, float]]
    actions: list[Action] = field(default_factory=list)

    @property
    def hash(self) -> int:
        """Of its graph."""
        return self.reduced.state.graph.hash

    @property
    def visits(self) -> int:
        """Simulations that went through it."""
        return sum(action.visits for action in self.actions)

    def improvement(self) -> Callable[[Action], float]:
        """What the completed value of an action adds to its logit (the paper's sigma and equation 33)."""
        visited = [(a, a.child.best) for a in self.actions if a.child is not None and a.visits]
        mixed = self.own
        if visited:
            weights = _softmax([action.logit for action in self.actions])
            share = {id(action): weight for action, weight in zip(self.actions, weights, strict=True)}
            mass = sum(share[id(action)] for action, _ in visited)
            mean = sum(share[id(action)] * value for action, value in visited) / mass
            mixed = (self.own + self.visits * mean) / (1 + self.visits)
        values = [mixed, *(value for _, value in visited)]
        low, high = min(values), max(values)
        most = max((action.visits for action in self.actions), default=0)
        scale = VALUE_SCALE * (VISIT_OFFSET + most) / max(high - low, NEGLIGIBLE_SHARE)

        def added(action: Action) -> float:
            value = mixed if action.child is None or not action.visits else action.child.best
            return scale * (value - low)

        return added


class Tree:
    """The states that planning has met, by the hashes of their graphs.

    Args:
        search: Prices and makes rewrites.
        prior: A learned policy, if there is one.

    Attributes:
        held: States by hash.
        root: Where every plan starts.
    """

    def __init__(self, search: PlanSearch, prior: Prior | None = None) -> None:
        self.search, self.prior = search, prior
        self.held: dict[int, Position] = {}
        self.root = self._enter(search.root, 0.0)

    def forget(self) -> None:
        """Forget all states but the first; prices at the root stay known."""
        for node in self.held.values():
            node.actions.clear()  # states that lead to each other would keep each other
        self.held.clear()
        self.search.forget()
        self.root = self._enter(self.search.root, 0.0)

    def _enter(self, reduced: ReducedState, own: float) -> Position:
        waiting = [] if reduced.detour_steps >= MAX_DETOUR_STEPS else self._ordered(reduced)
        node = self.held[reduced.state.graph.hash] = Position(reduced, own, own, waiting)
        return node

    def _ordered(self, reduced: ReducedState) -> list[tuple[Key, float]]:
        """The sites of a state with their logits, as far as these are known without a price; the most promising last."""
        keys, matches = reduced.sites(), reduced.state.sites.matches
        if self.prior is not None and keys:
            scores = [float(score) for score in self.prior(reduced.state, [matches[key] for key in keys])]
            if any(map(math.isnan, scores)):  # they would be sorted anyhow, and nobody would see what is wrong
                raise ValueError("the prior of a tree search gave a logit that is no number")
            return sorted(zip(keys, scores, strict=True), key=lambda item: item[1])
        # What is priced already costs nothing; then what a hint speaks for, then what would be made at many places.
        return [
            (key, 0.0)
            for key in sorted(
                keys,
                key=lambda k: (
                    k in reduced.known,
                    bool(matches[k].rule.prefer) and matches[k].preferred,
                    reduced.open[k],
                ),
            )
        ]

    def widen(self, node: Position, most: float) -> None:
        """Make sites actions until there are so many; those whose price is known count for nothing."""
        known = node.reduced.known
        while node.waiting and (len(node.actions) < most or (self.prior is None and node.waiting[-1][0] in known)):
            if self.prior is None and self.search.budget.exhausted() is not None:
                return
            key, logit = node.waiting.pop()
            action = Action(key, logit)
            if self.prior is None:
                action.candidate = self.search.priced(node.reduced, key)
                if action.candidate is None:
                    continue
                action.logit = _logit(node.reduced, action.candidate)
            node.actions.append(action)

    def simulate(self, node: Position, action: Action) -> None:
        """Go down from an action to a state that was not met before, and tell those above what it is worth."""
        path = [(node, action)]
        while True:
            node, action = path[-1]
            above = {passed.hash for passed, _ in path}
            fresh = action.child is None
            child = self._grow(node, action) if action.child is None else action.child
            if child is not None and child.hash in above:
                child = None  # what leads back is no way on; whoever comes from elsewhere met that state there
            if child is None:
                action.dead, action.child = self.search.budget.exhausted() is None, None
                break
            action.child = child
            following = None if fresh else self._select(child)
            if following is None:
                break
            path.append((child, following))
        for node, action in reversed(path):
            action.visits += 1
            if action.child is not None:
                node.best = max(node.best, action.child.best)

    def _select(self, node: Position) -> Action | None:
        """The action whose visits lag most behind the improved policy; ``None`` at an end."""
        self.widen(node, WIDENING * math.sqrt(1 + node.visits))
        actions = [action for action in node.actions if not action.dead]
        if not actions:
            return None
        added, visits = node.improvement(), node.visits
        policy = _softmax([action.logit + added(action) for action in actions])
        lag = [weight - action.visits / (1 + visits) for weight, action in zip(policy, actions, strict=True)]
        return actions[lag.index(max(lag))]

    def _grow(self, node: Position, action: Action) -> Position | None:
        """The state that an action leads to; ``None`` if the engine refuses it or the budget is gone."""
        if self.search.budget.exhausted() is not None:
            return None
        candidate = action.candidate or self.search.priced(node.reduced, action.key)
        made = None if candidate is None else self.search.rewritten(candidate)
        if candidate is None or made is None:
            return None
        action.candidate = None  # the graph is held by the state from now on
        known = self.held.get(made[0].hash)
        if known is not None or made[0].hash in self.search.seen:
            return known
        reduced = self.search.reached(candidate, *made)
        if reduced is None:
            return None
        if reduced.region is None:
            return self._enter(reduced, _gain(self.search.start.cost, reduced.cost))
        return self._enter(reduced, node.own + _gain(node.reduced.state.cost, reduced.state.cost))


def _logit(reduced: ReducedState, candidate: Candidate) -> float:
    """What a saving at all places, or a loss at one, speaks for an action."""
    before = reduced.state.cost
    saving = before - candidate.here
    places = reduced.open[candidate.match.rule.id, candidate.match.nodes] if saving > 0 else 1
    share = places * saving / max(before, _LEAST_MS)
    return max(-STEEPEST, min(STEEPEST, share / TEMPERATURE))


def _gain(before: float, after: float) -> float:
    """How much faster, as a logarithm; graphs of which nothing is left to compute cost nothing."""
    return math.log(max(before, _LEAST_MS) / max(after, _LEAST_MS))


def _softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    whole = sum(weights)
    return [weight / whole for weight in weights]


SPEC = StrategySpec(
    "mcts",
    "Gumbel tree search: a control",
    lambda s: GumbelSearch(seed=s.seed),
    ("seed",),
    trials={"mcts": {}},
    chance=True,
)
