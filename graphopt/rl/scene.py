"""A model made ready for episodes: rules, prices, and what was found out about it in earlier ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from graphopt.config import Settings
from graphopt.cost.environment import environment as environment_of
from graphopt.cost.store import Store
from graphopt.errors import UsageError
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import Model
from graphopt.rewrite.sites import Key
from graphopt.rl.features import ACTION_WIDTH, Observation, View, Viewer, scaled
from graphopt.rl.task import Task
from graphopt.runtime.feeds import make_feeds
from graphopt.runtime.session import Session, SessionConfig
from graphopt.search.arena import Arena, most_bytes
from graphopt.search.normal import Normal
from graphopt.search.problem import Problem, State, Step
from graphopt.search.quotient import Move, Signatures, Spread, disjoint
from graphopt.search.trace import Trace, options_of
from graphopt.verification.ranges import input_ranges

_REMEMBERED = 128  # positions of a model kept for later episodes: their beginnings are much alike
_GRAPHS = 256  # graphs of a model kept, and rewrites of them: the same ones in another order lead to the same graph

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A dictionary that forgets what was not used for longest."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def recall(self, key: K, make: Callable[[], V]) -> V:
        """What was made for a key, or what is made now."""
        if key in self:
            self.move_to_end(key)
        else:
            self[key] = make()
            if len(self) > self.size:
                self.popitem(last=False)
        return self[key]


@dataclass(frozen=True, slots=True)
class Offer:
    """A rewrite that may be chosen.

    Attributes:
        here: Predicted milliseconds that it saves at one place, ``None`` when it is not legal.
        step: The step that brought it.
    """

    here: float | None
    step: int


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
class Ground:
    """What is known of a graph, however an episode came to it.

    Attributes:
        state: The graph, with its sites and predicted cost.
        view: Its features.
        identities: Of its sites, in a fixed order: those that look the same have the same.
    """

    state: State
    view: View
    identities: Mapping[Key, int]


@dataclass(frozen=True, eq=False)
class Position:
    """Where an episode stands.

    Attributes:
        ground: The graph.
        steps: The rewrites that led here.
        path: What was tried, as keys; it names the position.
        warm: How many of them were random rewrites before the episode began.
        seen: Hashes of the graphs on the way.
        offers: What is known of each place that was priced.
        choices: The actions 1, 2, ...
        start_ms: Predicted milliseconds where the episode began.
        observation: What an agent sees.
    """

    ground: Ground
    steps: tuple[Step, ...]
    path: tuple[Key, ...]
    warm: int
    seen: frozenset[int]
    offers: Mapping[Key, Offer]
    choices: tuple[Choice, ...]
    start_ms: float
    observation: Observation

    @property
    def state(self) -> State:
        """The graph, with its sites and predicted cost."""
        return self.ground.state

    @property
    def cost(self) -> float:
        """Predicted milliseconds."""
        return self.state.cost


class Scene:
    """A model to begin episodes with.

    Args:
        task: What is seen and offered.
        problem: Rules and prices.
        start: The model's state.
        name: Of the model.
        model: The model as loaded, where traces are written or the clock is asked.
        store: Where measured speed-ups are remembered.
        dims: Sizes of symbolic dimensions that the model was loaded with.

    Attributes:
        priced: Rewrites priced so far: what a search of the same budget counts as candidates.
    """

    def __init__(
        self, task: Task, problem: Problem, start: State, name: str = "", model: Model | None = None,
        store: Store | None = None, dims: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.task, self.problem, self.start, self.name, self.model = task, problem, start, name, model
        self.viewer = Viewer(task.features.node, task.features.edge, task.features.graph)
        self.store = store
        self.dims = dict(dims or {})
        self.priced = 0
        self.rule_index = {rule.id: i for i, rule in enumerate(problem.library.rules)}
        self.site_width = max((len(rule.match) for rule in problem.library.rules), default=1)
        self._signatures = Signatures()
        self._positions: Recent[tuple[int, tuple[Key, ...]], Position] = Recent(_REMEMBERED)
        self._grounds: Recent[int, Ground] = Recent(_GRAPHS)
        self._moves: Recent[tuple[int, int], tuple[Ground, tuple[Step, ...]]] = Recent(_GRAPHS)
        self.root = self._position(self._ground(start, None), None, (), (), 0, start.cost, {})

    def after(self, position: Position, action: int) -> Position:
        """The position after an action other than STOP.

        A rewrite may turn out only now to be impossible, or to lead back when it is made at every place: then the position
        stays, and no longer offers it.
        """
        choice = position.choices[action - 1]
        return self._positions.recall(
            (position.warm, (*position.path, choice.key)), lambda: self._after(position, choice)
        )

    def warmed_up(self, rng: np.random.Generator, most: int) -> Position:
        """A position after up to ``most`` random rewrites, from which an episode begins."""
        position = self.root
        for _ in range(int(rng.integers(0, most + 1))):
            legal = np.flatnonzero(position.observation.mask[1:])
            if not len(legal):
                break
            position = self.after(position, 1 + int(rng.choice(legal)))
        if position is self.root:
            return position
        path = position.path
        return self._position(
            position.ground, position, position.steps, path, len(path), position.cost, position.offers
        )

    def speedup(self, graph: Graph) -> float:
        """How many times as fast as the original a graph runs; measured once and remembered in the store."""
        if self.model is None or self.store is None:
            raise UsageError("a reward that measures needs a model in a file")
        place = f"speedup:{self.start.graph.hash:016x}:{graph.hash:016x}"
        config = SessionConfig(threads=self.task.pricing.threads)
        environment = environment_of(config)
        known = self.store.get_many(environment, [place]).get(place)
        if known is None:
            arena = self._arena(config)
            known = arena.pair(None, graph, self.task.pricing.seconds).speedup
            self.store.put_many(environment, {place: known})
        return known

    def trace(self, position: Position) -> Trace:
        """What `graphopt replay` needs to make the steps of an episode again."""
        if self.model is None:
            raise UsageError("a trace needs a model in a file")
        normal = Normal.of(self.model.graph, self.problem)
        settings = Settings(dims=self.dims, rules=tuple(self.task.rules), exclude=tuple(self.task.exclude))
        return Trace(
            f"{self.model.graph.hash:016x}", self.problem.library.hash, self.problem.block,
            most_bytes(self.model), options_of(settings),
            (*normal.steps, *position.steps), f"{position.state.graph.hash:016x}",
            about={"strategy": "rl", "task": self.task.name, "cost": position.cost},
        )  # fmt: skip

    def forget(self) -> None:
        """Drop what is remembered of earlier episodes; they would be the same without."""
        for remembered in (self._positions, self._grounds, self._moves):
            remembered.clear()

    # -- parts ----------------------------------------------------------------------------------------------------

    def _arena(self, config: SessionConfig) -> Arena:
        assert self.model is not None
        bare = Arena(self.model, self.model, config, {}, most_bytes(self.model))
        with Session(bare.loadable(None), config) as session:
            feeds = make_feeds(session.input_specs, ranges=input_ranges(self.model.graph))
        return replace(bare, feeds=feeds)

    def _after(self, position: Position, choice: Choice) -> Position:
        ground, steps = self._moves.recall(
            (position.state.graph.hash, choice.identity), lambda: self._moved(position.ground, choice)
        )
        path, offers = (*position.path, choice.key), position.offers
        if not steps or (not self.task.actions.revisit and ground.state.graph.hash in position.seen):
            gone = {key: Offer(None, offers[key].step) for key in choice.places if key in offers}
            return self._position(
                position.ground, position, position.steps, path, position.warm, position.start_ms, {**offers, **gone}
            )
        steps = (*position.steps, *steps)
        return self._position(ground, position, steps, path, position.warm, position.start_ms, offers)

    def _moved(self, ground: Ground, choice: Choice) -> tuple[Ground, tuple[Step, ...]]:
        state, steps = self._rewritten(ground.state, choice)
        if not steps:
            return ground, ()
        return self._grounds.recall(state.graph.hash, lambda: self._ground(state, ground)), steps

    def _ground(self, state: State, before: Ground | None) -> Ground:
        """What is known of a graph; what a rewrite has left alone is taken from the graph before it."""
        known = {} if before is None else before.identities
        fresh = frozenset(state.sites.fresh)
        identities = {
            key: known[key] if key in known and key not in fresh else self._identity(state, key)
            for key in sorted(state.sites.matches)
        }
        return Ground(state, self.viewer.view(state.graph, None if before is None else before.view), identities)

    def _rewritten(self, state: State, choice: Choice) -> tuple[State, tuple[Step, ...]]:
        """The state after a rewrite at all its places, and the steps that were possible."""
        if self.task.actions.places == "class":
            plan = (Move(choice.key[0], choice.identity),)
            return Spread(self.problem, state, self._signatures).of(plan)
        match = state.sites.matches[choice.key]
        try:
            after = self.problem.step(state, match)
        except RefusedError:
            return state, ()
        return after, (self.problem.record(state.graph, match, state.cost, after.cost),)

    def _identity(self, state: State, key: Key) -> int:
        if self.task.actions.places == "site":
            return hash((self.rule_index[key[0]], *key[1]))
        return self._signatures.of(state.graph, state.sites.matches[key])

    def _position(
        self,
        ground: Ground,
        before: Position | None,
        steps: tuple[Step, ...],
        path: tuple[Key, ...],
        warm: int,
        start_ms: float,
        known: Mapping[Key, Offer],
    ) -> Position:
        state = ground.state
        seen = (before.seen if before is not None else frozenset()) | {state.graph.hash}
        classes: dict[int, list[Key]] = {}
        for key, identity in ground.identities.items():
            classes.setdefault(identity, []).append(key)
        offers: dict[Key, Offer] = {}
        choices: list[Choice] = []
        for identity, places in classes.items():
            key = next((key for key in places if key in known), places[0])
            offers[key] = known.get(key) or self._offer(state, key, seen, len(path))
            choices.append(Choice(key, tuple(places), disjoint(places), identity))
        limit = self.task.actions.limit
        if len(choices) > limit:
            gains = {c: -np.inf if (o := offers[c.key]).here is None else o.here * c.times for c in choices}
            kept = set(sorted(choices, key=lambda c: (-gains[c], c.key))[:limit])
            choices = [c for c in choices if c in kept]
        observation = self._observe(state, ground.view, offers, choices, start_ms, len(path), warm)
        return Position(ground, steps, path, warm, seen, offers, tuple(choices), start_ms, observation)

    def _offer(self, state: State, key: Key, seen: frozenset[int], step: int) -> Offer:
        """Try a rewrite: whether it can be made, and what it saves."""
        self.priced += 1
        try:
            graph, cost = self.problem.price(state, state.sites.matches[key])
        except RefusedError:
            return Offer(None, step)
        if not self.task.actions.revisit and graph.hash in seen:
            return Offer(None, step)
        return Offer(state.cost - cost, step)

    def _observe(
        self, state: State, view: View, offers: Mapping[Key, Offer], choices: Sequence[Choice], start_ms: float,
        steps: int, warm: int,
    ) -> Observation:  # fmt: skip
        n = 1 + len(choices)
        matches, index = state.sites.matches, view.index
        rules, sites, rows, mask = [-1], [[-1] * self.site_width], [[0.0] * ACTION_WIDTH], [True]
        for choice in choices:
            key, times = choice.key, choice.times
            offer, match = offers[key], matches[key]
            rules.append(self.rule_index[key[0]])
            sites.append([index[id] for id in key[1]] + [-1] * (self.site_width - len(key[1])))
            mask.append(offer.here is not None)
            here = offer.here or 0.0
            hints = bool(match.rule.prefer)
            rows.append([here * times, here, times, hints, hints and match.preferred, offer.step == steps])
        actions = np.array(rows, np.float32)
        actions[:, :2] = scaled(100 * actions[:, :2] / max(start_ms, 1e-12))
        actions[1:, 2] = np.log2(actions[1:, 2]) / 8
        return Observation(
            view.operators, self.viewer.nodes(view, state.costs, start_ms), view.links, view.edges,
            self.viewer.graph(view, state.cost, start_ms, n, (steps - warm) / self.task.budget),
            np.array(rules, np.int64), np.array(sites, np.int64), actions, np.array(mask, np.bool_),
            np.array([0, *(choice.identity for choice in choices)], np.int64),
        )  # fmt: skip
