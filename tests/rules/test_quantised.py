"""Models of 8 bits: units that the runtime fuses stay whole, and where it fuses none, a rule has it do so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime import quantization

import graphopt
from graphopt.ir.graph import UNIT
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.environment import isa_flags
from graphopt.runtime.profile import optimised_ops
from graphopt.verification.numeric import verify_models
from tests.units import Samples, between, saved

SHAPE = (1, 16, 12, 12)


@pytest.fixture
def residual(tmp_path: Path) -> Path:
    """Two residual blocks, quantised by the runtime's own tool; weights of 7 bits add up right on every processor."""
    rng, nodes, weights, last = np.random.default_rng(1), [], [], "x"
    for block in range(2):
        key = f"_{block}"
        for name in ("a", "b"):
            weight = rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
            weights.append(numpy_helper.from_array(weight, name + "w" + key))
        nodes += [
            helper.make_node("Conv", [last, "aw" + key], ["a" + key], pads=[1] * 4),
            helper.make_node("Relu", ["a" + key], ["r" + key]),
            helper.make_node("Conv", ["r" + key, "bw" + key], ["b" + key], pads=[1] * 4),
            helper.make_node("Add", ["b" + key, last], ["s" + key]),
            helper.make_node("Relu", ["s" + key], ["y" + key]),
        ]
        last = "y" + key
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", last)]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "whole.onnx"
    )
    path = tmp_path / "qdq.onnx"
    quantization.quantize_static(tmp_path / "whole.onnx", path, Samples(SHAPE), per_channel=True, reduce_range=True)
    return path


def convolutions(path: Path) -> list[str]:
    """The convolutions of the graph that the runtime makes of a model."""
    ops = optimised_ops(path).elements()
    return sorted(op.rpartition(":")[2] for op in ops if op.endswith(("Conv", "conv")))


