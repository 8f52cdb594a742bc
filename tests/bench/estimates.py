"""What a search finds with estimated prices alone, priced by what was measured.

    GRAPHOPT_CACHE_DIR=FOLDER python -m tests.bench.estimates [NAME ...] [--candidates 2000]

FOLDER holds the store of an earlier run of ``tests.bench.zoo``. Each model is searched twice, with that store and with an empty one (no
kernel is measured in either): *believed* is the gain that the estimates promise, *priced* what the store says of the same graph, *known* what
the search finds that knows the store. Nothing is timed, so a busy machine gives the same figures. The second table holds single windows'
estimates against their measured prices, by their first operator that does the work: median, and middle half.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict

import numpy as np

from graphopt.cost.analytic import window_ms
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.cost.windows import CONVOLUTIONS, PRODUCTS
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load
from graphopt.pipeline.opening import session_config
from graphopt.rewrite.library import load_library
from graphopt.search.backtracking import Auto
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Problem, State
from graphopt.zoo import build, describe, names

CONFIG = session_config("cpu", None, 1)


def found(graph: Graph, store: Store, candidates: int) -> tuple[Problem, State, State]:
    """What a search finds with what a store knows: its problem, where it began and where it ended."""
    problem = Problem.where(load_library(), KernelCost(store, CONFIG, measure=False), CONFIG)
    start = problem.start(Normal.of(graph, problem).graph)
    return problem, start, Auto().run(problem, start, Budget(candidates=candidates)).state


def errors(problem: Problem, states: tuple[State, ...], store: Store, into: dict[str, dict[str, float]]) -> None:
    """Add the measured over the estimated price of every window that the store knows, by kind and signature."""
    cost = problem.cost
    assert isinstance(cost, KernelCost)
    for state in states:
        graph = state.graph
        windows = list({w.nodes[-1]: w for w in state.costs.partition.values()}.values())
        for window, (signature, _) in zip(windows, cost.signatures(graph, windows, state.costs.layout), strict=True):
            ms = store.get_many(cost.environment, [signature]).get(signature, 0.0)
            if ms > 0:
                into[_kind(graph, window.nodes)][signature] = ms / window_ms(graph, window, cost.roofline, cost.shapes)


def _kind(graph: Graph, nodes: tuple[int, ...]) -> str:
    ops = [graph.nodes[id] for id in nodes]
    for node in ops:
        if node.op in CONVOLUTIONS and len(node.inputs) > 1 and node.inputs[1] is not None:
            shape, groups = graph.type(node.inputs[1]).shape or (0, 0), node.attributes.get("group", 1)
            return "Conv, depthwise" if shape[1] == 1 != groups else "Conv, grouped" if groups > 1 else "Conv"
        if node.op in PRODUCTS or "Attention" in node.op:
            return node.op
    return ops[0].op if len(ops) == 1 else "several elementwise"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--candidates", type=int, default=2000)
    given = parser.parse_args()
    ratios: dict[str, dict[str, float]] = defaultdict(dict)
    off = []
    print("| model | believed | priced | known | prices that the store lacks |\n|---|---|---|---|---|")
    for name in given.names or [n for n in names() if describe(n).family not in ("tiny", "demo")]:
        graph = load(build(name, "dynamo")).graph
        with Store() as store, Store(None) as empty:
            known, start, best = found(graph, store, given.candidates)
            _, first, guess = found(graph, empty, given.candidates)
            before = known.cost.of(first.graph).total
            priced = before / known.cost.of(guess.graph).total
            errors(known, (start, best), store, ratios)
            believed, missing = first.cost / guess.cost, getattr(known.cost, "estimated", 0)
        off.append(abs(math.log(believed / priced)))
        print(f"| {name} | {believed:.3f} | {priced:.3f} | {start.cost / best.cost:.3f} | {missing} |", flush=True)
    print(f"\nBelieved and priced gain differ by {100 * np.mean(off):.1f} % on average.\n")
    print("| kind | windows | measured over estimated | middle half |\n|---|---|---|---|")
    for kind, found_here in sorted(ratios.items(), key=lambda kv: -len(kv[1])):
        low, middle, high = np.percentile(list(found_here.values()), (25, 50, 75))
        print(f"| {kind} | {len(found_here)} | {middle:.2f} | {low:.2f} - {high:.2f} |")


if __name__ == "__main__":
    main()
