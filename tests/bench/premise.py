"""Is there anything to be had beyond the best prediction? Plans that are predicted to be nearly as good, by the clock, twice.

    python -m tests.bench.premise [NAME ...] [--plans 40] [--within 0.03] [--cycles 4] --json FILE [--markdown FILE]

Of each model up to ``--plans`` different plans are made whose predicted times lie within ``--within`` of the best prediction: what the
default strategy finds, the best plan without each of its families, and what random rewrites make of all these. Each plan is measured
against the best predicted one in two runs, A and B, of ``--cycles`` sessions each; A and B share no session. So what is chosen by A is
judged by B:

- *clock*: the fastest on A; *default*: of the four cheapest by prediction the one that A says is clearly faster, as ``optimize`` asks it;
- *learnt*: what a ridge regression on the structure of plans chooses, fitted to A and B of the other models.

Every figure is a gain over the plan of the best prediction. Results are written after each model; the table is made of the file.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.cost.base import Costs
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.cost.windows import CONVOLUTIONS, NORMALISATIONS, POINTWISE, PRODUCTS, REDUCTIONS, VIEWS
from graphopt.errors import SessionError
from graphopt.experiments.calibration import spearman
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph, Node
from graphopt.ir.memo import collector_paused
from graphopt.onnxio.load import load
from graphopt.pipeline.opening import first_run, session_config
from graphopt.rewrite.library import load_library
from graphopt.runtime.rounds import Contender, Sampling, in_process, measure
from graphopt.runtime.timing import Ratio
from graphopt.search.arena import Arena
from graphopt.search.backtracking import Auto
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Problem, State
from graphopt.search.selection import by_gain, lacking, without
from graphopt.search.symmetry import ClassRewrite, PlanExpansion, SiteClasses
from graphopt.verification.ranges import input_ranges
from graphopt.zoo import build

MODELS = ("efficientnet_b0", "mobilenet_v3", "gpt2_decode", "convnext_tiny", "nasrnn", "squeezenet1_1")
_CANDIDATES = 3000
_WALKS = 12  # for each plan asked for
_LONGEST = 5  # rewrites of a walk
_TOGETHER = 7  # plans that share the sessions of the reference
_RIDGES = (0.01, 0.1, 1.0, 10.0)


def pool(problem: Problem, start: State, count: int, within: float, seed: int) -> list[State]:
    """Different graphs predicted to take as long as the best or a little more; the best one first."""
    chance = random.Random(seed)
    outcome = Auto().run(problem, start, Budget(candidates=_CANDIDATES))
    limit = (1 + within) * outcome.state.cost
    found = {outcome.state.graph.hash: outcome.state}
    for other in outcome.others:
        found.setdefault(other.state.graph.hash, other.state)
    for family in by_gain(outcome):
        less = without(
            lacking(problem, [family], normal=False), start.graph, outcome, family, Budget(candidates=_CANDIDATES)
        )
        found.setdefault(less.state.graph.hash, problem.start(less.state.graph))
    found = {h: s for h, s in found.items() if s.cost <= limit}
    roots = list(found.values())
    with collector_paused():
        for _ in range(_WALKS * count):
            state = chance.choice(roots)
            for _ in range(chance.randint(1, _LONGEST)):
                state = _moved(problem, state, chance) or state
                if state.cost <= limit:
                    found.setdefault(state.graph.hash, state)
    best = outcome.state
    others = [s for h, s in found.items() if h != best.graph.hash]
    vectors = {s.graph.hash: features(s.graph, s.costs, best.costs.total) for s in (best, *others)}
    return [best, *_different(best, others, vectors, count - 1)]


def _moved(problem: Problem, state: State, chance: random.Random) -> State | None:
    """One random rewrite, at one place or at all equal ones; ``None`` where none is possible."""
    rules = sorted({key[0] for key in state.sites.matches})
    if not rules:
        return None
    rule = chance.choice(rules)
    match = state.sites.matches[chance.choice(sorted(key for key in state.sites.matches if key[0] == rule))]
    try:
        if chance.random() < 0.5:
            return problem.step(state, match)
        classes = SiteClasses()
        return PlanExpansion(problem, state, classes).of((ClassRewrite(rule, classes.of(state.graph, match)),))[0]
    except RefusedError:
        return None


def _different(best: State, others: Sequence[State], vectors: dict[int, dict[str, float]], count: int) -> list[State]:
    """Of many graphs some that differ as much as possible in structure: always the one furthest from those taken."""
    names = sorted({name for vector in vectors.values() for name in vector})
    place = {h: np.array([vector.get(name, 0.0) for name in names]) for h, vector in vectors.items()}
    taken: list[State] = []
    left = list(others)
    distance = [float(np.abs(place[s.graph.hash] - place[best.graph.hash]).sum()) for s in left]
    while left and len(taken) < count:
        i = max(range(len(left)), key=distance.__getitem__)
        far = left.pop(i)
        distance.pop(i)
        taken.append(far)
        distance = [
            min(d, float(np.abs(place[s.graph.hash] - place[far.graph.hash]).sum()))
            for d, s in zip(distance, left, strict=True)
        ]
    return taken


def features(graph: Graph, costs: Costs, total: float) -> dict[str, float]:
    """The structure of a graph: by kind of window its share of a time and its number, conversions, weights, what flows between windows.

    Args:
        graph: The graph.
        costs: Its prices.
        total: Milliseconds that shares are of: the same for all graphs of a model.
    """
    found: defaultdict[str, float] = defaultdict(float)
    windows = {window.nodes[-1]: window for window in costs.partition.values()}
    for window in windows.values():
        kinds = [_kind(graph.nodes[id]) for id in window.nodes]
        kind = min(kinds, key=_ORDER.index)
        found[f"time {kind}"] += costs.by_node.get(window.head, 0.0) / total
        found[f"number {kind}"] += 1e-2 / total  # a hundredth of a millisecond is what a kernel costs beyond its work
        found["inside"] += (len(kinds) - 1) * 1e-2 / total
    found["conversions"] = len(costs.layout.moves) * 1e-2 / total
    found["weights"] = costs.sums.bytes / 1e8 / total
    found["read"] = costs.sums.read / 1e8 / total
    return dict(found)


_ORDER = ("conv", "depthwise", "product", "normalisation", "reduction", "pointwise", "other", "movement", "view")


def _kind(node: Node) -> str:
    if node.op in CONVOLUTIONS:
        return "conv" if node.attributes.get("group", 1) == 1 else "depthwise"
    if node.op in PRODUCTS:
        return "product"
    for kind, operators in (
        ("normalisation", NORMALISATIONS),
        ("reduction", REDUCTIONS),
        ("pointwise", POINTWISE),
        ("view", VIEWS),
    ):
        if node.op in operators:
            return kind
    return (
        "movement"
        if node.op in ("Transpose", "Concat", "Slice", "Split", "Gather", "Expand", "Tile", "Pad")
        else "other"
    )


def against(arena: Arena, reference: Graph, plans: Sequence[Graph], cycles: int) -> list[Ratio]:
    """The time of a reference over that of each plan; groups of plans take turns with it in the same rounds."""
    found: list[Ratio] = []
    for first in range(0, len(plans), _TOGETHER):
        group = plans[first : first + _TOGETHER]
        contenders = [Contender(str(i), arena.loadable(g), arena.config) for i, g in enumerate((reference, *group))]
        measured = measure(contenders, in_process(arena.feeds), Sampling(math.inf, least=cycles, most=cycles))
        assert measured is not None
        found += [measured.over(0, i) for i in range(1, len(contenders))]
    return found


def run(name: str, count: int, within: float, cycles: int, seed: int) -> dict[str, Any]:
    """The plans of a model, predicted and measured."""
    config = session_config("cpu", None, 1)
    model = load(build(name, "dynamo"))
    _, feeds = first_run(model, config, input_ranges(model.graph), (), {}, seed)
    arena = Arena(model, model, config, feeds, seed=seed)
    with Store() as store:
        for measuring in (True, False):  # then all prices are known, and none depends on the order of questions
            cost = KernelCost(store, config, seconds=120.0, measure=measuring)
            problem = Problem.where(load_library(), cost, config)
            start = problem.start(Normal.of(model.graph, problem).graph)
            found = pool(problem, start, count, within, seed)
    plans: list[State] = []
    for state in found:
        try:
            arena.vet(state.graph)
            plans.append(state)
        except SessionError:
            assert plans, "the best plan does not run"
    best, *others = (state.graph for state in plans)
    runs = [against(arena, best, others, cycles) for _ in "AB"]
    total = plans[0].cost
    return {
        "model": name, "ms": total, "start": start.cost / total, "cycles": cycles,
        "plans": [
            {"predicted": total / state.cost, "features": features(state.graph, state.costs, total),
             "a": [a.value, a.low, a.high], "b": [b.value, b.low, b.high]}
            for state, a, b in zip(plans, (_SAME, *runs[0]), (_SAME, *runs[1]), strict=True)
        ],
    }  # fmt: skip


_SAME = Ratio.of(1.0, (1.0, 1.0))


def chosen(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each way to choose a plan gains on each model, by a run that it has not seen."""
    rows = []
    for entry in entries:
        plans = entry["plans"]
        a, b, predicted = (
            np.log(np.array(x)) for x in zip(*((p["a"][0], p["b"][0], p["predicted"]) for p in plans), strict=True)
        )
        cheap = [i for i in np.argsort(-predicted, kind="stable")[:4] if i == 0 or plans[i]["a"][1] > 1]
        learnt = _learnt([e for e in entries if e is not entry], entry)
        fast, asked = int(a.argmax()), max(cheap, key=lambda i: a[i])
        # A and B share no session: what they have in common is no noise.
        signal, noise = np.cov(a, b)[0, 1], np.var(a - b) / 2
        rows.append({
            "model": entry["model"], "plans": len(plans), "spread": math.sqrt(max(0.0, signal)), "noise": math.sqrt(noise),
            "clock": plans[fast]["b"], "default": plans[asked]["b"], "learnt": math.exp((a[learnt] + b[learnt]) / 2),
            "best": math.exp(((a + b) / 2).max()),
            "rank": spearman(predicted.tolist(), ((a + b) / 2).tolist()), "bias": float(np.mean(predicted - (a + b) / 2)),
        })  # fmt: skip
    return rows


