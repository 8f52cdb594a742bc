"""The cost models, by name. A new one is a file with a :class:`CostModelSpec`, and its line in :mod:`graphopt.registry`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphopt import registry
from graphopt.cost.base import CostModel, Costs
from graphopt.cost.store import Store
from graphopt.errors import GraphoptError
from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph
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


class OutsideModel:
    """A cost model that a package adds: what goes wrong in it is told with its name, and is no fault of graphopt.

    Raises:
        GraphoptError: It can't be made.
    """

    def __init__(self, spec: CostModelSpec, wanted: Wanted) -> None:
        self.name, self._begun = spec.name, False
        with registry.COST_MODELS.blamed(self.name):
            self._model = spec.make(wanted)

    @property
    def spent(self) -> float:
        """See :attr:`graphopt.cost.base.CostModel.spent`."""
        with registry.COST_MODELS.blamed(self.name):
            return self._model.spent

    def of(self, graph: Graph) -> Costs:
        """See :meth:`graphopt.cost.base.CostModel.of`."""
        with registry.COST_MODELS.blamed(self.name):
            return self._held(self._model.of(graph))

    def after(self, costs: Costs, graph: Graph, delta: Delta) -> Costs:
        """See :meth:`graphopt.cost.base.CostModel.after`."""
        with registry.COST_MODELS.blamed(self.name):
            return self._held(self._model.after(costs, graph, delta))

    def total_after(self, costs: Costs, graph: Graph, delta: Delta) -> float:
        """See :meth:`graphopt.cost.base.CostModel.total_after`."""
        with registry.COST_MODELS.blamed(self.name):
            return self._time(self._model.total_after(costs, graph, delta))

    def correct(
        self, before: tuple[Graph, Costs], after: tuple[Graph, Costs], speedup: float, ci95: tuple[float, float]
    ) -> bool:
        """See :meth:`graphopt.cost.base.CostModel.correct`."""
        with registry.COST_MODELS.blamed(self.name):
            return self._model.correct(before, after, speedup, ci95)

    def settle(self) -> None:
        """See :meth:`graphopt.cost.base.CostModel.settle`."""
        with registry.COST_MODELS.blamed(self.name):
            self._model.settle()

    def _held(self, costs: Costs) -> Costs:
        registry.COST_MODELS.returned(self.name, costs, (Costs,))
        self._time(costs.total)
        return costs

    def _time(self, total: float) -> float:
        """A predicted time: infinite where a graph may not be, but for the first, which is."""
        ms = float(total)
        if not ms >= 0 or (ms == math.inf and not self._begun):
            raise GraphoptError(
                f"{registry.COST_MODELS.called(self.name)} predicts that a graph takes {ms} ms", registry.THEIRS
            )
        self._begun = True
        return ms


COST_MODELS: Registry[CostModelSpec] = Registry(registry.COST_MODELS, CostModelSpec, outside=OutsideModel)
"""Cost models by name."""
