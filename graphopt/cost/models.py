"""The cost models, by name. A new one is a file with a :class:`CostModelSpec`, and its line in :mod:`graphopt.registry`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphopt import registry
from graphopt.cost.base import CostModel
from graphopt.cost.store import Store
from graphopt.registry import Registry
from graphopt.runtime.session import SessionConfig


@dataclass(frozen=True)
class Wanted:
    """What is asked of a cost model.

    Attributes:
        store: Measurements of earlier runs.
        config: How the sessions are opened that it is to predict.
        measure: Whether it may measure.
        seconds: For how long, in all.
        kernels: How many windows, in all; ``None`` for no limit.
        dims: Sizes of symbolic dimensions by name.
        prices: Milliseconds by operator, where someone gives them.
        growth: By how many bytes weights may outgrow those of the first graph that is priced.
    """

    store: Store
    config: SessionConfig
    measure: bool = True
    seconds: float = math.inf
    kernels: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    growth: float = math.inf


@dataclass(frozen=True)
class CostModelSpec:
    """A way to price a graph, as the command line, the API and tasks know it.

    Attributes:
        name: By which it is chosen.
        doc: One line for people.
        make: Makes it.
        options: What it heeds of ``measure`` and ``prices``.
        needs: Modules that it imports and graphopt's base does not bring.
    """

    name: str
    doc: str
    make: Callable[[Wanted], CostModel]
    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


COST_MODELS: Registry[CostModelSpec] = Registry(registry.COST_MODELS, CostModelSpec)
"""Cost models by name."""
