"""Convolutions of stride 1, layer by layer: as they are, and by each rule of the family winograd.

    python -m tests.bench.winograd [--shape 128,128,28 --shape 192,192,17,1,7 ...] [--seconds 1.5] [--markdown FILE]

A shape is input channels, output channels, side of the image, and the window where it is not 3x3. Every form runs with a Relu behind it, in
interleaved rounds, in each some runs until its weights are back where they were, and then some that count; times are of this thread's processor, the
lowest tenth of them, milliseconds. The floor is what the direct form's multiplications take at the processor's peak, the fastest product that was seen.
What the search would choose by its own prices of windows, with the conversions left and right, is the last column.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import Model, load
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.session import Session, SessionConfig
from graphopt.search.arena import loadable
from graphopt.search.problem import Problem
from tests.bench.table import show

SHAPES = (
    "64,64,56", "128,128,28", "256,256,14", "512,512,7", "64,128,112", "128,128,112", "128,256,56", "256,256,56", "256,512,28",
    "512,512,28", "512,512,14", "384,128,48", "96,96,35", "64,64,224", "48,64,35,5,5", "192,192,17,1,7", "192,192,17,7,1",
    "384,384,8,1,3", "384,384,8,3,1",
)  # fmt: skip
_WARM, _TIMED = 4, 3  # runs of a form in a round
FORMS = ("4-grouped", "4-batched", "2-grouped", "2-batched", "6-grouped")


def layer(ci: int, co: int, side: int, height: int, width: int) -> Model:
    """A model of one convolution and a Relu, padded so that the image keeps its size."""
    rng = np.random.default_rng(0)
    scale = (2 / (height * width * ci)) ** 0.5
    weights = {
        "w": rng.standard_normal((co, ci, height, width)).astype(np.float32) * np.float32(scale),
        "b": rng.standard_normal(co).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[height // 2, width // 2] * 2),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "layer", [helper.make_tensor_value_info("x", 1, [1, ci, side, side])],
        [helper.make_tensor_value_info("y", 1, [1, co, side, side])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    proto: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return load(proto)


def race(sessions: Mapping[str, Session], feeds: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
    """Milliseconds of each session, from interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in sessions}
    end = time.monotonic() + seconds * len(sessions)
    while time.monotonic() < end or len(times["direct"]) < 10:
        for name, session in sessions.items():
            for _ in range(_WARM):
                session.run(feeds)
            for _ in range(_TIMED):
                begin = time.thread_time()
                session.run(feeds)
                times[name].append(time.thread_time() - begin)
    return {name: float(np.quantile(each, 0.1)) * 1e3 for name, each in times.items()}


def row(shape: str, seconds: float, store: Store, good: list[bool]) -> list[str]:
    """The cells of one shape; whether the form that is chosen is within 5 % of the best is added to a list."""
    ci, co, side, *window = map(int, shape.split(","))
    height, width = window or (3, 3)
    model, config, library = layer(ci, co, side, height, width), SessionConfig(), load_library(["winograd"])
    start = simplify(model.graph)
    graphs = {"direct": start}
    cost = KernelCost(store, config)
    problem = Problem.where(library, cost, config)
    state = problem.start(start)
    prices = {"direct": state.cost}
    for match in Sites.of(start, library, problem.block).matches.values():
        form = match.rule.id.removeprefix("winograd-").removesuffix("-cut")
        graphs[form] = apply(start, match, problem.block)[0]
        if match.preferred:
            prices[form] = problem.price(state, match)[1]
    feeds = {"x": np.random.default_rng(1).standard_normal((1, ci, side, side)).astype(np.float32)}
    sessions = {name: Session(loadable(model, emit(model, graph)), config) for name, graph in graphs.items()}
    wanted = sessions["direct"].run(feeds)[0]
    off = {name: np.abs(s.run(feeds)[0] - wanted).max() / np.abs(wanted).max() for name, s in sessions.items()}
    times = race(sessions, feeds, seconds)
    for session in sessions.values():
        session.close()
    forms = [f"{times['direct'] / times[f]:.2f} ({off[f]:.0e})" if f in times else "" for f in FORMS]
    name = f"{ci} to {co}, {side}x{side}" + (f", {height}x{width}" if window else "")
    floor = 2 * ci * co * height * width * side**2 / (cost.roofline.gflops * 1e6)
    chosen = min(prices, key=lambda form: prices[form])
    good.append(times[chosen] <= 1.05 * min(times.values()))
    return [name, f"{times['direct']:.2f}", f"{floor:.2f}", *forms, chosen]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", action="append", help="IN,OUT,SIDE[,HEIGHT,WIDTH]; repeatable")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each form of a shape")
    parser.add_argument("--markdown", type=Path, help="where to write the table, too")
    given = parser.parse_args()
    head = ["layer", "direct ms", "floor ms", *(f"{form} (error)" for form in FORMS), "chosen"]
    good: list[bool] = []
    with Store() as store:
        show(head, (row(shape, given.seconds, store, good) for shape in given.shape or SHAPES), given.markdown)
    print(f"\nThe chosen form is within 5 % of the best in {sum(good)} of {len(good)} layers.")


if __name__ == "__main__":
    main()
