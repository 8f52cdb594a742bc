"""Equality saturation over whole graphs: a control that chooses among all alternatives at once, in place of one rewrite after the other.

Yang et al., "Equality Saturation for Tensor Graph Superoptimization" (TENSAT), MLSys 2021. An e-graph of all nodes that rewrites were seen to
make is filled from a bounded set of graphs; the cheapest graph in it is chosen by a 0/1 program that counts what is shared once
(:mod:`graphopt.search.extraction`). States are reduced by symmetry, as in the other searches, and what is found is carried out everywhere.

A value keeps its key through every rewrite (:mod:`graphopt.ir.graph`), so keys are e-classes: whatever nodes were seen to define a key, in
whatever graph, compute the same. Nodes by the hash of what they compute are e-nodes; one that makes several values stands in several classes
at once. Where a rewrite lets readers read another value instead, the readers are other nodes of the same key: so classes need not be merged.

The engine matches and rewrites whole graphs, never classes. So matches are looked for in *worlds*, a bounded set of graphs, of
which each holds one choice of alternatives: the graphs after single rewrites that brought something to match, the cheapest of
them, and in each turn two in which as many of the rewrites known were made as go together, so that what is new at one place meets what is new beside it. A pattern
over alternatives that no world holds together is not found. Nor is all that follows where a rewrite makes nothing and lets readers read another
value: it is tried in one world, and in the others their readers still read the former one.

Two things have no place in such a program, so it proposes and the true rewriter decides:

- *Prices* belong to windows, not to nodes, and a few e-nodes share what they cost. Each proposal is made, priced truly, and told to the fit of the nodes' prices; then the next best
  is asked for. The truly cheapest stays, whatever was made on the way.
- *Steps.* A plan is a sequence of rewrites that a trace can replay. So a proposal is made by the rewrites that its e-nodes came from, and those that
  these came from, in the order in which they were found, then in the reverse. Here something can be lost: where two rewrites need the same node, the first one takes it away
  (the e-graph has both), and the proposal is reached in part only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from graphopt.errors import MissingExtraError
from graphopt.ir.delta import Delta, RefusedError
from graphopt.ir.graph import Graph, Node
from graphopt.rewrite.sites import Key
from graphopt.search.extraction import Alternative, Extraction
from graphopt.search.plans import Candidate, PlanSearch, in_rounds
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, Report, State
from graphopt.search.strategies import StrategySpec
from graphopt.search.symmetry import ReducedState

EXPLORING = 0.7
"""Share of a round's budget for filling the e-graph; what is left of it makes what was extracted."""
TRUE_WEIGHT = 3.0
"""How much more the price of a whole proposal counts than that of a step, when prices of nodes are fitted."""
_LOOSE = 0.05
"""How far a price of a node lets itself be moved, against how exact the sums are that move it."""
_MOST_SUMS = 800
"""Sums of prices that are heeded, the last ones; they make a system of so many equations."""


@dataclass(frozen=True, eq=False)
class Application:
    """A rewrite that was made somewhere.

    Attributes:
        key: Rule and matched nodes.
        reads: E-nodes that it matched or took away.
        makes: E-nodes that were new to the world where it was made.
        saving: Predicted milliseconds that it saved there.
    """

    key: Key
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    saving: float


