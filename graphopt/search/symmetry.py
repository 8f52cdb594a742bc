"""Symmetry reduction: explore one of many equal places, apply what is found to all of them.

Twelve equal layers offer every rewrite twelve times. A search over them needs one: in a :class:`ReducedState` a rewrite is
carried out at one place of a class of equal ones, its predicted saving counts as often as there are disjoint places, and
places that it makes count as often as itself. So a candidate costs the same whether a model has 12 layers or 48.
:class:`PlanExpansion` carries the finished plan out everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from graphopt.ir.delta import NO_CHANGE, Delta, RefusedError, together
from graphopt.ir.graph import Graph, Node
from graphopt.ir.types import digest
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Key, Sites
from graphopt.search.problem import Problem, State, Step

_MASK = 2**63 - 1  # arrays of classes are signed
_MAX_REMEMBERED = 1 << 17  # nodes; some 30 MB


@dataclass(frozen=True, slots=True)
class ClassRewrite:
    """A rewrite at all places of a class.

    Attributes:
        rule: Rule id.
        site_class: Which places, see :class:`SiteClasses`.
    """

    rule: str
    site_class: int


class SiteClasses:
    """Tells which matches stand at equal places.

    What counts is what matched nodes look like apart from where they stand: operators, attributes, types, constness, numbers of
    readers. The numbers are the same in every process.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, tuple[int, ...]], int] = {}
        self._classes: dict[tuple[str, tuple[int, ...]], int] = {}

    def of(self, graph: Graph, match: Match) -> int:
        """The class of a match, a number of 63 bits: equal for matches of a rule at equal places."""
        look = match.rule.id, tuple([self._node(graph, graph.nodes[id]) for id in match.nodes])
        found = self._classes.get(look)
        if found is None:
            found = self._classes[look] = digest(*look) & _MASK
        return found

    def _node(self, graph: Graph, node: Node) -> int:
        users = tuple(0 if key is None else len(graph.users[key]) for key in node.outputs)
        found = self._nodes.get((node.id, users))
        if found is None:
            operands = [None if k is None else (str(graph.type(k)), graph.values[k].const) for k in node.inputs]
            results = [None if k is None else (str(graph.type(k)), k in graph.output_keys) for k in node.outputs]
            found = digest(node.domain, node.op, sorted(node.attributes.items()), operands, results, users)
            if len(self._nodes) >= _MAX_REMEMBERED:  # training meets ever new graphs of a model
                self._nodes.clear()
            self._nodes[node.id, users] = found
        return found


