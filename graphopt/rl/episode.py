"""An episode: the environment without Gymnasium, which training, inference and the environment itself share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphopt.rl.features import STOP, Observation
from graphopt.rl.reward import TERMS, CostChange, EpisodeEnd, percent
from graphopt.rl.task_environment import EpisodeState, TaskEnvironment


@dataclass(frozen=True)
class StepResult:
    """What a step came to.

    Attributes:
        reward: The sum of the task's terms.
        terminated: STOP was chosen.
        truncated: The budget is used up.
    """

    reward: float
    terminated: bool
    truncated: bool

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


class Episode:
    """Rewrites of one model, one after the other, until STOP or the end of the budget.

    Args:
        environment: The model.
        rng: Where the task wants random rewrites before the start, they are drawn from this.
        warm: Whether there are to be any; otherwise it begins with the model as it is.
    """

    def __init__(
        self, environment: TaskEnvironment, rng: np.random.Generator | None = None, *, warm: bool = True
    ) -> None:
        self.environment, self.task = environment, environment.task
        warm_up = environment.task.graphs.warm_up if warm else 0
        self.state: EpisodeState = (
            environment.root if rng is None or not warm_up else environment.warmed_up(rng, warm_up)
        )
        self.best = self.state
        self.used = self._skipped = 0
        self.result = StepResult(0.0, False, False)

    @property
    def observation(self) -> Observation:
        """What an agent sees."""
        seen = self.state.observation
        if not self._skipped:
            return seen
        return replace(seen, graph=self.environment.featurizer.later(seen.graph, self._skipped / self.task.budget))

    def step(self, action: int) -> StepResult:
        """Make a rewrite, or STOP.

        Raises:
            ValueError: The action is masked, or the episode is over.
        """
        mask = self.observation.mask
        if not 0 <= action < len(mask) or not mask[action]:
            raise ValueError(f"action {action} is not legal here: the mask allows {np.flatnonzero(mask).tolist()}")
        self._use()
        if action == STOP:
            self.result = StepResult(self._final(), True, False)
            return self.result
        before = self.state
        self.state = self.environment.after(before, action)
        if self.state.cost < self.best.cost:
            self.best = self.state
        change = CostChange(before.cost, self.state.cost, self.state.start_ms)
        reward = 0.0
        if len(self.state.steps) > len(before.steps):  # else the rewrite was impossible after all
            for term in self.task.reward:
                dense = TERMS[term.term].dense
                reward += 0.0 if dense is None else term.weight * dense(change)
        self.result = StepResult(reward, False, self.used >= self.task.budget)
        return self.result

    def skip(self) -> StepResult:
        """Let a step of the budget pass.

        Raises:
            ValueError: The episode is over.
        """
        self._use()
        self._skipped += 1
        self.result = StepResult(0.0, False, self.used >= self.task.budget)
        return self.result

    def saving(self) -> float:
        """Predicted saving of the present state, in percent of the model as it was."""
        start = self.environment.start.cost
        return percent(start, self.state.cost, start)

    def _use(self) -> None:
        if self.result.done:
            raise ValueError("the episode is over: reset it")
        self.used += 1

    def _final(self) -> float:
        finals = [(t.weight, f) for t in self.task.reward if (f := TERMS[t.term].final) is not None]
        if not finals:
            return 0.0
        start, end = self.environment.start.graph, self.state.search_state.graph
        ended = EpisodeEnd(start, end, lambda: self.environment.speedup(end))
        return sum(weight * final(ended) for weight, final in finals)
