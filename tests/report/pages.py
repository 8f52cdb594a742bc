"""Pages to test with: of a real optimisation, and of a benchmark with names that mean harm."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load
from graphopt.report.changes import compare
from graphopt.report.view import FamilyRow, Page, Ratio, SearchCurve, StepRow, Subject, Variant
from graphopt.runtime.profile import OpTime

HOSTILE = (
    "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">{{ 7*7 }}\x1b[2J'&"
)


def chain(length: int, *, relu: str = "Relu", name: str = "") -> onnx.ModelProto:
    """Blocks of Conv, Relu and a residual Add, two and a half nodes each; ``relu`` is the operator of every third block."""
    weight = numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    nodes, last = [], "x"
    for i in range(length):
        op = relu if i % 3 == 0 else "Relu"
        nodes.append(helper.make_node("Conv", [last, "w"], [f"c{i}"], name=f"conv{i}{name}"))
        nodes.append(helper.make_node(op, [f"c{i}"], [f"r{i}"], name=f"act{i}{name}"))
        nodes.append(helper.make_node("Add", [f"r{i}", last], [f"a{i}"], name=f"add{i}{name}"))
        last = f"a{i}"
    shape = [1, 4, 8, 8]
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)], [weight],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def graph_of(model: onnx.ModelProto) -> Graph:
    return load(model).graph


def samples(median: float, count: int = 120) -> tuple[float, ...]:
    rng = np.random.default_rng(0)
    return tuple(median * rng.lognormal(0, 0.05, count).round(4))


def bench_page() -> Page:
    """Two models, four variants, one of which failed; every name is hostile somewhere."""
    before, after = (graph_of(chain(40, relu=relu, name=HOSTILE)) for relu in ("Relu", "LeakyRelu"))
    operators = (OpTime("Conv", 40, 3.0, 0.75), OpTime(HOSTILE, 2, 1.0, 0.25))
    variants = (
        Variant("original", True, samples(10), None, 120, 10_000_000, 12.5, 90_000_000, None, operators),
        Variant("greedy", False, samples(8), Ratio(1.25, 1.24, 1.26, "faster"), 120, 9_000_000, 12.0, 80_000_000, 3.5,
                (OpTime("Conv", 40, 2.0, 1.0),)),
        Variant("slow one", False, samples(11), Ratio(0.91, 0.9, 0.92, "slower"), operators=operators),
        Variant(HOSTILE, note=f"failed: {HOSTILE}"),
    )  # fmt: skip
    graph = compare(before, after)
    steps = tuple(StepRow("leaky", "activation", f"r{i}", 10 - i / 20, 9.95 - i / 20, i // 3) for i in range(40))
    steps = (
        *steps,
        StepRow("of no family", "", "r1", 8.1, 8.0),
        StepRow(HOSTILE, "other", HOSTILE, 8.0, 7.9),
    )
    families = (
        FamilyRow("activation", Ratio(1.2, 1.1, 1.3, "faster")),
        FamilyRow(HOSTILE, Ratio(0.9, 0.8, 0.95, "slower"), "taken back"),
    )
    curves = (
        SearchCurve("greedy", ((0.0, 10.0), (0.5, 9.0), (0.7, 8.0)), 1.0),
        SearchCurve("backtracking", ((0.0, 10.0), (2.0, 7.5)), 4.0),
    )
    subjects = [
        Subject(
            name, f"Ran on {HOSTILE}.", (("Latency", "10 ms"), ("Note", HOSTILE)), variants, curves, steps, families,
            graph, (HOSTILE,),
        )
        for name in (f"one {HOSTILE}", "two")
    ]  # fmt: skip
    return Page("bench", subjects, (("CPU", HOSTILE),), (HOSTILE,))
