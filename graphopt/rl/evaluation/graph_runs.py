"""One graph of an evaluation: agents and searches run on it, each once for a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from graphopt.config import changed_settings
from graphopt.rl.agent import Learned, Untrained
from graphopt.rl.evaluation.scores import OWN, STEPS, Score, Trained
from graphopt.rl.manifest import Manifest
from graphopt.rl.reward import percent
from graphopt.runtime import guard
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Problem, State, Strategy
from graphopt.search.strategies import SEARCHES, StrategySpec

UNTRAINED = Untrained.name


@dataclass(frozen=True)
class Rival:
    """A search that agents are held against.

    Attributes:
        label: What tables call it.
        make: Makes it from a seed.
        whole: Whether it runs to its end whatever budget the others have.
    """

    label: str
    make: Callable[[int], Strategy]
    whole: bool


def searches(*, chance: bool) -> list[Rival]:
    """The searches that agents are held against, those that draw or those that don't."""
    found: list[Rival] = []
    for spec in SEARCHES.all():
        for label, changes in spec.trials.items() if spec.chance == chance else ():
            found.append(Rival(label, partial(_make, spec, changes), spec.whole))
    return found


def _make(spec: StrategySpec, changes: Mapping[str, Any], seed: int) -> Strategy:
    return spec.make(changed_settings(None, {**changes, "seed": seed}))


@dataclass(frozen=True)
class StagedSearch:
    """A search on a graph, as one of a stage that an agent is held against.

    Attributes:
        stage: One of :data:`graphopt.rl.evaluation.scores.STAGES`.
        algorithm: What trained the agent.
        label: What tables call the search.
        strategy: The search.
        seed: Its seed; ``None`` where it knows no chance.
        whole: Whether it runs to its end whatever budget the others have.
    """

    stage: int
    algorithm: str
    label: str
    strategy: Strategy
    seed: int | None = None
    whole: bool = False


@dataclass(frozen=True)
class Agent:
    """An agent of a training run."""

    folder: Path
    manifest: Manifest

    @property
    def algorithm(self) -> str:
        """What trained it."""
        return self.manifest.algorithm

    @property
    def trained(self) -> Trained:
        """What is told of it."""
        m = self.manifest
        return Trained(str(self.folder), m.algorithm, m.seed, m.steps, m.seconds)


@dataclass
class GraphRuns:
    """A graph on which strategies are run; what was run before is not run again."""

    name: str
    problem: Problem
    start: State
    rollouts: int
    interrupted: Callable[[], bool]
    _agents: dict[tuple[Path, int], Score] = field(default_factory=dict)
    _searches: dict[tuple[str, int | None], list[SearchRun]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Whoever comes first pays for what this process learns once about the graph's types and prices, and an agent for the child that runs
        # its networks: its seconds are the budget of the searches.
        guard.ready()
        Greedy().run(self.problem, self.start, Budget(interrupted=self.interrupted))

    def agent(self, stage: int, agent: Agent, seed: int) -> Score | None:
        """A run of an agent; ``None`` if it was interrupted."""
        key = agent.folder, seed
        if self.interrupted():
            return None
        if key not in self._agents:
            learned = Learned(agent.folder, self.rollouts, seed)
            ran = self._run(learned)
            if ran is None:
                return None
            self._agents[key] = ran.score(
                stage=stage,
                model=self.name,
                strategy=agent.algorithm,
                against=agent.algorithm,
                budget=OWN,
                run=str(agent.folder),
                seed=seed,
                steps=learned.steps,
                allowed=None,
                alone=self._saved(learned.alone),
            )
        return replace(self._agents[key], stage=stage)

    def search(self, trial: StagedSearch, budget: str, allowed: float) -> Score | None:
        """A run of a search with so many candidates, or seconds, as the budget has it; ``None`` if it was interrupted."""
        if self.interrupted():
            return None
        most = None if trial.whole else allowed
        candidates = int(most) if most is not None and budget == STEPS else None
        seconds = most if budget != STEPS else None
        known = self._searches.setdefault((trial.label, trial.seed), [])
        ran = next((r for r in known if r.stands_for(candidates, seconds)), None)
        if ran is None:
            ran = self._run(trial.strategy, candidates, seconds)
            if ran is None:
                return None
            known.append(ran)
        return ran.score(
            stage=trial.stage,
            model=self.name,
            strategy=trial.label,
            against=trial.algorithm,
            budget=budget,
            run="",
            seed=trial.seed,
            steps=None,
            allowed=most,
        )

    def _run(self, strategy: Strategy, candidates: int | None = None, seconds: float | None = None) -> SearchRun | None:
        budget = Budget(seconds, candidates, self.interrupted)
        outcome = strategy.run(self.problem, self.start, budget)
        elapsed, ended = budget.elapsed, budget.exhausted() is None
        if self.interrupted():
            return None
        saving = self._saved(outcome.state.cost)
        return SearchRun(candidates, seconds, ended, saving, outcome.candidates, elapsed, outcome.stop_reason)

    def _saved(self, cost: float) -> float:
        """What a predicted cost saves, in percent of the model as it was."""
        return percent(self.start.cost, cost, self.start.cost)


@dataclass(frozen=True)
class SearchRun:
    """A run.

    Attributes:
        most: Candidates that it was given, if they were limited.
        limit: Seconds that it was given, if they were limited.
        ended: Whether it ended by itself.
        saving: See :class:`graphopt.rl.evaluation.scores.Score`.
        candidates: Rewrites priced.
        seconds: Wall-clock seconds that it took.
        stop: Why it ended.
    """

    most: int | None
    limit: float | None
    ended: bool
    saving: float
    candidates: int
    seconds: float
    stop: str

    def score(self, **told: Any) -> Score:
        """The run as a score; ``told`` are the fields that it does not know itself."""
        return Score(saving=self.saving, candidates=self.candidates, seconds=self.seconds, stop=self.stop, **told)

    def stands_for(self, candidates: int | None, seconds: float | None) -> bool:
        """Whether it is what a run with another budget would be."""
        if (self.most, self.limit) == (candidates, seconds):
            return True
        return self.ended and self._free(self.most, self.limit) and self._free(candidates, seconds)

    def _free(self, candidates: int | None, seconds: float | None) -> bool:
        """Whether a budget would not have been felt: backtracking gives each of its rounds a half of what is left."""
        return (candidates is None or 3 * self.candidates < candidates) and (
            seconds is None or 3 * self.seconds < seconds
        )