class EGraph:
    """E-nodes and how they came about.

    Args:
        root: Where it begins.

    Attributes:
        nodes: The e-nodes, by number.
        given: Values that nothing computes: inputs and weights.
        wanted: What stands for the graph's outputs, an e-class for each.
        origin: The rewrite that first made each e-node, as a number; none for those of the root.
        applications: Rewrites by number, in the order in which they were first made.
    """

    def __init__(self, root: State) -> None:
        self.nodes: list[Alternative] = []
        self.given: set[int] = set()
        self.wanted = tuple(-1 - i for i in range(len(root.graph.outputs)))
        self.origin: dict[int, int] = {}
        self.applications: list[Application] = []
        self._numbers: dict[tuple[int, Alternative], int] = {}
        self._prior: list[float] = []
        self._sums: dict[frozenset[tuple[int, float]], float] = {}
        self._known: set[Key] = set()
        self.start = self.choice(root)

    def __len__(self) -> int:
        return len(self.nodes)

    def choice(self, state: State) -> frozenset[int]:
        """The e-nodes of a graph; new ones are entered."""
        graph = state.graph
        return frozenset([*(self._entered(state, n) for n in graph.nodes.values()), *self._outputs(graph)])

    def new(self, key: Key) -> bool:
        """Whether a rewrite was never tried. What it makes depends on the matched nodes, not on the world they stand in; who reads it does."""
        return key not in self._known

    def tried(self, key: Key) -> None:
        """A rewrite is not new any more."""
        self._known.add(key)

    def made(self, before: State, key: Key, after: State, delta: Delta) -> None:
        """Enter what a rewrite made, and what the two graphs' prices say of their nodes'."""
        old, new = before.graph.nodes, after.graph.nodes
        # An edit with its cleaning may add what it takes away again.
        removed = {self._entered(before, old[node.id]) for node in delta.removed if node.id in old}
        added = {self._entered(after, new[node.id]) for node in delta.added if node.id in new}
        if after.graph.outputs != before.graph.outputs:
            removed.update(self._outputs(before.graph))
            added.update(self._outputs(after.graph))
        removed, added = removed - added, added - removed
        self.priced(added, removed, after.cost - before.cost)
        self.tried(key)
        unheard = [node for node in added if node not in self.origin and node not in self.start]
        if not unheard:
            return
        matched = {self._entered(before, before.graph.nodes[id]) for id in key[1]}
        number = len(self.applications)
        self.applications.append(
            Application(key, tuple(sorted(matched | removed)), tuple(sorted(added)), before.cost - after.cost)
        )
        self.origin.update(dict.fromkeys(unheard, number))

    def priced(self, more: Iterable[int], less: Iterable[int], change: float, weight: float = 1.0) -> None:
        """A graph with some e-nodes in place of others was predicted to take so many milliseconds more."""
        row = frozenset([*((i, weight) for i in more), *((i, -weight) for i in less)])
        if row:
            self._sums.pop(row, None)
            self._sums[row] = weight * change
        if len(self._sums) > _MOST_SUMS:
            del self._sums[next(iter(self._sums))]

    def prices(self) -> list[float]:
        """A price for each e-node, in milliseconds.

        A graph's price is that of its windows, so no node has one of its own. A node's share of the window in which it was first seen is
        where we begin; from there the prices are moved, no farther than they must (ridge regression), until their sums say of every pair
        of graphs that a rewrite leads between what was predicted of it.
        """
        prior = np.asarray(self._prior)
        if not self._sums:
            return [float(p) for p in prior]
        at = sorted({node for row in self._sums for node, _ in row})
        columns = {node: i for i, node in enumerate(at)}
        matrix = np.zeros((len(self._sums), len(at)))
        for i, row in enumerate(self._sums):
            for node, sign in row:
                matrix[i, columns[node]] = sign
        missed = np.asarray(list(self._sums.values())) - matrix @ prior[at]
        weights = np.linalg.solve(matrix @ matrix.T + _LOOSE * np.eye(len(self._sums)), missed)
        prior[at] += matrix.T @ weights
        return [float(p) for p in np.maximum(prior, 0.0)]

    def derivation(self, chosen: Iterable[int]) -> list[int]:
        """The rewrites, by number, that made some e-nodes, and that made what these read."""
        found, todo = set[int](), list(chosen)
        while todo:
            number = self.origin.get(todo.pop())
            if number is not None and number not in found:
                found.add(number)
                todo += self.applications[number].reads
        return sorted(found)

    def _entered(self, state: State, node: Node) -> int:
        values = state.graph.values
        reads = tuple(dict.fromkeys(key for key in node.inputs if key is not None))
        self.given.update(key for key in reads if values[key].producer is None)
        makes = tuple(key for key in node.outputs if key is not None)
        return self._number(node.id, Alternative(makes, reads), _share(state, node.id))

    def _outputs(self, graph: Graph) -> list[int]:
        """The e-nodes that stand for a graph's outputs: which value each of them is can change."""
        self.given.update(key for _, key in graph.outputs if graph.values[key].producer is None)
        ends = zip(self.wanted, graph.outputs, strict=True)
        return [self._number(0, Alternative((wanted,), (key,)), 0.0) for wanted, (_, key) in ends]

    def _number(self, id: int, node: Alternative, price: float) -> int:
        found = self._numbers.get((id, node))
        if found is None:
            found = self._numbers[id, node] = len(self.nodes)
            self.nodes.append(node)
            self._prior.append(price)
        return found


def _share(state: State, id: int) -> float:
    """A node's share of its window, in milliseconds; 0 for one that never runs."""
    costs = state.costs
    window = costs.partition.get(id)
    if window is None or window.head not in costs.prices:
        return 0.0
    price = costs.prices[window.head]
    return costs.sums.of(price.warm, price.cold) / len(window.nodes)


