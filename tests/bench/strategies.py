"""Every strategy on the zoo at equal budgets of candidates or of seconds: what it predicts, and what the clock says.

    python -m tests.bench.strategies [NAME ...] [--candidates 1000 | --seconds 3] [--seeds 5] [--measure SECONDS] [--exporter dynamo]
                                     [--rules PACK ...] [--only STRATEGY ...] [--json FILE] [--markdown FILE]

The strategies are those of the registry, agents as they are shipped, and two controls: backtracking with TASO's alpha of 1, and an agent that has learned
nothing. Those that draw run with every seed. Greedy, equality saturation and agents end by themselves; the others may price the same number of rewrites, or take
the same time. Prices come from the store, measured where it does not know them, before the strategies run: all see the same. A saving is the predicted
cost before over that after. With ``--measure`` what each found (at the middle one of its seeds) is timed against the original for so long, interleaved, equal graphs once.
Results are written after each model.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphopt.config import Settings
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import Model, load
from graphopt.pipeline.opening import first_run
from graphopt.pipeline.strategies import STRATEGIES
from graphopt.rewrite.library import Library, load_library
from graphopt.rl.agent import Untrained
from graphopt.rl.task import load_task
from graphopt.runtime.environment import block_size
from graphopt.runtime.rounds import Sampling
from graphopt.runtime.session import SessionConfig
from graphopt.search.arena import Arena, most_bytes
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Outcome, Problem, Strategy
from graphopt.verification.ranges import input_ranges
from graphopt.zoo import build, describe, names

_CONTROLS: Mapping[str, Callable[[int], Strategy]] = {
    "backtracking 1": lambda seed: STRATEGIES.get("backtracking").make(Settings(alpha=1.0, seed=seed)),
    "untrained": lambda seed: Untrained(load_task("cost"), seed=seed),
}
_MEASURING = 120.0  # seconds for kernels that the store does not know


def labels() -> list[str]:
    """All strategies that can run here."""
    return [name for name in STRATEGIES.names() if name != "none"] + list(_CONTROLS)


def made(label: str, seed: int) -> Strategy:
    """A strategy by its label."""
    if label in _CONTROLS:
        return _CONTROLS[label](seed)
    return STRATEGIES.ready(label).make(Settings(strategy=label, seed=seed))


def draws(label: str) -> bool:
    """Whether a strategy's result depends on its seed."""
    return label == "untrained" or (label in STRATEGIES.names() and "seed" in STRATEGIES.get(label).options)


def searched(
    label: str, seed: int, graph: Graph, library: Library, store: Store, given: argparse.Namespace
) -> tuple[float, Outcome]:
    """The cost before, and what a strategy finds; nobody finds prices at hand that another has looked up."""
    problem = Problem(library, KernelCost(store, SessionConfig(), measure=False), block_size())
    start = problem.start(Normal.of(graph, problem).graph)
    return start.cost, made(label, seed).run(problem, start, Budget(given.seconds, given.candidates))


