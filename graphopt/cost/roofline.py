"""What this machine can do at best: the numbers that turn FLOPs and bytes into milliseconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph, Value, build
from graphopt.ir.types import ValueType, digest

if TYPE_CHECKING:
    from graphopt.cost.store import Store
    from graphopt.runtime.session import SessionConfig


@dataclass(frozen=True)
class Roofline:
    """Peak numbers; the defaults are those of one core of a server processor with AVX-512.

    Attributes:
        gflops: Floating-point operations of a large matrix product, 10^9 a second.
        gbytes: Bytes read and written by elementwise operators, 10^9 a second.
        scalar_gops: Elementwise operations (those that :mod:`graphopt.cost.analytic` counts), 10^9 a second.
        overhead_ms: What the runtime spends on a node whatever it does, in milliseconds.
        profiler_ms: What its profiler adds to the time of a kernel, in milliseconds.
    """

    gflops: float = 140.0
    gbytes: float = 25.0
    scalar_gops: float = 15.0
    overhead_ms: float = 0.0003
    profiler_ms: float = 0.0012


def fitted(store: Store, environment: str, config: SessionConfig) -> Roofline:
    """The roofline of this machine, from the store or measured now (well under a second).

    Args:
        store: Where it is kept.
        environment: Digest of the environment of ``config``.
        config: Provider, threads and level.
    """
    names = {f"roofline:{f.name}": f.name for f in fields(Roofline)}
    known = store.get_many(environment, names)
    if len(known) == len(names):
        return Roofline(**{names[key]: value for key, value in known.items()})
    roofline = fit(config)
    store.put_many(environment, {f"roofline:{name}": value for name, value in asdict(roofline).items()})
    return roofline


def fit(config: SessionConfig) -> Roofline:
    """Measure the peak numbers with four little models; what can't be measured keeps its default."""
    from graphopt.cost.blueprint import blueprint
    from graphopt.cost.measure import kernel_ms, wall_ms
    from graphopt.cost.micro import micro_model
    from graphopt.cost.shapes import Shapes
    from graphopt.cost.windows import Window
    from graphopt.errors import GraphoptError

    def whole(graph: Graph) -> tuple[float, float]:
        """Milliseconds of a graph by the stopwatch and by the profile, in which nothing is taken off."""
        order = tuple(node.id for node in graph.in_order())
        micro = micro_model(graph, blueprint(graph, Window(order, order[-1]), Shapes()))
        raw = kernel_ms(micro.model, micro.feeds, config, replace(Roofline(), overhead_ms=0.0, profiler_ms=0.0))
        return wall_ms(micro.model, micro.feeds, config), raw or 0.0

    try:
        found: dict[str, float] = {}
        short_wall, short = whole(_chain((8,), 10))
        long_wall, long = whole(_chain((8,), 50))
        found["overhead_ms"] = max(1e-5, (long_wall - short_wall) / 40)
        found["profiler_ms"] = max(0.0, (long - short) / 40 - found["overhead_ms"])
        _, product = whole(_product(128, 768, 768))
        found["gflops"] = 2 * 128 * 768 * 768 / (product * 1e6)
        n = 1 << 20
        _, copy = whole(_chain((n,), 2))
        found["gbytes"] = 2 * 2 * 4 * n / (copy * 1e6)
        n = 1 << 17
        _, erf = whole(_chain((n,), 1, ("Erf",)))
        found["scalar_gops"] = 15 * n / (erf * 1e6)
        return Roofline(**found)
    except (GraphoptError, ZeroDivisionError):
        return Roofline()


def _chain(shape: tuple[int, ...], length: int, operators: tuple[str, ...] = ("Neg", "Abs")) -> Graph:
    """Elementwise operators one after the other; two kinds in turn, or the runtime would drop some."""
    edit, key = _start(shape)
    for i in range(length):
        key = edit.add(operators[i % len(operators)], [key])[0]
    return _finish(edit, key)


def _product(rows: int, inner: int, columns: int) -> Graph:
    edit, key = _start((rows, inner))
    return _finish(edit, edit.add("MatMul", [key, edit.constant(np.ones((inner, columns), np.float32))])[0])


def _start(shape: tuple[int, ...]) -> tuple[Edit, int]:
    type = ValueType("f32", shape)
    key = digest("input", "x", str(type))
    graph = build([], {key: Value(key, "x", type)}, (key,), (), {"": 17})
    return Edit(graph), key


def _finish(edit: Edit, key: int) -> Graph:
    edit.publish([("y", key)])
    return edit.commit()[0]