class Exploration:
    """Fills an e-graph from worlds.

    Args:
        search: Where it begins, and what it may spend.
        worlds: Graphs held at a time, two more for those in which many rewrites were made.
        most: E-nodes.

    Attributes:
        egraph: What was found.
        left_out: Worlds with something new in them that were not looked at.
    """

    def __init__(self, search: PlanSearch, worlds: int, most: int) -> None:
        self.search, self.worlds, self.most = search, worlds, most
        self.egraph = EGraph(search.root.state)
        self.left_out = 0
        self._richest = search.root

    def saturate(self, turns: int) -> str:
        """Make every rewrite once that matches in some world, in so many turns.

        Returns:
            Why it ended.
        """
        frontier = [self.search.root]
        for _ in range(turns):
            known, found = len(self.egraph.applications), list[ReducedState]()
            for world in frontier:
                for key in sorted(world.open):
                    if not self.egraph.new(key):
                        continue
                    if (reason := self.full()) is not None:
                        return reason
                    made = self.step(world, key)
                    if made is not None and self._fresh(made):
                        found.append(made)
                        self._keep_cheapest(found)
            fresh = range(known, len(self.egraph.applications))
            self.search.forget()
            frontier = [*found, *(world for world in self._meetings(fresh) if self._fresh(world))]
            # A world kept early may have nothing new left by now.
            frontier = [world for world in frontier if self._fresh(world)]
            if not frontier:
                return "saturated" if not self.left_out else "everything in the cheapest worlds was tried"
        return f"{turns} turns"

    def full(self) -> str | None:
        """Why it must stop, ``None`` while it may go on."""
        return self.search.budget.exhausted() or (
            "e-nodes used up" if len(self.egraph) - len(self.egraph.start) >= self.most else None
        )

    def together(self, numbers: Sequence[int], start: ReducedState | None = None) -> ReducedState:
        """A world in which as many of some rewrites were made as go together: the first in the order comes first."""
        world = start or self.search.root
        keys = list(dict.fromkeys(self.egraph.applications[number].key for number in numbers))
        while True:
            done = set[Key]()
            for key in keys:
                if key not in world.open or self.search.budget.exhausted() is not None:
                    continue
                made = self.step(world, key)
                done.add(key)
                world = made or world
            if not done:
                return world
            keys = [key for key in keys if key not in done]

    def step(self, world: ReducedState, key: Key) -> ReducedState | None:
        """Make a rewrite in a world and enter what it makes; ``None`` where the engine refuses."""
        search, state = self.search, world.state
        match = state.sites.matches[key]
        search.budget.spent += 1
        self.egraph.tried(key)
        try:
            graph, delta, _ = search.problem.tried(state, match)
        except RefusedError:
            return None
        after = search.problem.reached(state, graph, delta)
        self.egraph.made(state, key, after, delta)
        made = world.reached(after, match, search.site_classes)
        if made.region is not None or search.adds_up(world, made):
            search.note(Candidate(world, match, made.cost, made.state.cost))
        return made

    def _meetings(self, fresh: Sequence[int]) -> list[ReducedState]:
        """Two worlds in which rewrites meet: all that saves, the most first; and the newest before those that they came from."""
        if not fresh:
            return []
        applications = self.egraph.applications
        saving = sorted((i for i in fresh if applications[i].saving > 0), key=lambda i: -applications[i].saving)
        self._richest = self.together(saving, self._richest)
        return [self._richest, self.together(range(len(applications))[::-1])]

    def _fresh(self, world: ReducedState) -> bool:
        return any(self.egraph.new(key) for key in world.open)

    def _keep_cheapest(self, found: list[ReducedState]) -> None:
        if len(found) > self.worlds:
            found.remove(max(found, key=lambda world: world.state.cost))
            self.left_out += 1


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
        return in_rounds(lambda origin, part: self._round(problem, origin, part, report), start, budget, self.keep)

    def _round(self, problem: Problem, start: State, budget: Budget, report: Report | None) -> Outcome:
        exploring = budget.part(EXPLORING)
        search = PlanSearch(problem, start, exploring, self.keep)
        exploration = Exploration(search, self.worlds, self.nodes)
        reason = exploration.saturate(self.turns)
        if exploring.exhausted():  # there is more left than its share
            reason = "nothing better in what was extracted"
        budget.spent += exploring.spent
        if search.best < start.cost:
            budget.found()
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
            idle = 0 if search.better_than(best) else idle + 1


SPEC = StrategySpec(
    "egraph",
    "equality saturation: a control",
    lambda s: EqualitySaturation(),
    needs=("scipy",),
)