def _learnt(others: Sequence[dict[str, Any]], entry: dict[str, Any]) -> int:
    """The plan that is best by its prediction and by what the structure of other models' plans says that predictions leave out."""
    if not others:
        return 0
    names = sorted({name for e in (*others, entry) for p in e["plans"] for name in p["features"]})

    def table(e: dict[str, Any]) -> tuple[Any, Any]:
        rows = np.array([[p["features"].get(n, 0.0) for n in names] for p in e["plans"]])
        clock = np.array([math.log(p["a"][0] * p["b"][0]) / 2 - math.log(p["predicted"]) for p in e["plans"]])
        return rows - rows[0], clock

    tables = [table(e) for e in others]
    scale = np.concatenate([x for x, _ in tables]).std(0)
    scale[scale == 0] = math.inf

    def fit(part: Sequence[tuple[Any, Any]], ridge: float) -> Any:
        x = np.concatenate([x / scale for x, _ in part])
        y = np.concatenate([y for _, y in part])
        return np.linalg.solve(x.T @ x + ridge * len(x) * np.eye(len(names)), x.T @ y)

    def error(ridge: float) -> float:
        held = [(t, fit([o for o in tables if o is not t], ridge)) for t in tables] if len(tables) > 1 else []
        return sum(float(np.mean((y - (x / scale) @ w) ** 2)) for (x, y), w in held)

    weights = fit(tables, min(_RIDGES, key=error))
    x, _ = table(entry)
    return int(np.argmax(np.log([p["predicted"] for p in entry["plans"]]) + (x / scale) @ weights))


