"""What can be chosen by name: our own, one line each in the tables below, and what installed packages add.

An entry is a name and the place of its specification, ``module:attribute``; the module is imported when the name is asked for,
so that names alone cost nothing. A package adds an entry with an entry point of the table's group, in the same form:

    [project.entry-points."graphopt.strategies"]
    annealing = "my_package.annealing:SPEC"
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar, cast

from graphopt.errors import GraphoptError, MissingExtraError, UnknownNameError, unexpected

THEIRS = "this is a fault of that package; GRAPHOPT_DEBUG=1 shows the traceback"
"""The hint where something that a package adds goes wrong."""
EXTRA_OF = {"scipy": "egraph"}
"""Which extra brings a module that a specification needs, where that is not ``train``."""


@dataclass(frozen=True)
class Added:
    """What an installed package adds.

    Attributes:
        place: Where its specification is.
        package: The package.
    """

    place: str
    package: str


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
    def added(self) -> dict[str, Added]:
        """Those of installed packages, by name; none takes the place of our own."""
        return {name: entry for name, entry in self._outside.items() if name not in self.ours}

    @cached_property
    def displaced(self) -> dict[str, Added]:
        """Those of installed packages that are called like our own, and are therefore not used."""
        return {name: entry for name, entry in self._outside.items() if name in self.ours}

    @cached_property
    def _outside(self) -> dict[str, Added]:
        from importlib.metadata import entry_points  # a tenth of a second, which most commands can do without

        found = entry_points(group=self.group)
        return {entry.name: Added(entry.value, entry.dist.name if entry.dist else "unknown") for entry in found}

    def names(self) -> tuple[str, ...]:
        """All names, our own first."""
        return (*self.ours, *self.added)

    def called(self, name: str) -> str:
        """What messages call an entry: of what a package adds, they name the package."""
        entry = self.added.get(name)
        return f"{self.kind} {name!r}" + (f" of package {entry.package}" if entry else "")

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """What goes wrong in an entry that a package adds is told with its name: it is no fault of graphopt.

        Raises:
            GraphoptError: Something did.
        """
        try:
            yield
        except (GraphoptError, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # theirs, and of any kind
            if name not in self.added:
                raise
            raise GraphoptError(f"{self.called(name)}: {unexpected(error)}", THEIRS) from error

    def returned(self, name: str, found: object, kinds: tuple[type, ...]) -> None:
        """See that what an entry of a package returns is of some type.

        Raises:
            GraphoptError: It is not.
        """
        if not isinstance(found, kinds) and name in self.added:
            what = kinds[0].__name__
            article = "an" if what[0] in "AEIOU" else "a"
            raise GraphoptError(f"{self.called(name)} returned {type(found).__name__}, not {article} {what}", THEIRS)


STRATEGIES = Table(
    "strategy",
    "graphopt.strategies",
    {
        "auto": "graphopt.search.backtracking:AUTO",
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
        "analytic": "graphopt.cost.analytic:ANALYTIC",
        "operators": "graphopt.cost.analytic:OPERATORS",
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
_FOR_TASKS = {"operators"}
"""Cost models that need what only a task says: prices."""


def strategy_of(algorithm: str) -> str:
    """What the strategy is called that uses the agents of an algorithm: like the algorithm, but for the first of all."""
    return _AGENTS.get(algorithm, algorithm)


def strategy_names() -> tuple[str, ...]:
    """Names of all strategies, those of agents last."""
    return (*STRATEGIES.names(), *map(strategy_of, LEARNERS.names()))


def cost_model_names(*, ours: bool = False) -> tuple[str, ...]:
    """Names of the cost models that a setting may name.

    Args:
        ours: Leave out what packages add.
    """
    names = tuple(COST_MODELS.ours) if ours else COST_MODELS.names()
    return tuple(name for name in names if name not in _FOR_TASKS)


def mentioned(*, ours: bool = False) -> dict[str, str]:
    """Names as sentences mention them: what ``{strategies}`` and the like stand for in the help.

    Args:
        ours: Leave out what packages add.
    """
    tables = {table.kind: tuple(table.ours) if ours else table.names() for table in (STRATEGIES, LEARNERS)}
    agents = tuple(map(strategy_of, tables[LEARNERS.kind]))
    return {
        "strategies": _listed((*tables[STRATEGIES.kind], *agents)),
        "cost_models": _listed(cost_model_names(ours=ours)),
        "algorithms": _listed(tables[LEARNERS.kind]),
        "agents": " or ".join(agents),
    }


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence; the first is the default."""
    first, *middle, last = names  # of each there are at least two
    return ", ".join([f"{first} (default)", *middle]) + f" or {last}"


class EntryWarning(UserWarning):
    """What a package adds is broken, or called like our own."""


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
        outside: Stands in for what a package's specification makes, and tells faults with its name: made of the specification and what that is
            made of.
    """

    def __init__(
        self,
        table: Table,
        kept: type[S],
        more: Callable[[], Iterable[S]] = tuple,
        outside: Callable[..., Any] | None = None,
    ) -> None:
        self.table, self._class, self._more, self._outside = table, kept, more, outside
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
            if name not in self.table.names():
                raise UnknownNameError(self.table.kind, name, self.names())
            if displaced := self.table.displaced.get(name):
                text = f"package {displaced.package} adds a {self.table.kind} {name!r}, which is not used: graphopt has one of that name"
                warnings.warn(text, EntryWarning, stacklevel=2)
            spec = self._loaded.get(name) or self._load(name)
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
                    raise GraphoptError(f"{self.table.called(name)} needs {module}, which is not installed")
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

    def _load(self, name: str) -> S:
        entry = self.table.added.get(name)
        place = entry.place if entry is not None else self.table.ours[name]
        module, _, attribute = place.partition(":")
        try:
            spec = getattr(import_module(module), attribute)
        except Exception as error:  # what a package runs when it is imported may raise anything
            if entry is None and not isinstance(error, ImportError | AttributeError):
                raise
            said = error if isinstance(error, ImportError | AttributeError) else unexpected(error)
            raise GraphoptError(f"{self.table.called(name)}: {place} can't be imported: {said}") from error
        if not isinstance(spec, self._class) or spec.name != name:
            raise GraphoptError(f"{self.table.called(name)}: {place} is no {self._class.__name__} of that name")
        if entry is not None and self._outside is not None:
            spec = replace(cast("Any", spec), make=partial(self._outside, spec))
        self._loaded[name] = spec
        return self._loaded[name]
