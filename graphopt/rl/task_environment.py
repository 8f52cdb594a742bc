"""The environment of a task on one model: rules, prices, and what earlier episodes found out about it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.types import digest
from graphopt.rewrite.sites import Key
from graphopt.rl.features import ACTION_WIDTH, Featurizer, GraphFeatures, Observation, scaled
from graphopt.rl.task import Task
from graphopt.search.problem import Problem, State, Step
from graphopt.search.symmetry import ClassRewrite, PlanExpansion, SiteClasses, disjoint

_CACHED_STATES = 128  # states of a model kept for later episodes: their beginnings are much alike
_CACHED_GRAPHS = (
    256  # graphs of a model kept, and rewrites of them: other orders of the same ones lead to the same graph
)

K = TypeVar("K")
V = TypeVar("V")


class LRUCache(OrderedDict[K, V]):
    """A dictionary of bounded size that forgets what was not used for longest."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """What was made for a key, or what is made now."""
        if key in self:
            self.move_to_end(key)
        else:
            self[key] = make()
            if len(self) > self.size:
                self.popitem(last=False)
        return self[key]


@dataclass(frozen=True, slots=True)
class PricedAction:
    """A rewrite that may be chosen, with its price.

    Attributes:
        saving_ms: Predicted milliseconds that it saves at one place, ``None`` when it is not legal.
        since: The step that brought it.
    """

    saving_ms: float | None
    since: int


@dataclass(frozen=True, slots=True)
class Choice:
    """An action other than STOP: a rewrite, at one place or at all that look the same.

    Attributes:
        key: The place that stands for all: seen by the agent, and priced.
        places: All of them, in a fixed order.
        times: How many can be rewritten side by side.
        identity: The same in all observations of an episode that offer it.
    """

    key: Key
    places: tuple[Key, ...]
    times: int
    identity: int


@dataclass(frozen=True, eq=False)
class CachedGraph:
    """What is remembered of a graph, however an episode came to it.

    Attributes:
        state: The graph, with its sites and predicted cost.
        features: Its features.
        identities: Maps each site, in a fixed order, to a number that it shares with those that look the same.
        prices: Hash of the graph and milliseconds after the rewrites that were priced, ``None`` for impossible ones.
    """

    state: State
    features: GraphFeatures
    identities: Mapping[Key, int]
    prices: dict[Key, tuple[int, float] | None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class EpisodeState:
    """Where an episode stands.

    Attributes:
        cached: The graph.
        steps: The rewrites that led here.
        path: What was tried, as keys; it names the state.
        warm: How many of them were random rewrites before the episode began.
        visited: Hashes of the graphs on the way.
        priced_actions: The price of each choice's place, in this graph.
        choices: The actions 1, 2, ...
        start_ms: Predicted milliseconds where the episode began.
        observation: What an agent sees.
    """

    cached: CachedGraph
    steps: tuple[Step, ...]
    path: tuple[Key, ...]
    warm: int
    visited: frozenset[int]
    priced_actions: Mapping[Key, PricedAction]
    choices: tuple[Choice, ...]
    start_ms: float
    observation: Observation

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing of it changes: whoever plans with copies of an environment shares it

    @property
    def search_state(self) -> State:
        """The graph, with its sites and predicted cost."""
        return self.cached.state

    @property
    def cost(self) -> float:
        """Predicted milliseconds."""
        return self.search_state.cost


class TaskEnvironment:
    """A model to begin episodes with.

    Attributes:
        candidates: Rewrites priced and rewrites made so far, each once: what :class:`graphopt.search.plans.PlanSearch` counts, too.
    """

    def __init__(self, task: Task, problem: Problem, start: State, name: str = "") -> None:
        self.task, self.problem, self.start, self.name = task, problem, start, name
        self.featurizer = Featurizer(task.features.node, task.features.edge, task.features.graph)
        self.candidates = 0
        self.rule_index = {rule.id: i for i, rule in enumerate(problem.library.rules)}
        self.site_width = max((len(rule.match) for rule in problem.library.rules), default=1)
        self._site_classes = SiteClasses()
        self._states: LRUCache[tuple[int, tuple[Key, ...]], EpisodeState] = LRUCache(_CACHED_STATES)
        self._graphs: LRUCache[int, CachedGraph] = LRUCache(_CACHED_GRAPHS)
        self._rewrites: LRUCache[tuple[int, int], tuple[CachedGraph, tuple[Step, ...]]] = LRUCache(_CACHED_GRAPHS)
        self.root = self._root()

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # what it holds are the rules, the model, and what was found out about it

    def after(self, state: EpisodeState, action: int) -> EpisodeState:
        """The state after an action other than STOP.

        A rewrite may turn out only now to be impossible, or to lead back when it is made at every place: then the state
        stays, and no longer offers it.
        """
        choice = state.choices[action - 1]
        return self._states.get_or_make((state.warm, (*state.path, choice.key)), lambda: self._after(state, choice))

    def warmed_up(self, rng: np.random.Generator, most: int) -> EpisodeState:
        """A state after up to ``most`` random rewrites, from which an episode begins."""
        state = self.root
        for _ in range(int(rng.integers(0, most + 1))):
            legal = np.flatnonzero(state.observation.mask[1:])
            if not len(legal):
                break
            state = self.after(state, 1 + int(rng.choice(legal)))
        if state is self.root:
            return state
        path = state.path
        return self._episode_state(state.cached, state, state.steps, path, len(path), state.cost)

    def speedup(self, graph: Graph) -> float:
        """How many times as fast as the original a graph runs.

        Raises:
            UsageError: Here it is not known what was read from which file.
        """
        raise UsageError("a reward that measures needs a model in a file")

    def forget(self) -> None:
        """Drop what is remembered of earlier episodes; they would be the same without, and price what they meet anew."""
        for remembered in (self._states, self._graphs, self._rewrites):
            remembered.clear()
        self.root = self._root()

    # -- parts ----------------------------------------------------------------------------------------------------

    def _root(self) -> EpisodeState:
        """The model as it is."""
        return self._episode_state(self._cached_graph(self.start, None), None, (), (), 0, self.start.cost)

    def _after(self, state: EpisodeState, choice: Choice) -> EpisodeState:
        cached, steps = self._rewrites.get_or_make(
            (state.search_state.graph.hash, choice.identity), lambda: self._rewrite(state.cached, choice)
        )
        path = (*state.path, choice.key)
        if not steps or (not self.task.actions.revisit and cached.state.graph.hash in state.visited):
            gone = {*choice.places, *(key for key, priced in state.priced_actions.items() if priced.saving_ms is None)}
            return self._episode_state(state.cached, state, state.steps, path, state.warm, state.start_ms, gone)
        return self._episode_state(cached, state, (*state.steps, *steps), path, state.warm, state.start_ms)

    def _rewrite(self, cached: CachedGraph, choice: Choice) -> tuple[CachedGraph, tuple[Step, ...]]:
        self.candidates += 1
        state, steps = self._rewritten(cached.state, choice)
        if not steps:
            return cached, ()
        return self._graphs.get_or_make(state.graph.hash, lambda: self._cached_graph(state, cached)), steps

    def _cached_graph(self, state: State, before: CachedGraph | None) -> CachedGraph:
        """What is known of a graph; what a rewrite has left alone is taken from the graph before it."""
        known = {} if before is None else before.identities
        fresh = frozenset(state.sites.fresh)
        identities = {
            key: known[key] if key in known and key not in fresh else self._identity(state, key)
            for key in sorted(state.sites.matches)
        }
        return CachedGraph(
            state, self.featurizer.featurize(state.graph, None if before is None else before.features), identities
        )

    def _rewritten(self, state: State, choice: Choice) -> tuple[State, tuple[Step, ...]]:
        """The state after a rewrite at all its places, and the steps that were possible."""
        if self.task.actions.places == "class":
            plan = (ClassRewrite(choice.key[0], choice.identity),)
            return PlanExpansion(self.problem, state, self._site_classes).of(plan)
        match = state.sites.matches[choice.key]
        try:
            after = self.problem.step(state, match)
        except RefusedError:
            return state, ()
        return after, (self.problem.record(state.graph, match, state.cost, after.cost),)

    def _identity(self, state: State, key: Key) -> int:
        if self.task.actions.places == "site":
            return digest(*key) & (2**63 - 1)
        return self._site_classes.of(state.graph, state.sites.matches[key])

    def _episode_state(
        self,
        cached: CachedGraph,
        before: EpisodeState | None,
        steps: tuple[Step, ...],
        path: tuple[Key, ...],
        warm: int,
        start_ms: float,
        gone: Collection[Key] = (),
    ) -> EpisodeState:
        search_state = cached.state
        visited = (before.visited if before is not None else frozenset()) | {search_state.graph.hash}
        earlier = {} if before is None else before.priced_actions
        classes: dict[int, list[Key]] = {}
        for key, identity in cached.identities.items():
            classes.setdefault(identity, []).append(key)
        priced_actions: dict[Key, PricedAction] = {}
        choices: list[Choice] = []
        for identity, places in classes.items():
            key = next((key for key in places if key in earlier), places[0])
            since = earlier[key].since if key in earlier else len(path)
            priced_actions[key] = PricedAction(None if key in gone else self._saving(cached, key, visited), since)
            choices.append(Choice(key, tuple(places), disjoint(places), identity))
        limit = self.task.actions.limit
        if len(choices) > limit:
            gains = {
                c: -np.inf if (o := priced_actions[c.key]).saving_ms is None else o.saving_ms * c.times for c in choices
            }
            kept = set(sorted(choices, key=lambda c: (-gains[c], c.key))[:limit])
            choices = [c for c in choices if c in kept]
        observation = self._observe(search_state, cached.features, priced_actions, choices, start_ms, len(path), warm)
        return EpisodeState(cached, steps, path, warm, visited, priced_actions, tuple(choices), start_ms, observation)

    def _saving(self, cached: CachedGraph, key: Key, visited: frozenset[int]) -> float | None:
        """What a rewrite saves in this graph, far from others too, whose weights share the cache; ``None`` if it can't be made."""
        state, prices = cached.state, cached.prices
        if key not in prices:
            self.candidates += 1
            try:
                graph, cost = self.problem.price(state, state.sites.matches[key])
                prices[key] = graph.hash, cost
            except RefusedError:
                prices[key] = None
        found = prices[key]
        if found is None or (not self.task.actions.revisit and found[0] in visited):
            return None
        return state.cost - found[1]

    def _observe(
        self,
        state: State,
        features: GraphFeatures,
        priced_actions: Mapping[Key, PricedAction],
        choices: Sequence[Choice],
        start_ms: float,
        steps: int,
        warm: int,
    ) -> Observation:
        n = 1 + len(choices)
        matches, index = state.sites.matches, features.index
        rules, sites, rows, mask = [-1], [[-1] * self.site_width], [[0.0] * ACTION_WIDTH], [True]
        for choice in choices:
            key, times = choice.key, choice.times
            priced, match = priced_actions[key], matches[key]
            rules.append(self.rule_index[key[0]])
            sites.append([index[id] for id in key[1]] + [-1] * (self.site_width - len(key[1])))
            mask.append(priced.saving_ms is not None)
            here = priced.saving_ms or 0.0
            hints = bool(match.rule.prefer)
            rows.append([here * times, here, times, hints, hints and match.preferred, priced.since == steps])
        actions = np.array(rows, np.float32)
        actions[:, :2] = scaled(100 * actions[:, :2] / max(start_ms, 1e-12))
        actions[1:, 2] = np.log2(actions[1:, 2]) / 8
        return Observation(
            operators=features.operators,
            nodes=self.featurizer.nodes(features, state.costs, start_ms),
            links=features.links,
            edges=features.edges,
            graph=self.featurizer.graph(features, state.cost, start_ms, n, (steps - warm) / self.task.budget),
            rules=np.array(rules, np.int64),
            sites=np.array(sites, np.int64),
            actions=actions,
            mask=np.array(mask, np.bool_),
            identities=np.array([0, *(choice.identity for choice in choices)], np.int64),
        )