def markdown(entries: Sequence[dict[str, Any]]) -> str:
    """A row for each model and the geometric means."""
    rows = chosen(entries)
    lines = [
        "| model | plans | they differ by | noise of a run | rank correlation | chosen by the clock | the default's choice | learnt from others | best of A and B |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        ends = [f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in (r["clock"], r["default"])]
        lines.append(
            f"| {r['model']} | {r['plans']} | {r['spread']:.1%} | {r['noise']:.1%} | {r['rank']:.2f} | {ends[0]} | {ends[1]} |"
            f" {r['learnt']:.3f} | {r['best']:.3f} |"
        )
    means = [
        math.exp(np.mean([math.log(r[k][0] if isinstance(r[k], list) else r[k]) for r in rows]))
        for k in ("clock", "default", "learnt", "best")
    ]
    return "\n".join([*lines, f"| geometric mean | | | | | {' | '.join(f'{m:.4f}' for m in means)} |"]) + "\n"


def main() -> None:
    """Run the models that are not in the JSON file yet and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--plans", type=int, default=40)
    parser.add_argument("--within", type=float, default=0.03)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    entries: list[dict[str, Any]] = json.loads(given.json.read_text()) if given.json.exists() else []
    for name in given.names:
        if any(e["model"] == name for e in entries):
            continue
        entries.append(run(name, given.plans, given.within, given.cycles, given.seed))
        given.json.write_text(json.dumps(entries, indent=1) + "\n")
        print(name, len(entries[-1]["plans"]), flush=True)
    text = markdown(entries)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
