"""The task model: what an agent sees, may do and is rewarded for, as a YAML file.

Environment, agents and evaluation read this and nothing else, so a new reward or set of features is a file, not code (the idea
of Wield: Schaarschmidt et al., "Wield: Systematic Reinforcement Learning with Progressive Randomization", 2019).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from graphopt.cost.models import COST_MODELS
from graphopt.documents import DocumentError, compose_yaml, read_text
from graphopt.errors import UnknownNameError, UsageError, nearest, reason
from graphopt.rl.features import EDGE, GRAPH, NODE
from graphopt.rl.reward import TERMS

PLACES = ("class", "site")
STAGES = ("graph", "start", "shapes", "family")
"""What changes between episodes, each on top of the one before: nothing; random rewrites first; shapes of the same
architecture; graphs of the same family. What is beyond, unseen families, are the held-out graphs."""


class TaskError(UsageError):
    """A task file is wrong.

    Args:
        message: What is wrong.
        where: ``file:line:column`` of the offending text.
        hint: The nearest known name, or what to write instead.
    """

    def __init__(self, message: str, where: str = "", hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint)


@dataclass(frozen=True)
class Features:
    """Groups of features, see :mod:`graphopt.rl.features`.

    Attributes:
        node: Groups of features of nodes.
        edge: Groups of features of edges.
        graph: Groups of features of the graph as a whole.
    """

    node: tuple[str, ...] = tuple(NODE)
    edge: tuple[str, ...] = tuple(EDGE)
    graph: tuple[str, ...] = tuple(name for name in GRAPH if name != "progress")


@dataclass(frozen=True)
class Actions:
    """The action space.

    Attributes:
        places: ``site``: an action rewrites one place. ``class``: it rewrites every place that looks the same, so that
            twelve equal layers cost one action, not twelve (:mod:`graphopt.search.symmetry`).
        limit: Actions offered at most, besides STOP; beyond, those with the least predicted saving are left out.
        revisit: Whether a rewrite may lead back to a graph of the same episode.
    """

    places: str = "class"
    limit: int = 256
    revisit: bool = False


@dataclass(frozen=True)
class RewardTerm:
    """A part of the reward, see :mod:`graphopt.rl.reward`.

    Attributes:
        term: Its name.
        weight: Its factor.
    """

    term: str
    weight: float = 1.0


@dataclass(frozen=True)
class Pricing:
    """What a graph costs.

    Attributes:
        model: ``kernel`` (measured on this machine, estimated where nothing was), ``analytic`` (a roofline) or ``operators``
            (a price for each operator, for toys).
        measure: Seconds for measuring kernels of each model before training; 0 uses what is known.
        seconds: Seconds for each measurement of a whole model, where the reward asks for one.
        threads: Threads within an operator.
        prices: Milliseconds by operator, for ``operators``; what is not named is free.
    """

    model: str = "kernel"
    measure: float = 0.0
    seconds: float = 3.0
    threads: int = 1
    prices: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """A graph to start from.

    Attributes:
        model: A file, or a name of the zoo.
        dims: Sizes of symbolic dimensions.
    """

    model: str
    dims: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What people call it."""
        stem = Path(self.model).stem if self.model.endswith(".onnx") else self.model
        sizes = "".join(f",{name}={size}" for name, size in sorted(self.dims.items()))
        return stem + sizes


@dataclass(frozen=True)
class Graphs:
    """Graphs to train on and to hold out.

    Attributes:
        train: Used in every stage.
        shapes: The same architectures in other shapes, used from stage ``shapes`` on.
        family: Other graphs of the same families, used from stage ``family`` on.
        held_out: Never trained on.
        stage: One of :data:`STAGES`.
        start_steps: Random rewrites at most before an episode begins, from stage ``start`` on.
    """

    train: tuple[Source, ...] = ()
    shapes: tuple[Source, ...] = ()
    family: tuple[Source, ...] = ()
    held_out: tuple[Source, ...] = ()
    stage: str = "graph"
    start_steps: int = 4

    @property
    def pool(self) -> tuple[Source, ...]:
        """The graphs that training draws from."""
        level = STAGES.index(self.stage)
        return self.train + (self.shapes if level >= 2 else ()) + (self.family if level >= 3 else ())

    def check_names(self) -> None:
        """See that no two graphs have one name, by which figures and results are kept.

        Raises:
            UsageError: Two have.
        """
        named: dict[str, tuple[Source, str]] = {}
        for key in ("train", "shapes", "family", "held_out"):
            for source in getattr(self, key):
                other, where = named.setdefault(source.name, (source, key))
                if other != source:
                    raise UsageError(
                        f"two graphs are called {source.name}: {other.model} ({where}) and {source.model} ({key})",
                        "give a file another name",
                    )

    @property
    def warm_up(self) -> int:
        """Random rewrites at most before an episode begins."""
        return self.start_steps if STAGES.index(self.stage) >= 1 else 0


