"""The Gymnasium environment ``graphopt/GraphRewrite-v0``."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import NoneType
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces

from graphopt.errors import GraphoptError, UnknownNameError, UsageError, expect, expect_path
from graphopt.rl.episode import Episode
from graphopt.rl.features import ACTION_WIDTH, OPERATORS, Featurizer, Observation
from graphopt.rl.task import Source, Task, load_task
from graphopt.rl.training.environments import FileEnvironment, environment_of, library_of
from graphopt.search.trace import Trace

Spaced = dict[str, Any]

_FEATURE_BOUND = 2.0**64  # beyond any feature: an attribute may be any number of 64 bits


class GraphRewrite(gymnasium.Env[Spaced, Any]):
    """Rewrite a model until STOP, or until the budget of the task is used up.

    An observation holds the graph (features of nodes and edges, the index of each node's operator), features of the whole,
    and the actions: the rule of each, the nodes that its pattern matched, its predicted saving, and the mask. Actions are
    padded to the task's limit; :attr:`observed` is the same without padding, which is what the agents here use. With ``fixed_size``
    the graph is padded, too: ``nodes``, ``edges`` and ``links`` (maker and reader of each edge) take the place of ``graph``.

    Action 0 is STOP, always legal, and ends the episode; using up the budget truncates it. A masked action can't be done: it
    leaves everything as it is, for no reward, and only a step of the budget is gone. ``env.action_space.sample(obs["mask"])``
    draws a legal one.

    A copy by :func:`copy.deepcopy` goes on by itself. What is pickled is the task, the prices and the state of chance: an episode
    does not come along, and whoever unpickles an environment resets it.

    ``info`` holds ``model``, ``cost`` (predicted milliseconds), ``saving`` (percent of the model as it was), ``steps`` and
    ``trace``: the rewrites that lead from the model to the graph that is seen. :meth:`trace` makes a file for `graphopt replay`
    of them.

    Args:
        task: A task, its file, or the name of one that comes with graphopt.
        models: Files or zoo names to start from, instead of the task's.
        prices: Store of kernel prices; the user's own by default.
        fixed_size: Room for so many nodes and so many edges: all observations then have the same shapes, as libraries want it that
            know no graphs. A larger graph is an error; random rewrites make some three times as large as they were.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's name for it, a class attribute there too

    def __init__(
        self,
        task: Task | str | Path = "cost",
        models: Sequence[str | Path] | None = None,
        prices: str | Path | None = None,
        fixed_size: tuple[int, int] | None = None,
    ) -> None:
        expect_path("task", task, "a task, its file or its name", Task)
        expect_path("prices", prices, also=NoneType)
        self.task = task if isinstance(task, Task) else load_task(task)
        if models is not None:
            if isinstance(models, str | Path):
                raise UsageError("models must be a list of paths and names of the zoo", f"models=[{str(models)!r}]")
            expect("models", models, (list, tuple), "a list of paths and names of the zoo")
            for model in models:
                expect_path("each of models", model, "a path or a name of the zoo")
            sources = tuple(Source(str(model)) for model in models)
            self.task = replace(self.task, graphs=replace(self.task.graphs, train=sources, shapes=(), family=()))
        if not self.task.graphs.pool:
            raise UsageError(f"task {self.task.name} names no graph to train on", "give some: models=[...]")
        self.task.graphs.check_names()
        self.prices = None if prices is None else Path(prices)
        if fixed_size is not None:
            expect("fixed_size", fixed_size, (tuple, list), "a number of nodes and one of edges")
            if len(fixed_size) != 2 or not all(isinstance(n, int) and n > 0 for n in fixed_size):
                raise UsageError(f"fixed_size must be a number of nodes and one of edges, not {fixed_size}")
        self.fixed_size = None if fixed_size is None else (fixed_size[0], fixed_size[1])
        self._read_rules()
        self.action_space = spaces.Discrete(self._actions)
        self._episode: Episode | None = None
        self._environment: FileEnvironment | None = None

    def _read_rules(self) -> None:
        """Read the rules of the task; how many there are decides the shapes of observations."""
        self._library = library_of(self.task)
        rules = self._library.rules
        self._lines = max((len(rule.match) for rule in rules), default=1)
        self._actions = 1 + self.task.actions.limit
        featurizer = Featurizer(self.task.features.node, self.task.features.edge, self.task.features.graph)
        graph: dict[str, spaces.Space[Any]] = {
            "graph": spaces.Graph(_box(featurizer.node_width), _box(featurizer.edge_width)),
            "operators": spaces.Sequence(spaces.Discrete(OPERATORS), stack=True),
        }
        if self.fixed_size is not None:
            nodes, edges = self.fixed_size
            graph = {
                "nodes": _box(nodes, featurizer.node_width),
                "edges": _box(edges, featurizer.edge_width),
                "links": spaces.Box(-1, nodes - 1, (edges, 2), np.int64),
                "operators": spaces.Box(-1, OPERATORS - 1, (nodes,), np.int64),
            }
        self.observation_space = spaces.Dict(
            {
                **graph,
                "whole": _box(featurizer.graph_width),
                "rules": spaces.Box(-1, max(0, len(rules) - 1), (self._actions,), np.int64),
                "sites": spaces.Box(-1, 2**31, (self._actions, self._lines), np.int64),
                "actions": _box(self._actions, ACTION_WIDTH),
                "mask": spaces.MultiBinary(self._actions),
            }
        )

    def __deepcopy__(self, memo: Any) -> Self:
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        for name, value in vars(self).items():
            # Rules never change: copying all of them would take a quarter of a second, which is long for whoever plans ahead.
            setattr(other, name, value if name == "_library" else copy.deepcopy(value, memo))
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Compiled rules can't be pickled, and an episode is made of them.
        return {**vars(self), "_library": None, "_episode": None, "_environment": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._read_rules()

    @property
    def episode(self) -> Episode:
        """The episode that runs."""
        if self._episode is None:
            raise UsageError("there is no episode yet: reset the environment")
        return self._episode

    @property
    def observed(self) -> Observation:
        """The present observation without padding."""
        return self.episode.observation

    def trace(self) -> Trace:
        """What `graphopt replay` needs to make the episode's steps again."""
        episode, environment = self.episode, self._environment
        assert environment is not None
        return environment.trace(episode.state)

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The mask, under the name that sb3-contrib's agents ask for."""
        mask: np.ndarray[Any, np.dtype[np.bool_]] = _padded(self.observed.mask, 0, self._actions)
        return mask

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Spaced, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of all chance from now on.
            options: ``{"model": NAME}`` says with which model, of any list of the task, or a file; else it is drawn from those that
                the task trains on.

        Raises:
            UsageError: There is no such option, or no such model.
            GraphoptError: The model can't be loaded.
        """
        super().reset(seed=seed)
        expect("options", options, (dict, NoneType), "a dict")
        for name in options or {}:
            if name != "model":
                raise UnknownNameError("option of reset", str(name), ("model",))
        graphs = self.task.graphs
        pool, all_graphs = graphs.pool, (*graphs.train, *graphs.shapes, *graphs.family, *graphs.held_out)
        wanted = (options or {}).get("model")
        known = {s.model: s for s in reversed(all_graphs)} | {s.name: s for s in all_graphs}
        if wanted is None:
            source = pool[int(self.np_random.integers(len(pool)))]
        elif str(wanted) in known:
            source = known[str(wanted)]
        elif Path(str(wanted)).is_file():
            source = Source(str(wanted))
        else:
            raise UnknownNameError("model of this task", str(wanted), known)
        self._environment = environment_of(self.task, source, self.prices, self._library)
        self._episode = Episode(self._environment, self.np_random)
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[Spaced, float, bool, bool, dict[str, Any]]:
        """Make a rewrite, or STOP.

        Raises:
            TypeError: The action is no whole number.
            ValueError: The episode is over, or the action is none of the space.
            GraphoptError: The graph has outgrown ``fixed_size``.
        """
        mask, action = self.observed.mask, operator.index(action)
        if not 0 <= action < self._actions:
            raise ValueError(f"action {action} is none of the space, which has 0 to {self._actions - 1}")
        legal = action < len(mask) and bool(mask[action])
        result = self.episode.step(action) if legal else self.episode.skip()
        return self._seen(), result.reward, result.terminated, result.truncated, self._info()

    def _info(self) -> dict[str, Any]:
        episode = self.episode
        environment, state = episode.environment, episode.state
        return {
            "model": environment.name,
            "cost": state.cost,
            "saving": episode.saving(),
            "steps": episode.used,
            "trace": [asdict(step) for step in state.steps],
        }

    def _seen(self) -> Spaced:
        observation = self.observed
        return {
            **self._graph(observation),
            "whole": observation.graph.copy(),
            "rules": _padded(observation.rules, -1, self._actions),
            "sites": _padded(observation.sites, -1, self._actions),
            "actions": _padded(observation.actions, 0, self._actions),
            "mask": _padded(observation.mask.astype(np.int8), 0, self._actions),
        }

    def _graph(self, observation: Observation) -> Spaced:
        """The part that describes the graph: copies, for whoever keeps one and changes another, as states share what they have in common."""
        if self.fixed_size is None:
            graph = spaces.GraphInstance(observation.nodes.copy(), observation.edges.copy(), observation.links.T.copy())
            return {"graph": graph, "operators": observation.operators.copy()}
        (nodes, edges), found = self.fixed_size, (len(observation.nodes), len(observation.edges))
        if found[0] > nodes or found[1] > edges:
            raise GraphoptError(
                f"{self.episode.environment.name} has {found[0]} nodes and {found[1]} edges by now, and observations have room "
                f"for {nodes} and {edges}",
                f"fixed_size=({max(nodes, 2 * found[0])}, {max(edges, 2 * found[1])})",
            )
        return {
            "nodes": _padded(observation.nodes, 0, nodes),
            "edges": _padded(observation.edges, 0, edges),
            "links": _padded(observation.links.T, -1, edges),
            "operators": _padded(observation.operators, -1, nodes),
        }


def _padded(rows: np.ndarray, fill: int, length: int) -> np.ndarray:
    """A copy with as many rows as asked for."""
    return np.concatenate([rows, np.full((length - len(rows), *rows.shape[1:]), fill, rows.dtype)])


def _box(*shape: int) -> spaces.Box:
    return spaces.Box(-_FEATURE_BOUND, _FEATURE_BOUND, shape, np.float32)
