"""Strategies by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphopt.config import Settings, agents_dir
from graphopt.errors import UnknownNameError, UsageError
from graphopt.search.auto import Auto
from graphopt.search.backtracking import Backtracking, Beam, RandomWalk
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Strategy

STRATEGIES: dict[str, Callable[[float, int], Strategy]] = {
    "auto": lambda alpha, seed: Auto(alpha),
    "greedy": lambda alpha, seed: Greedy(),
    "backtracking": lambda alpha, seed: Backtracking(alpha),
    "beam": lambda alpha, seed: Beam(),
    "random": lambda alpha, seed: RandomWalk(seed=seed),
}
"""Strategies by name, made from the relaxation alpha and a seed."""
LEARNED = ("rl", "world-model")
"""Strategies of trained agents."""


def make_strategy(settings: Settings) -> Strategy:
    """The strategy that some settings name.

    Raises:
        UsageError: There is none of that name, or the agent is not one of it.
    """
    name, agent = settings.strategy, settings.agent
    if name in STRATEGIES:
        if agent is not None:
            raise UsageError(f"an agent belongs to strategy {' or '.join(LEARNED)}, not to {name}")
        return STRATEGIES[name](settings.alpha, settings.seed)
    if name not in LEARNED:
        raise UnknownNameError("strategy", name, (*STRATEGIES, *LEARNED))
    from graphopt.rl.agent import Learned

    chosen = Learned(Path(agent) if agent is not None else agents_dir() / name, seed=settings.seed)
    if chosen.name != name:
        raise UsageError(
            f"{agent} holds an agent of strategy {chosen.name}, not of {name}", f"use --strategy {chosen.name}"
        )
    return chosen
