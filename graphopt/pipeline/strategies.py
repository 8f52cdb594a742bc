"""All strategies: the searches, and those of trained agents, one for each algorithm that trains them."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

from graphopt.config import Settings, agents_dir
from graphopt.errors import UsageError
from graphopt.registry import LEARNERS, Registry, strategy_of
from graphopt.search.problem import Strategy
from graphopt.search.strategies import SEARCHES, Outside, StrategySpec

AGENT = "agent"
"""The setting that a strategy of agents heeds."""


@cache
def _of_agents() -> tuple[StrategySpec, ...]:
    found = []
    for algorithm in LEARNERS.names():
        name = strategy_of(algorithm)
        found.append(
            StrategySpec(
                name,
                f"an agent that {algorithm} trained; experimental",
                partial(_learned, name, algorithm),
                (AGENT, "seed"),
            )
        )
    return tuple(found)


STRATEGIES: Registry[StrategySpec] = Registry(SEARCHES.table, StrategySpec, _of_agents, Outside)
"""Strategies by name."""


def takes_agent(name: str) -> bool:
    """Whether a strategy is one of agents."""
    return AGENT in STRATEGIES.get(name).options


def make_strategy(settings: Settings) -> Strategy:
    """The strategy that some settings name.

    Raises:
        UsageError: There is none of that name, or the agent is not one of it.
        GraphoptError: The package that adds it is broken.
    """
    spec = STRATEGIES.ready(settings.strategy)
    if settings.agent is not None and AGENT not in spec.options:
        takers = [spec.name for spec in _of_agents()]
        raise UsageError(f"an agent belongs to strategy {' or '.join(takers)}, not to {spec.name}")
    return spec.make(settings)


def _learned(name: str, algorithm: str, settings: Settings) -> Strategy:
    from graphopt.rl.agent import Learned

    agent = settings.agent
    folder = Path(agent) if agent is not None else agents_dir() / name
    if agent is None and not folder.is_dir():
        Registry[Any](LEARNERS, object).get(algorithm)  # which could not train one either where it can't be imported
        hint = f"train one: graphopt train-agent --algo {algorithm} --out DIR, and give --agent DIR"
        raise UsageError(f"strategy {name!r} needs an agent, and none comes with graphopt", hint)
    chosen = Learned(folder, seed=settings.seed)
    if chosen.name != name:
        raise UsageError(
            f"{agent} holds an agent of strategy {chosen.name}, not of {name}", f"use --strategy {chosen.name}"
        )
    return chosen
