"""What a large graph costs: loading, the normal form, a candidate of a search, greedy to its end, and memory.

    python -m tests.bench.scale [NAME ...] [--candidates 500] [--greedy] [--nodes 1000 5000 20000]

Made-up models of small layers (attention, a residual sum, what exporters leave behind), or models of the zoo. Prices are estimated
and known before a candidate is timed, by the time of this process; peak memory is that of the process, so far.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.delta import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.runtime.session import SessionConfig
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Problem, State
from graphopt.zoo import build
from tests.onnxio.models import F, model, node, weight

_LAYER = 26  # nodes


def layered(nodes: int, width: int = 16) -> ModelProto:
    """Layers of attention and a residual sum over an open batch, of so many nodes in all."""
    rng = np.random.default_rng(0)
    numbers = {"heads": [0, 4, 2, width // 2], "back": [0, 4, width], "i0": 0, "front": [0], "free": [-1]}
    weights = [weight(name, np.array(value, np.int64)) for name, value in numbers.items()]
    weights += [weight("zero", np.zeros(width, np.float32)), weight("scale", np.float32(0.35))]
    made: list[object] = []
    last = "x"
    for i in range(max(1, nodes // _LAYER)):

        def add(op: str, operands: list[str], out: str, i: int = i, **attributes: Any) -> str:
            made.append(node(op, operands, [f"{out}_{i}"], **attributes))
            return f"{out}_{i}"

        parts = {}
        for part in ("q", "k", "v"):
            weights.append(weight(f"w{part}{i}", rng.standard_normal((width, width)).astype(np.float32)))
            weights.append(weight(f"b{part}{i}", rng.standard_normal(width).astype(np.float32)))
            dense = add("Add", [add("MatMul", [last, f"w{part}{i}"], f"{part}m"), f"b{part}{i}"], f"{part}a")
            split = add("Reshape", [dense, "heads"], f"{part}r")
            parts[part] = add("Transpose", [split], f"{part}t", perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3])
        scores = add("Mul", [add("MatMul", [parts["q"], parts["k"]], "scores"), "scale"], "scaled")
        mixed = add("MatMul", [add("Softmax", [scores], "soft", axis=-1), parts["v"]], "mixed")
        turned = add("Transpose", [mixed], "turned", perm=[0, 2, 1, 3])
        shape = add("Unsqueeze", [add("Gather", [add("Shape", [last], "s"), "i0"], "n"), "front"], "n1")
        whole = add("Concat", [shape, "four", "free"], "dims", axis=0)
        joined = add("Reshape", [turned, whole], "joined")
        quiet = add("Add", [add("Identity", [joined], "same"), "zero"], "quiet")
        last = add("Relu", [add("Add", [last, quiet], "sum")], "out")
    weights.append(weight("four", np.array([4], np.int64)))
    made.append(helper.make_node("Identity", [last], ["y"]))
    return model(made, [("x", F, ["N", 4, width])], [("y", F, ["N", 4, width])], weights)  # type: ignore[arg-type]


def candidate(problem: Problem, start: State, count: int) -> tuple[float, float]:
    """Milliseconds of this process for a rewrite and its price, and for these and its new matches, at places drawn from all of them."""
    actions = random.Random(0).sample(start.actions(), min(count, len(start.sites)))
    times: list[float] = []
    with collector_paused():
        for done in (problem.price, problem.price, problem.step):  # the first time for the price table
            begin = time.process_time()
            for match in actions:
                with suppress(RefusedError):
                    done(start, match)
            times.append((time.process_time() - begin) / max(1, len(actions)) * 1e3)
    return times[1], times[2]


def measure(name: str, source: Path | ModelProto, candidates: int, greedy: bool) -> float:
    """Print a line about a model; milliseconds of a candidate."""
    clock = time.perf_counter
    begin = clock()
    loaded = load(source)
    read = clock()
    with Store(None) as store:
        problem = Problem(load_library(), KernelCost(store, SessionConfig(), measure=False))
        begun = clock()
        normal = Normal.of(loaded.graph, problem)
        cleaned = clock()
        start = problem.start(normal.graph)
        found = clock()
        price, step = candidate(problem, start, candidates)
        ended = clock()
        steps = len(Greedy().run(problem, start, Budget()).steps) if greedy else 0
        greed = clock() - ended
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{name:24} {len(loaded.graph.nodes):6} {len(normal.graph.nodes):6}  {read - begin:6.2f} {cleaned - begun:7.2f}"
        f" {found - cleaned:6.2f}  {price:9.3f} {step:6.3f}  {steps:6} {greed:7.2f}  {memory:6.2f}",
        flush=True,
    )
    return price


def main() -> None:
    """Print a line for each model, and the growth of a candidate's time from one size to the next."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--nodes", type=int, nargs="+", help="made-up models of so many nodes; 1000 5000 20000 where nothing is named"
    )
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--greedy", action="store_true")
    given = parser.parse_args()
    print("model                     nodes normal    load  normal  start  candidate   step   steps  greedy  memory")
    print("                                             s       s      s         ms     ms               s      GB")
    for name in given.names:
        measure(name, build(*name.split(":")), given.candidates, given.greedy)
    sizes = given.nodes or ([] if given.names else [1000, 5000, 20000])
    times = [measure(f"layers of {n}", layered(n), given.candidates, given.greedy) for n in sizes]
    if len(times) > 1:
        print("growth:", ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(times)))


if __name__ == "__main__":
    main()
