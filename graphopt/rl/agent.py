"""A trained agent at work: its networks run in ONNX Runtime, without torch."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.config import agents_dir
from graphopt.registry import strategy_of
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import Rule
from graphopt.rl.episode import Episode
from graphopt.rl.features import Batch, Floats, Integers, Observation
from graphopt.rl.manifest import CheckpointError, Manifest, read_manifest
from graphopt.rl.play import TEMPERATURES, Policy, PriorPolicy, Scores, play
from graphopt.rl.rule_features import RuleBatch
from graphopt.rl.task import Task
from graphopt.rl.task_environment import EpisodeState, TaskEnvironment
from graphopt.runtime import guard
from graphopt.runtime.session import Session, SessionConfig
from graphopt.search.backtracking import Backtracking
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, Report, State, cheapest

ENCODER, RULES, CONTROLLER, MEMORY = "encoder.onnx", "rules.onnx", "controller.onnx", "memory.onnx"
EPISODES_PER_ROUND = 3
"""Episodes of an agent in use that are played side by side."""
_MIN_ROUND_GAIN = 1e-3  # share of the cost that a round must have gained for another one to be played
_FINISHING_CANDIDATES = 256  # candidates of the search around an agent's best plan
_KEPT = 4  # best plans to carry out and to measure
_MAX_NAMED_RULES = 4  # rules that a notice names
_NETWORK_S = 60.0  # seconds that opening a network, or a run of it, may take


class AgentNotice(UserWarning):
    """Something about an agent that its user should know."""


class _Network:
    """A model of an agent. One that did not come with graphopt may have come from anywhere, and runs in the child, with limits."""

    def __init__(self, path: Path) -> None:
        config, ours = SessionConfig(threads=1), path.resolve().is_relative_to(agents_dir().resolve())
        self._session = Session(path, config) if ours else guard.open_guarded(path, config, seconds=_NETWORK_S)
        self.input_specs = self._session.input_specs

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run it, in another child if a model under test has ended the last one."""
        guard.revive(self._session)
        return self._session.run(feeds)


class RuntimePolicy:
    """An exported agent as :class:`graphopt.rl.play.Policy`.

    Args:
        folder: Where the exported models are.
        rules: The library's rules, in its order.

    Raises:
        CheckpointError: A model is missing.
    """

    def __init__(self, folder: Path, rules: Sequence[Rule]) -> None:
        for name in (ENCODER, RULES, CONTROLLER):
            if not (folder / name).is_file():
                raise CheckpointError(f"{folder}: {name} is missing: training has not come to its end", "see --resume")
        self._encoder = _Network(folder / ENCODER)
        self._controller = _Network(folder / CONTROLLER)
        self._recall = _Network(folder / MEMORY) if (folder / MEMORY).is_file() else None
        self._memory = np.zeros((0, 0), np.float32)
        self._encoded: tuple[Floats, Floats, Integers] | None = None
        batch = RuleBatch.of(rules)
        (self._table,) = _Network(folder / RULES).run({f.name: getattr(batch, f.name) for f in fields(batch)})

    def begin(self, lanes: int) -> None:
        """See :class:`graphopt.rl.play.Policy`."""
        if self._recall is not None:
            width = next(spec.shape[1] for spec in self._recall.input_specs if spec.name == "memory")
            assert isinstance(width, int)
            self._memory = np.zeros((lanes, width), np.float32)

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """See :class:`graphopt.rl.play.Policy`."""
        # Where nothing is left to compute: the networks take no graph without a node.
        if not any(len(o.operators) for o in observations):
            self._encoded = None
            return Scores([np.zeros(len(o.mask)) for o in observations], np.zeros(len(observations)))
        b = Batch.of(observations)
        embedded, whole = self._encoder.run(
            {name: getattr(b, name) for name in ("operators", "nodes", "links", "edges", "graphs", "node_graph")}
        )
        remembered = {} if self._recall is None else {"memory": self._memory[list(lanes)]}
        scores, values, *encoded = self._controller.run(
            {
                "embedded": embedded,
                "whole": whole,
                "table": self._table,
                **remembered,
                **{name: getattr(b, name) for name in ("rules", "sites", "actions", "action_graph")},
            }
        )
        self._encoded = (encoded[0], encoded[1], b.first[:-1]) if encoded else None
        return Scores(np.split(scores.astype(np.float64), b.first[1:-1]), values.astype(np.float64))

    def chose(self, lanes: Sequence[int], actions: Sequence[int]) -> None:
        """See :class:`graphopt.rl.play.Policy`."""
        if self._recall is None or self._encoded is None:
            return
        latent, embeddings, first = self._encoded
        feeds = {"latent": latent, "look": embeddings[first + np.array(actions)], "memory": self._memory[list(lanes)]}
        (self._memory[list(lanes)],) = self._recall.run(feeds)


