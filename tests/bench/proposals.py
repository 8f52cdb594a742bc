"""Does a search gain by being told where to look? Backtracking that prices only the most promising sites of each state, against all of them.

    python -m tests.bench.proposals [NAME ...] [--top 20] [--nodes 5000] [--candidates 5000] [--rules PACK ...] [--markdown FILE]

What is pruned is pricing: of the sites from which a state goes on (equal places are one) only ``--top`` are priced. Who proposes them:

- ``oracle``: what saves most by the true prices, known in no time. No agent could propose it better, or sooner, but for steps that cost.
- ``rules``: the rules whose sites were most often in the best plans of the other models: what can be learnt about rules alone, at no cost.
- ``random``: chance.

A cell has the predicted cost before over that after, and the processor seconds until the search had what plain backtracking has in the end (to a
hundredth of a per cent), over those that plain backtracking takes until then. Prices are known before. The first model is ``--nodes`` long.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

from onnx import ModelProto

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Key
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search import backtracking
from graphopt.search.normal import Normal
from graphopt.search.plans import Candidate, PlanSearch
from graphopt.search.problem import Budget, Outcome, Problem, State
from graphopt.search.symmetry import ReducedState
from graphopt.zoo import build
from tests.bench.scale import layered

MODELS = ("mobilebert", "nasnet_a", "inception_v3", "bert_base", "nasrnn", "regnet_y_400mf", "squeezenet1_1")
_SAME = 1e-4


@dataclass
class Watch:
    """What became of a search.

    Attributes:
        best: Processor seconds, and the least predicted milliseconds by then.
        sites: How many sites the first state had.
        tried: How many sites of each rule were priced.
        free: Processor seconds that don't count.
    """

    best: list[tuple[float, float]] = field(default_factory=list)
    sites: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    free: float = 0.0
    begun: float = field(default_factory=time.process_time)

    @property
    def seconds(self) -> float:
        """Processor seconds so far."""
        return time.process_time() - self.begun - self.free

    def until(self, cost: float) -> float | None:
        """Processor seconds until there was something of so many milliseconds; ``None`` if there never was."""
        return next((seconds for seconds, best in self.best if best <= cost * (1 + _SAME)), None)


class Watched(PlanSearch):
    """A search that is watched, and prices what is proposed."""

    def __init__(
        self, watch: Watch, propose: Propose, problem: Problem, start: State, budget: Budget, keep: int
    ) -> None:
        super().__init__(problem, start, budget, keep)
        self.watch, self.propose = watch, propose

    def candidates(self, reduced: ReducedState) -> Iterator[Candidate]:
        """See :meth:`PlanSearch.candidates`."""
        keys = reduced.sites()
        self.watch.sites = self.watch.sites or len(keys)
        for key in self.propose(self, reduced, keys):
            if self.budget.exhausted() is not None:
                return
            self.watch.tried[key[0]] += 1
            if (candidate := self.priced(reduced, key)) is not None:
                yield candidate

    def note(self, found: Candidate) -> None:
        """See :meth:`PlanSearch.note`."""
        super().note(found)
        self.watch.best.append((self.watch.seconds, self.best))


Propose = Callable[[Watched, ReducedState, list[Key]], list[Key]]
"""Chooses some of the sites from which a state goes on."""


def everything(search: Watched, reduced: ReducedState, keys: list[Key]) -> list[Key]:
    """What plain backtracking prices."""
    return keys


def oracle(top: int, search: Watched, reduced: ReducedState, keys: list[Key]) -> list[Key]:
    """What saves most, as if someone knew."""
    begin, spent, known = time.process_time(), search.budget.spent, dict(reduced.known)
    priced = [(found.cost, key) for key in keys if (found := search.priced(reduced, key)) is not None]
    reduced.known.clear()
    reduced.known.update(known)
    search.budget.spent = spent
    search.watch.free += time.process_time() - begin
    return sorted(key for _, key in sorted(priced)[:top])


def by_rules(
    top: int, score: Callable[[str], float], search: Watched, reduced: ReducedState, keys: list[Key]
) -> list[Key]:
    """What has the best rules."""
    return sorted(sorted(keys, key=lambda key: (-score(key[0]), key))[:top])


def by_chance(top: int, chance: random.Random, search: Watched, reduced: ReducedState, keys: list[Key]) -> list[Key]:
    """Any."""
    return sorted(chance.sample(keys, min(top, len(keys))))


def run(problem: Problem, start: State, candidates: int, propose: Propose = everything) -> tuple[Outcome, Watch]:
    """Backtracking that prices what is proposed."""
    watch = Watch()
    with patch.object(backtracking, "PlanSearch", partial(Watched, watch, propose)):
        return backtracking.Backtracking().run(problem, start, Budget(candidates=candidates)), watch


def main() -> None:
    """Print a line for each model, and the table at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--rules", nargs="+", default=["standard", "generated"])
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    library = load_library(given.rules)
    models: list[tuple[str, Path | ModelProto]] = [
        (f"{given.nodes} nodes", layered(given.nodes)),
        *((name, build(name)) for name in given.names),
    ]
    plain: dict[str, tuple[int, Problem, State, Outcome, Watch]] = {}
    with Store() as store:
        for name, model in models:
            problem = Problem(library, KernelCost(store, SessionConfig(), measure=False), block_size())
            start = problem.start(Normal.of(load(model).graph, problem).graph)
            run(problem, start, given.candidates)  # fills the table of prices
            plain[name] = len(start.graph.nodes), problem, start, *run(problem, start, given.candidates)
            print(name, f"{plain[name][4].seconds:.1f} s", flush=True)
    rows = [
        f"{len(library.rules)} rules\n\n| model | nodes | sites | backtracking | its seconds | oracle | rules | random |",
        "|---|--:|--:|--:|--:|---|---|---|",
    ]
    for name, (nodes, problem, start, outcome, watch) in plain.items():
        others = [(found, seen) for other, (*_, found, seen) in plain.items() if other != name]
        used = Counter(step.rule for found, _ in others for step in {step.rule: step for step in found.steps}.values())
        tried = Counter[str]()
        for _, seen in others:
            tried.update(dict.fromkeys(seen.tried, 1))
        cost, whole = outcome.state.cost, watch.until(outcome.state.cost) or watch.seconds
        cells = []
        for propose in (
            partial(oracle, given.top),
            partial(by_rules, given.top, lambda rule, u=used, t=tried: u[rule] / (1 + t[rule])),  # type: ignore[misc]
            partial(by_chance, given.top, random.Random(0)),
        ):
            found, seen = run(problem, start, given.candidates, propose)
            seconds = seen.until(cost)
            share = "not reached" if seconds is None else f"{seconds / whole:.2f}"
            cells.append(f"{start.cost / found.state.cost:.4f}, {share}")
        rows.append(
            f"| {name} | {nodes} | {watch.sites} | {start.cost / cost:.4f} | {whole:.1f} | {' | '.join(cells)} |"
        )
        print(rows[-1], flush=True)
    text = "\n".join(rows) + "\n"
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
