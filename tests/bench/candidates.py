"""Candidates a second of backtracking, with prices that are known already.

    python -m tests.bench.candidates [NAME ...] [--candidates 5000]

A candidate is a rewrite carried out, hashed and priced. Equal layers are explored once, so the time of a candidate should
hardly depend on their number: the last line compares BERT-base with 48 and with 12 layers.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.backtracking import Backtracking
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Problem
from graphopt.zoo import build

MODELS = ("resnet50", "bert_base", "bert_base@layers=48")


class Runs:
    """Searches of one model, timed.

    Args:
        name: Of the model, in the zoo.
        candidates: Of each search.
    """

    def __init__(self, name: str, candidates: int) -> None:
        self.name, self.candidates = name, candidates
        self.store = Store()
        self.problem = Problem(load_library(), KernelCost(self.store, SessionConfig(), measure=False), block_size())
        graph = Normal.of(load(build(name)).graph, self.problem).graph
        self.nodes = len(graph.nodes)
        self.start = self.problem.start(graph)
        self.rates: list[float] = []
        self.saving = 0.0
        self.run()  # fills the price table
        self.rates.clear()

    def run(self) -> None:
        """Search once more."""
        begin = time.process_time()  # another process on the machine must not count
        found = Backtracking().run(self.problem, self.start, Budget(candidates=self.candidates))
        self.rates.append(found.candidates / (time.process_time() - begin))
        self.saving = 1 - found.state.cost / self.start.cost


def main() -> None:
    """Print a line for each model, and the growth of the time of a candidate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7, help="searches of each model, taken in turn")
    given = parser.parse_args()
    models = {name: Runs(name, given.candidates) for name in given.names}
    for _ in range(given.rounds):
        for runs in models.values():
            runs.run()
    print("model                 nodes  candidates  per second  predicted saving")
    for name, runs in models.items():
        print(f"{name:20}  {runs.nodes:5}  {runs.candidates:10}  {median(runs.rates):10.0f}  {runs.saving:16.1%}")
    if {"bert_base", "bert_base@layers=48"} <= models.keys():
        pairs = zip(models["bert_base"].rates, models["bert_base@layers=48"].rates, strict=True)
        print(f"a candidate with 48 layers takes {median(a / b for a, b in pairs):.2f} x one with 12")


if __name__ == "__main__":
    main()