def run(name: str, exporter: str, given: argparse.Namespace) -> dict[str, Any]:
    """The savings of each strategy on one model."""
    model, library = load(build(name, exporter)), load_library(given.rules)  # type: ignore[arg-type]
    with Store() as store:
        first = Problem(library, KernelCost(store, SessionConfig(), seconds=_MEASURING), block_size())
        start = first.start(Normal.of(model.graph, first).graph)
        for label in given.only:  # what they come by is measured
            if not draws(label):
                made(label, 0).run(first, start, Budget(given.seconds, given.candidates))
        outcomes: dict[str, list[Outcome]] = {}
        for label in given.only:
            seeds = range(given.seeds if draws(label) else 1)
            runs = [searched(label, seed, model.graph, library, store, given) for seed in seeds]
            before = runs[0][0]
            outcomes[label] = sorted((outcome for _, outcome in runs), key=lambda outcome: outcome.state.cost)
    clock = _measured(model, {label: found[len(found) // 2].state.graph for label, found in outcomes.items()}, given)
    return {
        "model": name, "exporter": exporter, "budget": _budget(given), "rules": list(given.rules), "before": before,
        "strategies": {
            label: {
                "savings": [before / outcome.state.cost for outcome in found],
                "candidates": [outcome.candidates for outcome in found],
                "seconds": [outcome.seconds for outcome in found],
                "stop": found[0].stop_reason,
                "measured": clock.get(label),
            }
            for label, found in outcomes.items()
        },
    }  # fmt: skip


def _measured(model: Model, graphs: Mapping[str, Graph], given: argparse.Namespace) -> dict[str, list[float]]:
    """Ratio and interval of each graph against the model as it is."""
    if not given.measure:
        return {}
    config = SessionConfig()
    _, feeds = first_run(model, config, input_ranges(model.graph), (), {}, 0)
    found = Arena(model, model, config, feeds, most_bytes(model)).compare(graphs, Sampling(given.measure))
    assert found is not None  # nobody interrupts it
    ratios = {label: found.over(None, label) for label in graphs}
    return {label: [1.0] * 3 if ratio is None else [ratio.value, ratio.low, ratio.high] for label, ratio in ratios.items()}  # fmt: skip


def _budget(given: argparse.Namespace) -> str:
    return f"{given.seconds:g} s" if given.seconds is not None else f"{given.candidates} candidates"


def markdown(entries: list[dict[str, Any]], kind: str) -> str:
    """A row for each model, the best of each row in bold, and the geometric means: of what is predicted, or of what was measured."""
    found = [label for label in labels() if all(label in e["strategies"] for e in entries)]

    def value(entry: dict[str, Any], label: str) -> tuple[float, float]:
        told = entry["strategies"][label]
        if kind == "measured":
            return told["measured"][0], (told["measured"][2] - told["measured"][1]) / 2
        savings = told["savings"]
        return statistics.fmean(savings), statistics.stdev(savings) if len(savings) > 1 else 0.0

    lines = [f"| model | ms | {' | '.join(found)} |", "|---|---|" + "---|" * len(found)]
    for entry in entries:
        values = {label: value(entry, label) for label in found}
        best = max(v for v, _ in values.values())
        cells = [f"{f'**{v:.3f}**' if v > best - 5e-4 else f'{v:.3f}'}{f' ± {d:.3f}' if d > 5e-4 else ''}" for v, d in values.values()]  # fmt: skip
        lines.append(f"| {entry['model']} | {entry['before']:.2f} | {' | '.join(cells)} |")
    means = [math.exp(statistics.fmean(math.log(value(e, label)[0]) for e in entries)) for label in found]
    lines.append(f"| geometric mean | | {' | '.join(f'{m:.4f}' for m in means)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the models that are not in the JSON file yet and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--measure", type=float, default=0.0)
    parser.add_argument("--exporter", default="dynamo")
    parser.add_argument("--rules", nargs="+", default=[], help="packs, files, families or rules (default: the library)")
    parser.add_argument("--only", nargs="+", default=labels(), choices=labels(), metavar="STRATEGY")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    if given.seconds is None and given.candidates is None:
        given.candidates = 1000
    entries: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    for name in given.names or [n for n in names() if describe(n).family not in ("tiny", "demo")]:
        asked = (name, given.exporter, _budget(given), given.rules)
        if any((e["model"], e["exporter"], e["budget"], e["rules"]) == asked for e in entries):
            continue
        entries.append(entry := run(name, given.exporter, given))
        print(name, {k: round(statistics.fmean(v["savings"]), 4) for k, v in entry["strategies"].items()}, flush=True)
        if given.json:
            given.json.write_text(json.dumps(entries, indent=1) + "\n")
    shown = [e for e in entries if e["budget"] == _budget(given)]
    text = "\n".join(markdown(shown, kind) for kind in ("predicted", *(["measured"] if given.measure else [])))
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