@dataclass(frozen=True)
class Task:
    """What an agent learns.

    Attributes:
        name: Short name.
        doc: One line for people.
        features: What is seen.
        actions: What can be done.
        reward: What counts; the sum of the terms, as they come: nothing is scaled inside the environment.
        budget: Steps of an episode; using them up is truncation.
        pricing: What a graph costs.
        rules: Rule files, folders, families or ids; all shipped ones by default.
        exclude: Rules or families to leave out.
        graphs: Where episodes start.
    """

    name: str
    doc: str = ""
    features: Features = Features()
    actions: Actions = Actions()
    reward: tuple[RewardTerm, ...] = (RewardTerm("cost"),)
    budget: int = 40
    pricing: Pricing = Pricing()
    rules: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    graphs: Graphs = Graphs()

    @property
    def from_the_model(self) -> Task:
        """The same with episodes that all begin with the model as it is: whoever uses an agent wants no rewrite that was drawn."""
        return replace(self, graphs=replace(self.graphs, start_steps=0)) if self.graphs.warm_up else self

    def json(self) -> dict[str, Any]:
        """As plain data, from which :func:`parse_task` makes an equal task."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return data


def shipped() -> dict[str, Path]:
    """The tasks that come with graphopt, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "tasks").glob("*.yaml"))}


def load_task(task: str | Path) -> Task:
    """Read a task.

    Args:
        task: A YAML file, or the name of a task that comes with graphopt.

    Raises:
        TaskError: The file is wrong or can't be read.
        UnknownNameError: There is no such task.
    """
    path = Path(task)
    if path.suffix not in (".yaml", ".yml") and not path.is_file():
        if str(task) not in shipped():
            raise UnknownNameError("task", str(task), shipped())
        path = shipped()[str(task)]
    try:
        text = read_text(path)
    except OSError as error:
        raise TaskError(f"can't be read: {reason(error)}", str(path)) from error
    except DocumentError as error:
        raise TaskError(str(error), error.at(str(path))) from error
    # Whoever goes on with a run, or judges its agent, may stand in another folder than whoever began it.
    return parse_task(text, str(path), path.parent.absolute())


def parse_task(text: str, name: str, folder: Path | None = None) -> Task:
    """Read a task from YAML (or JSON, which is YAML).

    Args:
        text: The text.
        name: Stands for the file in messages.
        folder: What paths in the text are relative to.

    Raises:
        TaskError: The text is not a task.
    """
    try:
        root = compose_yaml(text)
    except DocumentError as error:
        raise TaskError(str(error), error.at(name)) from None
    return _task(_Item(root, name), folder)


# --- reading: each function takes an item of the YAML tree and returns a checked value ---------------------------------


class _Item:
    """A YAML node with its place. Scalars are read as text and parsed here: YAML 1.1 takes ``1e-3`` for text and ``on`` for true."""

    def __init__(self, node: Any, file: str) -> None:
        self.node, self.file = node, file
        mark = node.start_mark if node is not None else None
        self.where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file

    def fail(self, message: str, hint: str | None = None) -> TaskError:
        return TaskError(message, self.where, hint)

    def entries(self, known: Iterable[str] | None = None) -> dict[str, _Item]:
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fail("expected 'name: value' lines" + (f" with {', '.join(known)}" if known else ""))
        found: dict[str, _Item] = {}
        for key, value in self.node.value:
            at = _Item(key, self.file)
            name = at.text()
            if name in found:
                raise at.fail(f"{name!r} is given twice")
            if known is not None and name not in known:
                raise at.fail(f"unknown key {name!r}", _near(name, known))
            found[name] = _Item(value, self.file)
        return found

    def items(self) -> list[_Item]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fail("expected a list")
        return [_Item(each, self.file) for each in self.node.value]

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.fail("expected text")
        return str(self.node.value)

    def one_of(self, known: Iterable[str]) -> str:
        text = self.text()
        if text not in known:
            raise self.fail(f"{text!r} is none of {', '.join(known)}", _near(text, known))
        return text

    def number(self, least: float = -math.inf) -> float:
        try:
            value = float(self.text())
        except ValueError:
            raise self.fail(f"expected a number, not {self.text()!r}") from None
        if not math.isfinite(value) or value < least:
            raise self.fail(f"expected a finite number{f' of at least {least:g}' if least > -math.inf else ''}")
        return value

    def whole(self, least: int) -> int:
        text = self.text()
        if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < least:
            raise self.fail(f"expected a whole number of at least {least}, not {text!r}")
        return int(text)

    def flag(self) -> bool:
        return self.one_of(("true", "false")) == "true"


