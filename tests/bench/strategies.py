"""Every strategy on the zoo, by predicted cost, at equal budgets of candidates.

    python -m tests.bench.strategies [NAME ...] [--candidates 5000] [--exporter dynamo] [--rules PACK ...] [--only STRATEGY ...]
                                     [--json FILE] [--markdown FILE]

Greedy ends by itself; the others (backtracking with alpha swept) may price the same number of rewrites. Prices come from
the store, measured where it does not know them, before the strategies run: so all see the same prices, and how busy the machine
is does not matter. A saving is the predicted cost before over that after. Results are written after each model.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.auto import Auto
from graphopt.search.backtracking import Backtracking, Beam, RandomWalk
from graphopt.search.egraph import EqualitySaturation
from graphopt.search.greedy import Greedy
from graphopt.search.local import IteratedLocalSearch
from graphopt.search.mcts import GumbelSearch
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Problem, Strategy
from graphopt.zoo import build, describe, names

ALPHAS = (1.0, 1.01, 1.02, 1.05, 1.1)
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "greedy": Greedy,
    **{f"backtracking {alpha:g}": (lambda alpha=alpha: Backtracking(alpha)) for alpha in ALPHAS},
    "beam": Beam,
    "random": RandomWalk,
    "ils": IteratedLocalSearch,
    "mcts": GumbelSearch,
    "egraph": EqualitySaturation,
    "auto": Auto,
}
_MEASURING = 120.0  # seconds for kernels that the store does not know


def run(name: str, exporter: str, candidates: int, rules: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """The predicted saving of each strategy on one model."""
    loaded = load(build(name, exporter)).graph  # type: ignore[arg-type]
    with Store() as store:
        # A first pass measures whatever the strategies come by; the second sees all prices known.
        for measure in (True, False):
            problem = Problem(
                load_library(rules),
                KernelCost(store, SessionConfig(), seconds=_MEASURING, measure=measure),
                block_size(),
            )
            start = problem.start(Normal.of(loaded, problem).graph)
            found = {label: STRATEGIES[label]().run(problem, start, Budget(candidates=candidates)) for label in labels}
    return {
        "model": name, "exporter": exporter, "candidates": candidates, "rules": list(rules), "before": start.cost,
        "strategies": {
            label: {"saving": start.cost / o.state.cost, "steps": len(o.steps), "candidates": o.candidates,
                    "seconds": o.seconds, "stop": o.stop_reason}
            for label, o in found.items()
        },
    }  # fmt: skip


def markdown(entries: list[dict[str, Any]]) -> str:
    """A row for each model, the best of each row in bold, and the geometric means."""
    labels = [label for label in STRATEGIES if all(label in e["strategies"] for e in entries)]
    lines = [f"| model | ms | {' | '.join(labels)} |", "|---|---|" + "---|" * len(labels)]
    for entry in entries:
        savings = {label: entry["strategies"][label]["saving"] for label in labels}
        best = max(savings.values())
        cells = [f"**{s:.3f}**" if s > best - 5e-4 else f"{s:.3f}" for s in savings.values()]
        lines.append(f"| {entry['model']} {entry['exporter']} | {entry['before']:.2f} | {' | '.join(cells)} |")
    means = [
        math.exp(sum(math.log(e["strategies"][label]["saving"]) for e in entries) / len(entries)) for label in labels
    ]
    lines.append(f"| geometric mean | | {' | '.join(f'{m:.4f}' for m in means)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the models that are not in the JSON file yet and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--exporter", nargs="+", default=["dynamo"])
    parser.add_argument("--rules", nargs="+", default=[], help="packs, files, families or rules (default: the library)")
    parser.add_argument("--only", nargs="+", default=list(STRATEGIES), choices=list(STRATEGIES), metavar="STRATEGY")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    entries: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    for name in given.names or [n for n in names() if describe(n).family not in ("tiny", "demo")]:
        for exporter in given.exporter:
            asked = (name, exporter, given.candidates, given.rules)
            if any((e["model"], e["exporter"], e["candidates"], e["rules"]) == asked for e in entries):
                continue
            entry = run(*asked, given.only)
            entries.append(entry)
            print(name, exporter, {k: round(v["saving"], 4) for k, v in entry["strategies"].items()}, flush=True)
            if given.json:
                given.json.write_text(json.dumps(entries, indent=1) + "\n")
    text = markdown(entries)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