def test_activations_that_several_read_are_quantised_as_the_runtime_wants(residual: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    result = graphopt.optimize(residual, output=target, strategy="greedy", measure=False, threads=1)
    assert result.report["verified"]["passed"]
    assert result.report["rules"]["shared-activation-without-sign"] >= 1
    before, after = (convolutions(path) for path in (residual, target))
    assert after == ["QLinearConv"] * 4
    if "avx2" in isa_flags():  # elsewhere there are kernels for numbers with a sign
        assert "Conv" in before
    # Nothing is quantised that was not, and nothing is any more that was.
    kinds = [[node.op_type for node in onnx.load(path).graph.node] for path in (residual, target)]
    assert sorted(kinds[0]) == sorted(kinds[1])


def test_units_stay_whole_without_it(residual: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    graphopt.optimize(residual, output=target, strategy="greedy", measure=False, threads=1, exclude=("quantised",))
    assert optimised_ops(target) == optimised_ops(residual)


def rewritten(path: Path, *rules: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """The operators that the runtime makes of a model, before and after some rules were applied wherever they match; and how often they were."""
    model, used = load(path), Counter[str]()
    graph, library = simplify(model.graph), load_library().whole
    while matches := [match for match in Sites.of(graph, library) if match.rule.id in rules]:
        graph, _ = apply(graph, matches[0])
        used[matches[0].rule.id] += 1
    onnx.save(to_proto(emit(model, graph)), path.with_name("out.onnx"))
    assert verify_models(path, path.with_name("out.onnx")).passed
    return kinds(path), kinds(path.with_name("out.onnx")), used


def kinds(path: Path) -> Counter[str]:
    """The operators that the runtime makes of a model."""
    return Counter(op.rpartition(":")[2] for op in optimised_ops(path).elements())


def test_a_mean_in_a_unit_becomes_a_kernel_of_whole_numbers(tmp_path: Path) -> None:
    mean = helper.make_node("ReduceMean", ["a"], ["b"], axes=[2, 3])
    before, after, rules = rewritten(
        between(tmp_path / "m.onnx", mean, (1, 16, 14, 14), (1, 16, 1, 1)), "quantised-mean-is-global-average-pool"
    )
    assert rules.total() == 1
    assert before["ReduceMean"] == 1 and after["QLinearGlobalAveragePool"] == 1 and not after["ReduceMean"]


def test_an_average_pool_in_a_unit_becomes_a_depthwise_convolution(tmp_path: Path) -> None:
    pool = helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    before, after, rules = rewritten(
        between(tmp_path / "m.onnx", pool, (1, 64, 30, 30), (1, 64, 30, 30)),
        "quantised-average-pool-is-depthwise-conv",
    )
    assert rules.total() == 1
    assert before["QLinearAveragePool"] == 1 and before["QLinearConv"] == 1 and after["QLinearConv"] == 2


def test_what_does_not_name_quantisation_stays_out_of_units(tmp_path: Path) -> None:
    """A pool that a rule made is as closed as the mean in whose place it stands."""
    mean = helper.make_node("ReduceMean", ["a"], ["b"], axes=[2, 3])
    graph = load(between(tmp_path / "m.onnx", mean, (1, 16, 14, 14), (1, 16, 1, 1))).graph
    library = load_library()
    (match,) = [m for m in Sites.of(graph, library) if m.rule.id == "quantised-mean-is-global-average-pool"]
    assert not any(set(match.nodes) & set(m.nodes) for m in Sites.of(graph, library) if not m.rule.quantised)
    made, _ = apply(graph, match)
    (pool,) = [node for node in made.nodes.values() if node.op == "GlobalAveragePool"]
    assert pool.opaque == UNIT
    assert not [m for m in Sites.of(made, library) if pool.id in m.nodes]


def noisy(source: Path, target: Path, kind: str) -> None:
    """A model with something that does nothing in front of all that is quantised and behind all that is dequantised of four dimensions."""
    model = onnx.load(source)
    weights, nodes = {t.name: t for t in model.graph.initializer}, list[onnx.NodeProto]()

    def nothing(before: str, after: str) -> list[onnx.NodeProto]:
        if kind != "Transpose":
            return [helper.make_node(kind, [before], [after])]
        there, back = [0, 2, 3, 1], [0, 3, 1, 2]
        made = helper.make_node(kind, [before], [after + "_t"], perm=there)
        return [made, helper.make_node(kind, [after + "_t"], [after], perm=back)]

    for node in model.graph.node:
        flat = node.input[0] in weights and len(weights[node.input[0]].dims) < 4
        (first, last), around = (node.input[0], node.output[0]), list[onnx.NodeProto]()
        if node.op_type == "QuantizeLinear":
            node.input[0] = f"{last}_in"
            around = nothing(first, node.input[0])
        nodes += [*around, node]
        if node.op_type == "DequantizeLinear" and not flat:
            node.output[0] = f"{last}_out"
            nodes += nothing(node.output[0], last)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, target)


@pytest.mark.parametrize("kind", ["Identity", "Dropout", "Transpose"])
def test_what_does_nothing_leaves_a_unit_and_the_unit_stays_whole(residual: Path, tmp_path: Path, kind: str) -> None:
    source, target = tmp_path / "noisy.onnx", tmp_path / "out.onnx"
    noisy(residual, source, kind)
    graphopt.optimize(source, output=target, strategy="none", measure=False, threads=1, exclude=("quantised",))
    operators = [sorted(node.op_type for node in onnx.load(path).graph.node) for path in (residual, source, target)]
    assert operators[0] == operators[2] != operators[1]
    assert optimised_ops(target) == optimised_ops(residual)


def test_rows_are_gathered_before_they_are_dequantised(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "t": rng.integers(-128, 127, (5000, 16)).astype(np.int8), "s": np.array(0.05, np.float32),
        "z": np.array(3, np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["d"]),
        helper.make_node("Gather", ["d", "x"], ["g"]),
        helper.make_node("Relu", ["g"], ["y"]),
    ]
    ends = ((TensorProto.INT64, (7,)), (TensorProto.FLOAT, (7, 16)))
    _, _, rules = rewritten(saved(tmp_path / "m.onnx", nodes, weights, ends), "gather-before-dequantise")
    assert rules.total() == 1
    made = {node.op_type: node for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert made["Gather"].input[0] == "t" and made["DequantizeLinear"].input[0] == made["Gather"].output[0]


def test_dynamically_quantised_convolutions_run_as_those_of_floats(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "a": rng.standard_normal((32, 1, 3, 3)).astype(np.float32),
        "b": rng.standard_normal((16, 32, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], group=32, pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["y"]),
    ]
    ends = ((TensorProto.FLOAT, (1, 32, 20, 20)), (TensorProto.FLOAT, (1, 16, 20, 20)))
    saved(tmp_path / "whole.onnx", nodes, weights, ends)
    quantization.quantize_dynamic(tmp_path / "whole.onnx", tmp_path / "m.onnx")
    before, after, rules = rewritten(tmp_path / "m.onnx", "integer-conv-in-floats", "scales-before-conv")
    assert before["ConvInteger"] == rules["integer-conv-in-floats"] == rules["scales-before-conv"] == 2
    assert after["Conv"] == 2 and not after["ConvInteger"] and not after["Mul"]
    assert after["DynamicQuantizeLinear"] == 2, "what was quantised stays so"


def test_convolutions_of_numbers_with_a_sign_lose_it_and_what_lies_between(tmp_path: Path) -> None:
    rng, weights, nodes, last = np.random.default_rng(0), {}, [], "x"
    for n in range(3):
        weights[f"w{n}"] = (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32)
        nodes += [
            helper.make_node("Conv", [last, f"w{n}"], [f"c{n}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{n}"], ["y" if n == 2 else f"r{n}"]),
        ]
        last = f"r{n}"
    saved(tmp_path / "whole.onnx", nodes, weights, ((TensorProto.FLOAT, SHAPE), (TensorProto.FLOAT, SHAPE)))
    form = quantization.QuantFormat.QOperator
    quantization.quantize_static(
        tmp_path / "whole.onnx", tmp_path / "m.onnx", Samples(SHAPE), quant_format=form, reduce_range=True
    )
    shown = "integer-conv-without-sign", "sign-given-and-taken", "quantised-as-it-was"
    _, after, rules = rewritten(tmp_path / "m.onnx", *shown)
    assert [rules[rule] for rule in shown] == [3, 3, 2]
    assert after["QLinearConv"] == 3 and after["QuantizeLinear"] == after["DequantizeLinear"] == 1


def test_groups_of_whole_numbers_are_merged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((32, 4, 3, 3)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], group=8, pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"])]
    ends = ((TensorProto.FLOAT, (1, 32, 20, 20)), (TensorProto.FLOAT, (1, 32, 20, 20)))
    saved(tmp_path / "whole.onnx", nodes, weights, ends)
    samples = Samples((1, 32, 20, 20))
    quantization.quantize_static(
        tmp_path / "whole.onnx", tmp_path / "m.onnx", samples, per_channel=True, reduce_range=True
    )
    _, after, rules = rewritten(tmp_path / "m.onnx", "merge-quantised-conv-groups")
    assert rules.total() == 1 and after["QLinearConv"] == 1
    made = onnx.load(tmp_path / "out.onnx").graph
    (conv,) = [node for node in made.node if node.op_type == "Conv"]
    assert next(a.i for a in conv.attribute if a.name == "group") == 1


def test_a_softmax_leaves_its_unit(tmp_path: Path) -> None:
    softmax = helper.make_node("Softmax", ["a"], ["b"], axis=-1)
    path = between(tmp_path / "m.onnx", softmax, (1, 16, 10, 10), (1, 16, 10, 10))
    before, after, rules = rewritten(path, "softmax-apart-from-its-unit")
    assert rules.total() == before["QLinearSoftmax"] == 1
    assert after["Softmax"] == 1 and not after["QLinearSoftmax"]


def test_a_reshape_in_a_unit_has_no_computed_shape(tmp_path: Path) -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 6, 4] x) => (float[n, 24] y)'
        "<float s = {0.1}, uint8 z = {128}, int64[1] a = {0}, int64[1] b = {1}, int64[1] rest = {-1}> {"
        " q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) all = Shape(d) n = Slice(all, a, b) dims = Concat<axis = 0>(n, rest)"
        " r = Reshape(d, dims) t = QuantizeLinear(r, s, z) y = DequantizeLinear(t, s, z) }"
    )
    onnx.save(proto, tmp_path / "m.onnx")
    result = graphopt.optimize(tmp_path / "m.onnx", strategy="none", measure=False)
    ops = [node.op_type for node in result.model.graph.node]
    assert ops == ["QuantizeLinear", "DequantizeLinear", "Reshape", "QuantizeLinear", "DequantizeLinear"]


def test_a_scale_that_is_handed_on_is_a_constant(tmp_path):
    """torch shares equal scales by Identities of the first."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y)
        <float s = {0.1}, uint8 z = {128}> {
        t = Identity(s) o = Identity(z)
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) r = Relu(d)
        p = QuantizeLinear(r, t, o) y = DequantizeLinear(p, t, o) }"""
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(text), path)
    graphopt.optimize(path, output=tmp_path / "o.onnx", strategy="none", cost_model="analytic", measure=False)
    ops = [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]
    assert ops == ["QuantizeLinear", "DequantizeLinear", "Relu", "QuantizeLinear", "DequantizeLinear"]
