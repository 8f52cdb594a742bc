"""How long a search step takes: apply one rewrite, update hash, cost and matches.

    python -m tests.bench.step [--layers 12 48] [--steps 200]

Prints the median over random applicable rewrites of BERT-base exports with 12 and 48 layers. The work of a step is in
proportion to the nodes it changes, so the two should be close. Prices are read from memory (every window is priced once
before the clock starts).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

from graphopt.config import cache_dir
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.delta import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.normal import Normal
from graphopt.search.problem import Problem
from graphopt.zoo import build


def measure(path: Path, steps: int, seed: int = 0) -> tuple[int, int, float, float]:
    """Nodes, matches, median and 95th percentile of a step in milliseconds."""
    with Store(cache_dir() / "kernels.sqlite") as store, collector_paused():
        problem = Problem(load_library(), KernelCost(store, SessionConfig(), measure=False), block_size())
        graph = Normal.of(load(path).graph, problem).graph
        state = problem.start(graph)
        actions = state.actions()
        random.Random(seed).shuffle(actions)
        times: list[float] = []
        for warm in (True, False):
            for match in actions[:steps]:
                begin = time.perf_counter()
                try:
                    problem.step(state, match)
                except RefusedError:
                    continue
                if not warm:
                    times.append((time.perf_counter() - begin) * 1e3)
    return len(graph.nodes), len(actions), statistics.median(times), statistics.quantiles(times, n=20)[18]


def main() -> None:
    """Print a line for each depth and the growth between the first and the last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    medians = []
    print("layers  nodes  matches  median ms  p95 ms")
    for layers in arguments.layers:
        name = "bert_base" if layers == 12 else f"bert_base@layers={layers}"
        nodes, matches, median, high = measure(build(name), arguments.steps)
        medians.append(median)
        print(f"{layers:6}  {nodes:5}  {matches:7}  {median:9.3f}  {high:6.3f}")
    print(f"growth from {arguments.layers[0]} to {arguments.layers[-1]} layers: {medians[-1] / medians[0] - 1:+.0%}")


if __name__ == "__main__":
    main()
