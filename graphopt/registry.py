"""What can be chosen by name: our own, one line each in the tables below, and what installed packages add.

An entry is a name and the place of its specification, ``module:attribute``; the module is imported when the name is asked for,
so that names alone cost nothing. A package adds an entry with an entry point of the table's group, in the same form:

    [project.entry-points."graphopt.strategies"]
    annealing = "my_package.annealing:SPEC"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Generic, Protocol, TypeVar

from graphopt.errors import GraphoptError, MissingExtraError, UnknownNameError

EXTRA_OF = {"scipy": "egraph"}
"""Which extra brings a module that a specification needs, where that is not ``train``."""


@dataclass(frozen=True)
class Table:
    """Names, and where their specifications are.

    Attributes:
        kind: What messages call an entry.
        group: Of the entry points by which packages add their own.
        ours: Our own, by name.
    """

    kind: str
    group: str
    ours: Mapping[str, str]

    @cached_property
    def added(self) -> dict[str, str]:
        """Those of installed packages, by name; none takes the place of our own."""
        from importlib.metadata import entry_points  # a tenth of a second, which most commands can do without

        return {entry.name: entry.value for entry in entry_points(group=self.group) if entry.name not in self.ours}

    def names(self) -> tuple[str, ...]:
        """All names, our own first."""
        return (*self.ours, *self.added)


STRATEGIES = Table(
    "strategy",
    "graphopt.strategies",
    {
        "auto": "graphopt.search.auto:SPEC",
        "greedy": "graphopt.search.greedy:SPEC",
        "backtracking": "graphopt.search.backtracking:BACKTRACKING",
        "beam": "graphopt.search.backtracking:BEAM",
        "random": "graphopt.search.backtracking:RANDOM",
        "ils": "graphopt.search.local:SPEC",
        "mcts": "graphopt.search.mcts:SPEC",
        "egraph": "graphopt.search.egraph:SPEC",
        "none": "graphopt.search.normal:SPEC",
    },
)
"""Ways to search; their specifications are :class:`graphopt.search.strategies.StrategySpec`."""
COST_MODELS = Table(
    "cost model",
    "graphopt.cost_models",
    {
        "kernel": "graphopt.cost.kernel:SPEC",
        "analytic": "graphopt.cost.analytic:SPEC",
        "operators": "graphopt.cost.operators:SPEC",
    },
)
"""Ways to price a graph: :class:`graphopt.cost.models.CostModelSpec`."""
LEARNERS = Table(
    "algorithm",
    "graphopt.learners",
    {"ppo": "graphopt.rl.training.learners:PPO_SPEC", "world-model": "graphopt.rl.training.learners:WORLD_MODEL_SPEC"},
)
"""Algorithms that train agents: :class:`graphopt.rl.training.learners.LearnerSpec`."""
_AGENTS = {"ppo": "rl"}


def strategy_of(algorithm: str) -> str:
    """What the strategy is called that uses the agents of an algorithm: like the algorithm, but for the first of all."""
    return _AGENTS.get(algorithm, algorithm)


def strategy_names() -> tuple[str, ...]:
    """Names of all strategies, those of agents last."""
    return (*STRATEGIES.names(), *map(strategy_of, LEARNERS.names()))


def mentioned(*, ours: bool = False) -> dict[str, str]:
    """Names as sentences mention them: what ``{strategies}`` and the like stand for in the help.

    Args:
        ours: Leave out what packages add.
    """
    tables = {table.kind: tuple(table.ours) if ours else table.names() for table in (STRATEGIES, COST_MODELS, LEARNERS)}
    agents = tuple(map(strategy_of, tables[LEARNERS.kind]))
    return {
        "strategies": _listed((*tables[STRATEGIES.kind], *agents)),
        "cost_models": _listed(tables[COST_MODELS.kind]),
        "algorithms": _listed(tables[LEARNERS.kind]),
        "agents": " or ".join(agents),
    }


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence; the first is the default."""
    first, *middle, last = names
    return ", ".join([f"{first} (default)", *middle]) + f" or {last}"


class EntryWarning(UserWarning):
    """What a package adds is broken."""


class Specification(Protocol):
    """What every entry says of itself."""

    @property
    def name(self) -> str:
        """By which it is chosen."""
        ...

    @property
    def doc(self) -> str:
        """One line for people."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules that it imports and graphopt's base does not bring."""
        ...


S = TypeVar("S", bound=Specification)


class Registry(Generic[S]):
    """The specifications of a table.

    Args:
        table: Their names and places.
        kept: Class of a specification.
        more: Makes further ones, of another table.
    """

    def __init__(self, table: Table, kept: type[S], more: Callable[[], Iterable[S]] = tuple) -> None:
        self.table, self._class, self._more = table, kept, more
        self._loaded: dict[str, S] = {}

    def names(self) -> tuple[str, ...]:
        """All names."""
        return (*self.table.names(), *(spec.name for spec in self._more()))

    def get(self, name: str) -> S:
        """A specification.

        Raises:
            UnknownNameError: There is none of this name.
            MissingExtraError: It needs what is not installed.
            GraphoptError: The package that adds it is broken.
        """
        spec = next((spec for spec in self._more() if spec.name == name), None)
        if spec is None:
            place = self.table.ours.get(name) or self.table.added.get(name)
            if place is None:
                raise UnknownNameError(self.table.kind, name, self.names())
            spec = self._loaded.get(name) or self._load(name, place)
        return spec

    def ready(self, name: str) -> S:
        """A specification of which everything is installed that it needs.

        Raises:
            GraphoptError: As for :meth:`get`, or something is missing.
        """
        spec = self.get(name)
        for module in spec.needs:
            if find_spec(module) is None:
                if name in self.table.added:
                    raise GraphoptError(f"{self.table.kind} {name!r} needs {module}, which is not installed")
                raise MissingExtraError(EXTRA_OF.get(module, "train"), module)
        return spec

    def all(self) -> list[S]:
        """All specifications; one that a package breaks is told of and left out."""
        found: list[S] = []
        for name in self.names():
            try:
                found.append(self.get(name))
            except GraphoptError as error:
                if name not in self.table.added:
                    raise
                warnings.warn(str(error), EntryWarning, stacklevel=2)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _load(self, name: str, place: str) -> S:
        module, _, attribute = place.partition(":")
        try:
            spec = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise GraphoptError(f"{self.table.kind} {name!r}: {place} can't be imported: {error}") from error
        if not isinstance(spec, self._class) or spec.name != name:
            raise GraphoptError(f"{self.table.kind} {name!r}: {place} is no {self._class.__name__} of that name")
        self._loaded[name] = spec
        return spec