class Untrained:
    """An agent as a strategy, here one that has learned nothing: the control of those that have.

    It plays episodes, a few at a time for as long as they find something better, and search finishes the best plans by predicted
    cost: greedy each of them, and the model as it was, and a short backtracking the best.
    An agent knows what to do about what shapes a model, and is vague about what saves a hundredth of a per cent, which these find at once.

    Args:
        task: What is seen and offered.
        rollouts: Episodes that follow chance, at most, besides the one of the likeliest actions.
        seed: Seed of that chance.

    Attributes:
        steps: Environment steps of the last run.
        alone: Predicted milliseconds of its best plan before search finished it.
    """

    name = "untrained"

    def __init__(self, task: Task, rollouts: int = 8, seed: int = 0) -> None:
        self.steps, self.alone = 0, 0.0
        self.task, self.rollouts, self.seed = task, rollouts, seed

    def policy(self, environment: TaskEnvironment) -> Policy:
        """What plays."""
        return PriorPolicy()

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        plans = self._played(problem, start, budget)
        self.alone = plans[0].state.cost
        if report is not None:
            report(plans[0].state)
        for plan in tuple(plans):
            plans.append(plan.then(Greedy().run(problem, plan.state, budget)))
        plan = min(plans, key=lambda plan: plan.state.cost)
        part = budget.part(1.0, _FINISHING_CANDIDATES)
        plans.append(plan.then(Backtracking().run(problem, plan.state, part)))
        budget.spent += part.spent
        best, *others = cheapest(plans, _KEPT)
        if report is not None:
            report(best.state)
        return replace(best, candidates=budget.spent, seconds=budget.elapsed, others=tuple(others))

    def _played(self, problem: Problem, start: State, budget: Budget) -> list[Outcome]:
        """The best plans of some episodes, and the model as it was, so that greedy's own plan is never missed."""
        # Nothing is paid to an agent that is used: a reward may have to be measured.
        environment = TaskEnvironment(replace(self.task.from_the_model, reward=()), problem, start)
        policy = self.policy(environment)
        rngs = [None, *(np.random.default_rng([self.seed, i]) for i in range(self.rollouts))]
        found: dict[int, EpisodeState] = {}
        costs: list[float] = []  # of the best of each episode

        def go_on() -> bool:
            budget.spent = spent + environment.candidates
            return budget.exhausted() is None

        def watch(episode: Episode) -> None:
            costs.append(episode.best.cost)
            for state in (episode.best, episode.state):
                found[state.search_state.graph.hash] = state

        spent = budget.spent
        self.steps = 0
        for begin in range(0, len(rngs), EPISODES_PER_ROUND):
            lanes = rngs[begin : begin + EPISODES_PER_ROUND]
            played = play(
                [environment] * len(lanes), policy, lanes, temperatures=TEMPERATURES, go_on=go_on, watch=watch
            )
            self.steps += sum(trajectory.steps for trajectory in played)
            over = not go_on()  # asked in any case: it counts what the last steps have priced, too
            if over or min(costs[begin:]) > (1 - _MIN_ROUND_GAIN) * min(costs[:begin] or costs[:1]):
                break
        reason = budget.exhausted() or f"{len(costs)} episodes played"
        best = heapq.nsmallest(_KEPT, found.values(), key=lambda p: p.cost)
        plans = [
            Outcome(p.search_state, p.steps, budget.spent, budget.elapsed, reason) for p in best if p.cost < start.cost
        ]
        return [*plans, Outcome(start, (), budget.spent, budget.elapsed, reason)]


class Learned(Untrained):
    """A trained agent as a strategy, of a folder that `graphopt train-agent` wrote.

    Raises:
        CheckpointError: There is no agent in the folder, or it can't be used.
    """

    def __init__(self, folder: Path, rollouts: int = 8, seed: int = 0) -> None:
        self.folder, self.manifest = folder, read_manifest(folder)
        super().__init__(self.manifest.task, rollouts, seed)
        self.name = strategy_of(self.manifest.algorithm)

    def policy(self, environment: TaskEnvironment) -> Policy:
        """See :class:`Untrained`."""
        self._tell(environment)
        return RuntimePolicy(self.folder, environment.problem.library.rules)

    def _tell(self, environment: TaskEnvironment) -> None:
        """Name the rules that the agent was not trained with, where they have a place in this model."""
        here = {key[0] for key in environment.start.sites.matches}
        new = unknown_rules(self.manifest, environment.problem.library)
        met = [rule for rule in new if rule in here]
        if met:
            named = ", ".join(met[:_MAX_NAMED_RULES]) + (
                f" and {len(met) - _MAX_NAMED_RULES} more" if len(met) > _MAX_NAMED_RULES else ""
            )
            warnings.warn(
                f"the agent was not trained with {named}: it judges by what the rules say", AgentNotice, stacklevel=3
            )


def unknown_rules(manifest: Manifest, library: Library) -> list[str]:
    """Rules that an agent was not trained with, or not in their present form."""
    return [rule.id for rule in library.rules if manifest.rules.get(rule.id) != rule.hash]
