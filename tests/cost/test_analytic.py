"""Operations and bytes by operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphopt.cost.analytic import AnalyticCost, Roofline, work
from graphopt.cost.shapes import Shapes
from tests.cost.graphs import graph, node, residual_network, transformer

W = {"w": (16, 8, 3, 3), "g": (16, 2, 3, 3), "t": (8, 16, 3, 3), "m": (8, 32), "n": (32, 8), "p": (8, 24), "b": (24,)}


@pytest.mark.parametrize(
    ("made", "inputs", "flops"),
    [
        (node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), {"x": (2, 8, 5, 5)}, 2 * 2 * 16 * 25 * 8 * 9),
        (node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]), {"x": (1, 8, 6, 6)}, 2 * 16 * 9 * 8 * 9),
        (node("ConvTranspose", ["x", "t"], ["y"]), {"x": (1, 8, 5, 5)}, 2 * 8 * 25 * 16 * 9),
        (node("MatMul", ["x", "m"], ["y"]), {"x": (2, 3, 8)}, 2 * 2 * 3 * 8 * 32),
        (node("MatMul", ["x", "z"], ["y"]), {"x": (4, 3, 8), "z": (4, 8, 5)}, 2 * 4 * 3 * 8 * 16),  # vectors of 16
        (node("Gemm", ["x", "n"], ["y"], transB=1), {"x": (3, 8)}, 2 * 3 * 8 * 32),
        (node("Gemm", ["x", "m"], ["y"], transA=1), {"x": (8, 3)}, 2 * 3 * 8 * 32),
        (node("Attention", ["x", "z", "z"], ["y"]), {"x": (2, 3, 4, 5), "z": (2, 3, 6, 5)}, 4 * 2 * 3 * 4 * 5 * 6),
        (node("Attention", ["x", "z", "z"], ["y"], q_num_heads=5, kv_num_heads=5),
         {"x": (2, 4, 15), "z": (2, 6, 15)}, 4 * 2 * 4 * 15 * 6),
        (node("MultiHeadAttention", ["x", "z", "z"], ["y"], domain="com.microsoft", num_heads=3),
         {"x": (2, 4, 15), "z": (2, 3, 6, 5)}, 4 * 2 * 4 * 15 * 6),
        (node("Attention", ["x", "p", "b"], ["y"], domain="com.microsoft", num_heads=2),
         {"x": (1, 4, 8)}, 2 * 4 * 8 * 24 + 4 * 4 * 8 * 4),
        (node("Einsum", ["x", "z"], ["y"], equation="bqhd,bkhd->bhqk"),
         {"x": (2, 3, 4, 5), "z": (2, 6, 4, 5)}, 2 * 2 * 3 * 4 * 5 * 6),
    ],
)  # fmt: skip
def test_products(made, inputs, flops):
    g = graph([made], inputs, {k: v for k, v in W.items() if k in made.input})
    assert work(g, next(iter(g.nodes.values())), Shapes()).flops == flops


def test_a_narrow_group_costs_more_than_its_operations():
    g = graph([node("Conv", ["x", "g"], ["y"], group=4, pads=[1, 1, 1, 1])], {"x": (1, 8, 5, 5)}, {"g": (16, 2, 3, 3)})
    assert work(g, next(iter(g.nodes.values())), Shapes()).flops > 2 * 16 * 25 * 2 * 9


def test_what_a_convolution_takes_besides_its_operations():
    def flops(channels, weight, **attributes):
        g = graph([node("Conv", ["x", "w"], ["y"], **attributes)], {"x": (1, channels, 9, 9)}, {"w": weight})
        return work(g, next(iter(g.nodes.values())), Shapes()).flops

    assert (
        1 < 49 / 25 * flops(16, (16, 1, 5, 5), group=16) / flops(16, (16, 1, 3, 3), group=16) < 2
    )  # taps are the least of it
    assert flops(26, (26, 1, 3, 3), group=26) > 2 * flops(28, (28, 1, 3, 3), group=28)  # not in blocks
    assert flops(16, (36, 16, 1, 1)) == flops(16, (48, 16, 1, 1))  # vectors of 16
    assert flops(32, (32, 16, 3, 3), group=2) > flops(32, (32, 32, 3, 3)) / 2


def test_a_product_waits_for_what_it_reads_and_a_sum_does_not():
    roofline = replace(Roofline(), overhead_ms=0.0)

    def ms(made, **inputs):
        return AnalyticCost(roofline).of(graph([made], inputs)).total

    product = 2 * 64 * 64 * 64 / (roofline.gflops * 1e6) + 3 * 4 * 64 * 64 / (roofline.gbytes * 1e6)
    assert ms(node("MatMul", ["x", "z"], ["y"]), x=(64, 64), z=(64, 64)) == pytest.approx(product)
    read = 3 * 4 * 64 * 64 / (roofline.gbytes * 1e6)
    assert ms(node("Add", ["x", "z"], ["y"]), x=(64, 64), z=(64, 64)) == pytest.approx(read)


def test_bytes_and_views():
    g = graph([node("Add", ["x", "z"], ["y"])], {"x": (4, 8), "z": (8,)})
    assert work(g, next(iter(g.nodes.values())), Shapes()).nbytes == 4 * (32 + 8 + 32)
    g = graph([node("Reshape", ["x", "s"], ["y"])], {"x": (4, 8)}, {"s": np.array([8, 4])})
    assert work(g, next(iter(g.nodes.values())), Shapes()).view
    g = graph([node("Gather", ["w", "i"], ["j"])], {"w": (50_000, 8)}, {"i": np.array([1, 2])})
    assert work(g, next(iter(g.nodes.values())), Shapes()).nbytes < 1000


EVERY = [
    node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]),
    node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3]),
    node("GlobalAveragePool", ["x"], ["y"]),
    node("ReduceMean", ["x"], ["y"]),
    node("Softmax", ["x"], ["y"]),
    node("Concat", ["x", "x"], ["y"], axis=1),
    node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2),
    node("InstanceNormalization", ["x", "s", "s"], ["y"]),
    node("Erf", ["x"], ["y"]),
    node("Shape", ["x"], ["y"]),
    node("NonZero", ["x"], ["y"]),
    # Of some nothing may be known, or little that makes sense.
    node("Mystery", ["x"], ["u"], domain="my.ops"),
    node("Conv", ["x", "d"], ["y"], group=8),
    node("MatMul", ["x", "x"], ["y"]),
    node("MultiHeadAttention", ["x", "", ""], ["y"], domain="com.microsoft", num_heads=2),
    node("MultiHeadAttention", ["x", "s", "s"], ["y"], domain="com.microsoft"),
    node("Attention", ["x", "x", "x"], ["y", "p", "q"]),
]


@pytest.mark.parametrize("made", EVERY, ids=lambda n: n.op_type)
@pytest.mark.parametrize("symbolic", [False, True])
def test_every_operator_has_a_price(made, symbolic):
    g = graph(
        [made],
        {"x": ("batch", 8, "h", "w") if symbolic else (1, 8, 6, 6)},
        {"s": (8,), "d": (8, 1, 3, 3)},
        [made.output[0]],
    )
    costs = AnalyticCost().of(g)
    assert costs.total >= 0 and all(ms >= 0 for ms in costs.by_node.values())
    if not all(g.is_lazy(n) for n in g.nodes.values()):
        assert costs.total > 0


def test_the_total_is_the_sum():
    for g in (transformer(), residual_network(gate=True)):
        costs = AnalyticCost(block=16).of(g)
        assert set(costs.by_node) == set(g.nodes)
        assert costs.total == pytest.approx(sum(costs.by_node.values()))
        fused = [id for w in set(costs.partition.values()) for id in w.nodes if id != w.head]
        assert fused and all(costs.by_node[id] == 0 for id in fused)


def test_a_faster_machine_costs_less():
    g = transformer()
    slow = Roofline()
    fast = replace(slow, gflops=10 * slow.gflops, gbytes=10 * slow.gbytes, scalar_gops=10 * slow.scalar_gops)
    assert AnalyticCost(fast).of(g).total < AnalyticCost(slow).of(g).total


def test_leaving_the_blocked_layout_costs():
    g = residual_network(gate=True)
    assert AnalyticCost(block=16).of(g).total > AnalyticCost().of(g).total


@pytest.mark.parametrize("op", ["Softplus", "Mish"])
def test_a_kernel_that_goes_element_by_element_costs_more_than_a_dozen_others(op):
    def ms(name):
        return AnalyticCost(Roofline()).of(graph([node(name, ["x"], ["y"])], {"x": (64, 256)}, opset=18)).total

    assert ms(op) > 10 * ms("Exp")
