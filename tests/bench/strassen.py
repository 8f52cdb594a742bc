"""Products with constant weights, layer by layer: as they are, and by the rules of the family strassen.

    python -m tests.bench.strassen [--shape 512,3072,768 --shape 512,768,3072,768 ...] [--threads 1] [--seconds 3] [--markdown FILE]

A shape is rows, what is summed over, and columns, of a layer with a bias; a fourth number adds a second layer behind a Gelu. The first ratio has the last
layer alone by seven products, the second both, with blocks that go from one to the other as they are (of an odd number of rows they don't). *Predicted* is what the search's prices say of the last of them.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import Model, load
from graphopt.rewrite.library import load_library
from graphopt.runtime.session import SessionConfig
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena
from graphopt.search.problem import Problem, State
from tests.bench.table import show

SHAPES = (
    "128,3072,768", "197,3072,768", "512,3072,768", "512,768,3072", "512,768,768", "512,1024,4096", "512,4096,1024", "512,2048,2048",
    "128,768,3072,768", "197,768,3072,768", "512,768,3072,768", "512,1024,4096,1024", "1500,384,1536,384",
)  # fmt: skip


def layers(rows: int, widths: Sequence[int]) -> Model:
    """A model of one or two linear layers, with a Gelu between them."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for index, (inner, outer) in enumerate(itertools.pairwise(widths)):
        if index:
            nodes.append(helper.make_node("Gelu", [value], [f"g{index}"]))
            value = f"g{index}"
        scale = np.float32(inner**-0.5)
        weights.append(numpy_helper.from_array(scale * rng.standard_normal((inner, outer), np.float32), f"w{index}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(outer, np.float32), f"b{index}"))
        nodes.append(helper.make_node("Gemm", [value, f"w{index}", f"b{index}"], [f"y{index}"]))
        value = f"y{index}"
    graph = helper.make_graph(
        nodes, "layers", [helper.make_tensor_value_info("x", 1, [rows, widths[0]])],
        [helper.make_tensor_value_info(value, 1, [rows, widths[-1]])], weights,
    )  # fmt: skip
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def stepped(problem: Problem, state: State, rule: str) -> State:
    """The state after a rule, at the model's output if it applies there, or else where what it makes is largest."""
    places = [match for match in state.sites.matches.values() if match.rule.id == rule]
    last = [match for match in places if set(match.roots) & state.graph.output_keys]
    return problem.step(state, max(last or places, key=lambda match: state.graph.type(match.roots[0]).nbytes or 0))


def in_blocks(problem: Problem, state: State) -> State:
    """The state with the other layer by seven products, too, and the Gelu on each of its blocks."""
    return stepped(problem, stepped(problem, state, "strassen-gemm"), "unary-on-blocks")


def told(paired: Paired) -> str:
    """A ratio and its interval."""
    low, high = paired.ci95
    return f"{paired.speedup:.3f} [{low:.3f}, {high:.3f}]"


def row(shape: str, threads: int, seconds: float, store: Store) -> list[str]:
    """The cells of one shape."""
    rows, *widths = map(int, shape.split(","))
    model, config = layers(rows, widths), SessionConfig(threads=threads)
    problem = Problem.where(load_library(), KernelCost(store, config), config)
    start = problem.start(simplify(model.graph))
    feeds = {"x": np.random.default_rng(1).standard_normal((rows, widths[0]), np.float32)}
    arena = Arena(model, model, config, feeds)
    state, cells = stepped(problem, start, "strassen-gemm"), []
    paired = arena.pair(None, state.graph, seconds)
    cells.append(told(paired))
    if len(widths) > 2 and rows % 2 == 0:
        state = in_blocks(problem, state)
        cells.append(told(arena.pair(None, state.graph, seconds)))
    cells += [""] * (2 - len(cells))
    layer, predicted = " x ".join(map(str, (rows, *widths))), start.cost / state.cost
    return [layer, f"{paired.baseline_ms:.2f}", *cells, f"{predicted:.3f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", help="ROWS,IN,OUT[,OUT]; repeatable")
    parser.add_argument("--threads", type=int, default=1, help="0: all cores")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each ratio")
    parser.add_argument("--markdown", type=Path, help="where to write the table, too")
    given = parser.parse_args()
    head = ["layers", "direct ms", "last by seven products", "both", "predicted"]
    with Store() as store:
        show(head, (row(shape, given.threads, given.seconds, store) for shape in given.shape or SHAPES), given.markdown)


if __name__ == "__main__":
    main()
