"""The searches, by name. A new one is a file with a :class:`StrategySpec`, and its line in :mod:`graphopt.registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphopt.config import Settings
from graphopt.registry import STRATEGIES, Registry
from graphopt.search.problem import Strategy


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


SEARCHES: Registry[StrategySpec] = Registry(STRATEGIES, StrategySpec)
"""Strategies without an agent; :data:`graphopt.pipeline.strategies.STRATEGIES` has those of agents as well."""