@dataclass(frozen=True, eq=False)
class ReducedState:
    """A state in which every plan step was carried out at one place.

    Attributes:
        state: The graph with its sites and costs.
        open: Sites to try, and how many places each stands for.
        cost: Predicted milliseconds with the plan carried out everywhere.
        plan: The moves so far.
        base: Predicted milliseconds of the last state on the way that was the cheapest until then.
        detour_steps: Moves made since that state.
        region: Nodes around these moves; ``None`` where this is that state. A move that costs is made for
            the sake of what it makes possible, so only sites that touch the region follow: the others can be tried without it.
        known: What sites were found to change: predicted milliseconds with the move made at one place.
        covered: Open sites of a class that the plan rewrites already, beside the place where it did: these are among the places that
            counted then.
    """

    state: State
    open: Mapping[Key, int]
    cost: float
    plan: tuple[ClassRewrite, ...] = ()
    base: float = math.inf
    detour_steps: int = 0
    region: frozenset[int] | None = None
    known: dict[Key, float] = field(default_factory=dict)
    covered: frozenset[Key] = frozenset()

    def counts(self, key: Key) -> int:
        """At how many places a rewrite of an open site is one that is not in the plan yet."""
        return 0 if key in self.covered else self.open[key]

    @classmethod
    def start(cls, state: State, site_classes: SiteClasses) -> ReducedState:
        """One place for each class of equal ones, all from the same region of the graph so that their rewrites can meet."""
        position = {node.id: i for i, node in enumerate(state.graph.in_order())}
        classes: dict[int, list[Key]] = {}
        for key in sorted(state.sites.matches, key=lambda k: (position[k[1][0]], k)):
            classes.setdefault(site_classes.of(state.graph, state.sites.matches[key]), []).append(key)
        # The middle of the most frequent place: a layer that has neighbours like itself on both sides.
        largest = max(classes.values(), key=len, default=[])
        anchor = position[largest[len(largest) // 2][1][0]] if largest else 0
        chosen: dict[Key, int] = {}
        for keys in classes.values():
            nearest = min(keys, key=lambda k: (abs(position[k[1][0]] - anchor), k))
            # Sites that overlap the chosen one are other ways to do the same to the same layer: they stay open too.
            for key in keys:
                if key == nearest or set(key[1]) & set(nearest[1]):
                    chosen[key] = disjoint(keys)
        return cls(state, chosen, state.cost, base=state.cost)

    def sites(self) -> list[Key]:
        """The sites from which a search may go on, in a fixed order."""
        region = self.region
        return sorted(k for k in self.open if region is None or not region.isdisjoint(k[1]))

    def after(self, problem: Problem, match: Match, site_classes: SiteClasses) -> ReducedState:
        """The reduced state after a rewrite at one of the open sites.

        Raises:
            RefusedError: The rewrite would break an invariant of the graph.
        """
        return self.reached(problem.step(self.state, match), match, site_classes)

    def reached(self, state: State, match: Match, site_classes: SiteClasses) -> ReducedState:
        """The reduced state after a rewrite that made ``state``."""
        here = match.rule.id, match.nodes
        times = self.open[here]
        before, matches, fresh = self.state.sites.matches, state.sites.matches, state.sites.fresh
        left = {key: n for key, n in self.open.items() if key in matches}
        for key in fresh:
            # What was left out because it equals an open place stays out, unless the rewrite next to it has changed it.
            if key not in left and (
                key not in before
                or site_classes.of(self.state.graph, before[key]) != site_classes.of(state.graph, matches[key])
            ):
                left[key] = times
        move = ClassRewrite(match.rule.id, site_classes.of(self.state.graph, match))
        cost, plan = self.cost + self.counts(here) * (state.cost - self.state.cost), (*self.plan, move)
        alike = {k for k in left if k[0] == move.rule and k in before}
        covered = self.covered.intersection(left).union(
            k for k in alike if site_classes.of(self.state.graph, before[k]) == move.site_class
        )
        near = frozenset(node for key in fresh for node in key[1])
        if state.cost < self.base:
            # Far from the rewrite nothing has changed, so prices still hold there; what is made of them is priced anew.
            known = {k: d for k, d in self.known.items() if k in left and near.isdisjoint(k[1])}
            return ReducedState(state, left, cost, plan, state.cost, known=known, covered=covered)
        region = near if self.region is None else self.region | near
        return ReducedState(state, left, cost, plan, self.base, self.detour_steps + 1, region, covered=covered)


def disjoint(keys: Iterable[Key]) -> int:
    """How many sites of a class can be rewritten side by side: those that share no node with one before."""
    taken: set[int] = set()
    count = 0
    for _, nodes in keys:
        if taken.isdisjoint(nodes):
            taken.update(nodes)
            count += 1
    return count


@dataclass(frozen=True, eq=False)
class _Carried:
    """What became of a plan: the state, the steps to it, and all that they changed."""

    state: State
    steps: tuple[Step, ...] = ()
    delta: Delta = NO_CHANGE


class PlanExpansion:
    """Carries plans out at every place that looks like the one where they were found. Plans share what they begin with.

    On the way only the places of the next move are looked for; those of all rules when someone asks for them.
    """

    def __init__(self, problem: Problem, start: State, site_classes: SiteClasses) -> None:
        self.problem, self.start, self.site_classes = problem, start, site_classes
        self._made: dict[tuple[ClassRewrite, ...], _Carried] = {(): _Carried(start)}
        self._alone: dict[str, Sites] = {}

    def of(self, plan: tuple[ClassRewrite, ...]) -> tuple[State, tuple[Step, ...]]:
        """The state after a plan, and its steps."""
        known = len(plan)
        while plan[:known] not in self._made:
            known -= 1
        made = self._made[plan[:known]]
        for i in range(known, len(plan)):
            made = self._made[plan[: i + 1]] = self._everywhere(made, plan[i])
        return made.state, made.steps

    def best_of(self, plan: tuple[ClassRewrite, ...]) -> tuple[State, tuple[Step, ...]]:
        """The cheapest state on the way of a plan, the last one of equals, and the steps to it.

        What a move saves at one place need not be saved at all of them, so a plan can be worth less than what it begins with.
        """
        self.of(plan)
        made = min((self._made[plan[:n]] for n in range(len(plan), -1, -1)), key=lambda made: made.state.cost)
        return made.state, made.steps

    def _everywhere(self, made: _Carried, move: ClassRewrite) -> _Carried:
        before, graph, places = made.state, made.state.graph, self._places(made, move.rule)
        done: list[tuple[Graph, Match]] = []
        deltas: list[Delta] = []
        for key in sorted(places.matches):
            match = places.matches.get(key)
            # An earlier rewrite of this move may have used a node of this place.
            if match is None or self.site_classes.of(graph, match) != move.site_class:
                continue
            try:
                after, delta = self.problem.rewrite(graph, match)
            except RefusedError:
                continue
            done.append((graph, match))
            deltas.append(delta)
            graph, places = after, places.after(after, delta)
        if not done:
            return made
        delta = together(deltas)
        costs, whole = self.problem.cost.after(before.costs, graph, delta), together([made.delta, delta])
        # Priced once, all together: each place has an equal share.
        share = (costs.total - before.cost) / len(done)
        steps = [
            self.problem.record(*place, before.cost + share * i, before.cost + share * (i + 1))
            for i, place in enumerate(done)
        ]
        return _Carried(
            State(graph, partial(self.start.sites.after, graph, whole), costs), (*made.steps, *steps), whole
        )

    def _places(self, made: _Carried, rule: str) -> Sites:
        """Where a rule applies once a plan is carried out."""
        if rule not in self._alone:
            self._alone[rule] = self.start.sites.only(self.problem.library.by_id[rule])
        return self._alone[rule].after(made.state.graph, made.delta)
