"""Candidates a second of backtracking, with prices that are known already.

    python -m tests.bench.candidates [NAME ...] [--candidates 2000]

A candidate is a rewrite carried out, hashed and priced. Equal layers are explored once, so the time of a candidate should
hardly depend on their number: the last line compares BERT-base with 48 and with 12 layers.
"""

from __future__ import annotations

import argparse
import time

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.backtracking import Backtracking
from graphopt.search.problem import Budget, Problem
from graphopt.zoo import build

MODELS = ("resnet50", "bert_base", "bert_base@layers=48")


def rate(name: str, candidates: int) -> tuple[int, int, float, float]:
    """Nodes, candidates, candidates a second, and predicted milliseconds saved, as a share."""
    graph = simplify(load(build(name)).graph)
    with Store() as store:
        problem = Problem(load_library(), KernelCost(store, SessionConfig(), measure=False), block_size())
        start = problem.start(graph)
        for _ in range(2):  # the first run fills the price table
            begin = time.perf_counter()
            found = Backtracking().run(problem, start, Budget(candidates=candidates))
            seconds = time.perf_counter() - begin
        return len(graph.nodes), found.candidates, found.candidates / seconds, 1 - found.state.cost / start.cost


def main() -> None:
    """Print a line for each model, and the growth of the time of a candidate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--candidates", type=int, default=2000)
    given = parser.parse_args()
    rates: dict[str, float] = {}
    print("model                 nodes  candidates  per second  predicted saving")
    for name in given.names:
        nodes, count, rates[name], saving = rate(name, given.candidates)
        print(f"{name:20}  {nodes:5}  {count:10}  {rates[name]:10.0f}  {saving:16.1%}")
    if {"bert_base", "bert_base@layers=48"} <= rates.keys():
        print(f"a candidate with 48 layers takes {rates['bert_base'] / rates['bert_base@layers=48']:.2f} x one with 12")


if __name__ == "__main__":
    main()