def _near(name: str, known: Iterable[str]) -> str:
    return nearest(name, known) or "known: " + ", ".join(known)


Reader = Callable[[_Item], Any]


def _record(kind: type[Any], readers: Mapping[str, Reader]) -> Reader:
    def read(item: _Item) -> Any:
        return kind(**{name: readers[name](value) for name, value in item.entries(readers).items()})

    return read


def _names(known: Iterable[str]) -> Reader:
    def read(item: _Item) -> tuple[str, ...]:
        found = tuple(each.one_of(known) for each in item.items())
        if len(set(found)) != len(found):
            raise item.fail("a name is given twice")
        return found

    return read


def _mapping(read: Callable[[_Item], Any]) -> Reader:
    return lambda item: {name: read(value) for name, value in item.entries().items()}


def _terms(item: _Item) -> tuple[RewardTerm, ...]:
    read = _record(RewardTerm, {"term": lambda i: i.one_of(TERMS), "weight": _Item.number})
    found = tuple(_required(each, "term", read) for each in item.items())
    if not found:
        raise item.fail("expected at least one term", "known: " + ", ".join(TERMS))
    return found


def _required(item: _Item, key: str, read: Reader) -> Any:
    if key not in item.entries():
        raise item.fail(f"{key!r} is missing")
    return read(item)


def _task(root: _Item, folder: Path | None) -> Task:
    def path(text: str) -> str:
        """Paths are meant relative to the file; a family or a name of the zoo stays as it is."""
        is_path = text.endswith((".onnx", ".yaml", ".yml")) or "/" in text
        return str((folder or Path()) / text) if is_path and folder is not None else text

    def source(item: _Item) -> Source:
        if isinstance(item.node, yaml.ScalarNode):
            return Source(path(item.text()))
        read = _record(
            Source,
            {"model": lambda i: path(i.text()), "dims": _mapping(lambda i: i.whole(1))},
        )
        made: Source = _required(item, "model", read)
        return made

    def sources(item: _Item) -> tuple[Source, ...]:
        return tuple(source(each) for each in item.items())

    readers: dict[str, Reader] = {
        "name": _Item.text,
        "doc": _Item.text,
        "features": _record(Features, {"node": _names(NODE), "edge": _names(EDGE), "graph": _names(GRAPH)}),
        "actions": _record(
            Actions,
            {"places": lambda i: i.one_of(PLACES), "limit": lambda i: i.whole(1), "revisit": _Item.flag},
        ),
        "reward": _terms,
        "budget": lambda i: i.whole(1),
        "pricing": _record(
            Pricing,
            {
                "model": lambda i: i.one_of(COST_MODELS.names()),
                "measure": lambda i: i.number(0),
                "seconds": lambda i: i.number(0.1),
                "threads": lambda i: i.whole(1),
                "prices": _mapping(lambda i: i.number(0)),
            },
        ),
        "rules": lambda i: tuple(path(each.text()) for each in i.items()),
        "exclude": lambda i: tuple(each.text() for each in i.items()),
        "graphs": _record(
            Graphs,
            {
                "train": sources,
                "shapes": sources,
                "family": sources,
                "held_out": sources,
                "stage": lambda i: i.one_of(STAGES),
                "start_steps": lambda i: i.whole(0),
            },
        ),
    }
    task: Task = _required(root, "name", _record(Task, readers))
    return task
