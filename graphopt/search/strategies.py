"""The searches, by name. A new one is a file with a :class:`StrategySpec`, and its line in :mod:`graphopt.registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphopt.config import Settings
from graphopt.registry import STRATEGIES, Registry
from graphopt.search.problem import Budget, Outcome, Problem, Report, State, Step, Strategy


@dataclass(frozen=True)
class StrategySpec:
    """A way to search, as the command line, the API and `evaluate-agent` know it.

    Attributes:
        name: By which it is chosen.
        doc: One line for people.
        make: Makes it as some settings say.
        options: Settings that it heeds, of those that are about strategies (``alpha``, ``seed``, ``agent``).
        needs: Modules that it imports and graphopt's base does not bring.
        trials: Settings with which `evaluate-agent` holds agents against it, by the label of each; without one it does not.
        chance: Whether it draws: `evaluate-agent` then runs it with every seed.
        whole: Whether it runs to its end whatever budget the others have.
    """

    name: str
    doc: str
    make: Callable[[Settings], Strategy]
    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    trials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    chance: bool = False
    whole: bool = False


class Outside:
    """A strategy that a package adds: what goes wrong in it is told with its name, and is no fault of graphopt.

    Args:
        spec: Its specification.
        settings: What to make it from.

    Raises:
        GraphoptError: It can't be made.
    """

    def __init__(self, spec: StrategySpec, settings: Settings) -> None:
        self.name = spec.name
        with STRATEGIES.blamed(self.name):
            self._strategy = spec.make(settings)

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """Search from ``start``; ``report`` hears of every better state.

        Raises:
            GraphoptError: It fails, or returns no outcome.
        """
        with STRATEGIES.blamed(self.name):
            found = self._strategy.run(problem, start, budget, report)
        STRATEGIES.returned(self.name, found, (Outcome,))
        STRATEGIES.returned(self.name, found.state, (State,))
        for step in found.steps:
            STRATEGIES.returned(self.name, step, (Step,))
        return found


SEARCHES: Registry[StrategySpec] = Registry(STRATEGIES, StrategySpec, outside=Outside)
"""Strategies without an agent; :data:`graphopt.pipeline.strategies.STRATEGIES` has those of agents as well."""
