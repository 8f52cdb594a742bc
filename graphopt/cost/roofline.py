"""What this machine can do at best: the numbers that turn FLOPs and bytes into milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
        pace_ms: Time of the model that tells how fast the machine is at the moment, at its best.
    """

    gflops: float = 140.0
    gbytes: float = 25.0
    scalar_gops: float = 15.0
    overhead_ms: float = 0.0003
    profiler_ms: float = 0.0012
    pace_ms: float = math.inf


@dataclass(frozen=True, eq=False)
class Trial:
    """A graph without weights of its own, to be measured for what it tells of the machine."""

    graph: Graph


def chain(shape: tuple[int, ...], length: int, operators: tuple[str, ...] = ("Neg", "Abs")) -> Graph:
    """Elementwise operators one after the other; two kinds in turn, or the runtime would drop some."""
    edit, key = _start(shape)
    for i in range(length):
        key = edit.add(operators[i % len(operators)], [key])[0]
    return _finish(edit, key)


def product(rows: int, inner: int, columns: int) -> Graph:
    """One matrix product with a constant."""
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
